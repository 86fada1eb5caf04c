/** One command called in one way, and every fault that it can meet. @module */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { judge, type Outcome } from "./experiment.ts";
import { type Fault, formatFault, isSignal, TRACED } from "./fault.ts";
import { cleanNode, enterNode, run, sh } from "./node.ts";
import { faultsIn, sampleOf } from "./plan.ts";
import { type Situation, SITUATIONS } from "./situation.ts";
import { byExec, byRun, type Command, type Way } from "./way.ts";

/** What is to be tried. */
export interface Section {
  readonly way: "run" | "exec";
  readonly situation: keyof typeof SITUATIONS;
}

/** All sections. */
export const SECTIONS: readonly Section[] = (["run", "exec"] as const).flatMap((way) =>
  (Object.keys(SITUATIONS) as (keyof typeof SITUATIONS)[]).map((situation) => ({ way, situation }))
);

/** Which of its faults. */
export interface Choice {
  /** How many, spread evenly. */
  readonly sample: number;
  /** Words that are all in the name of a fault. */
  readonly words: readonly string[];
}

/** A fault that was tried. */
export interface Tried extends Outcome {
  /** `run add sendto#12 ENOBUFS` */
  readonly name: string;
  readonly kind: string;
}

/** A fault of one of the programs that the command runs. */
interface Place {
  readonly part: string;
  readonly fault: Fault;
}

/** Tries the faults of a section, in a process that was started in new namespaces. */
export function trySection(
  { way: wayName, situation }: Section,
  cni: string,
  choice: Choice,
  tell: (tried: Tried) => void,
): void {
  enterNode();
  sh(`${cni} install /opt/cni/bin`);
  const scratch = mkdtempSync(join(tmpdir(), "cni-faults-"));
  try {
    const way = wayName === "run" ? byRun(cni) : byExec();
    const stage = SITUATIONS[situation];
    const nameOf = ({ part, fault }: Place) =>
      [wayName, situation, ...(part === "cni" ? [] : [part]), formatFault(fault)].join(" ");
    const all = placesOf(way, stage, join(scratch, "trace"));
    const chosen = all.filter((place) =>
      choice.words.every((word) => nameOf(place).split(/[ #]/).includes(word) || nameOf(place).includes(` ${word}`))
    );
    cleanNode([]);
    for (const place of sampleOf(chosen, choice.sample)) {
      const { part, fault } = place;
      const log = join(scratch, "log");
      const outcome = judge({
        ...{ way, situation: stage, part, kind: fault.kind },
        run: (command) => traced(command, log, fault),
        log: () => readFileSync(log, "utf8"),
      });
      tell({ name: nameOf(place), kind: place.fault.kind, ...outcome });
    }
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

const trace = (calls: readonly string[]) => calls.map((name) => `?${name}`).join(",");
const strace = (
  log: string,
  ...options: string[]
) => ["strace", "-f", "-y", "-q", "-o", log, "-e", "signal=none", ...options];

/** Where the command can go wrong: found by running it once, well. */
function placesOf(way: Way, stage: Situation, log: string): readonly Place[] {
  return way.parts(stage.verb).flatMap((part) => {
    stage.prepare(way);
    const run = (command: Command) => traced(command, log);
    const { exitCode, stdout, stderr } = way.call(stage.verb, stage.subject, { part, run });
    if (exitCode !== 0) throw new Error(`Without any fault, ${stage.verb} ended with ${exitCode}: ${stdout}${stderr}`);
    return faultsIn(readFileSync(log, "utf8")).map((fault) => ({ part, fault }));
  });
}

/** Runs a program under strace(1), with a fault or without. */
function traced(command: Command, log: string, fault?: Fault) {
  const options = fault
    ? [
      `trace=?${fault.syscall}`,
      `inject=${fault.syscall}:${isSignal(fault.kind) ? "signal" : "error"}=${fault.kind}:when=${fault.when}`,
    ]
    : [`trace=${trace(TRACED)}`];
  // The kernel's filter makes the trace cheap, but no signal can be delivered where it stops the program.
  const cheap = fault && isSignal(fault.kind) ? [] : ["--seccomp-bpf"];
  return run([...strace(log, ...cheap, ...options.flatMap((option) => ["-e", option])), ...command.argv], command);
}
