/** One command called in one way, and every fault that it can meet. @module */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newPrng } from "../harness/prng.ts";
import { damages } from "./file_damage.ts";
import { judge, type Trial, type Tried } from "./experiment.ts";
import { type Fault, formatFault, isSignal, TRACED } from "./fault.ts";
import { cleanNode, enterNode, run, sh } from "../harness/node.ts";
import { faultsIn, sampleOf } from "./plan.ts";
import { type Situation, SITUATIONS } from "./scenario.ts";
import { byExec, byRun, type Command, type Way } from "./invocation.ts";

/** What is to be tried: a command at all of its system calls, or commands on damaged files. */
export interface Section {
  readonly way: "run" | "exec";
  readonly situation: keyof typeof SITUATIONS | "damage";
}

/** All sections. */
export const SECTIONS: readonly Section[] = (["run", "exec"] as const).flatMap((way) =>
  ([...Object.keys(SITUATIONS), "damage"] as Section["situation"][]).map((situation) => ({ way, situation }))
);

/** Which of its faults. */
export interface Choice {
  /** How many, chosen at random by this seed. */
  readonly sample: number;
  readonly seed: number;
  /** Words that are all in the name of a fault. */
  readonly words: readonly string[];
  /** Which of `of` parts of those. */
  readonly share: number;
  readonly of: number;
}

/** A fault of one of the programs that the command runs. */
interface Place {
  readonly part: string;
  readonly fault: Fault;
}

/** Tries the faults of a section, in a process that was started in new namespaces. */
export function trySection(
  section: Section,
  cni: string,
  { sample, seed, words, share, of }: Choice,
  tell: (tried: Tried) => void,
): void {
  enterNode();
  sh(`${cni} install /opt/cni/bin`);
  const scratch = mkdtempSync(join(tmpdir(), "cni-faults-"));
  try {
    const way = section.way === "run" ? byRun(cni) : byExec();
    const title = `${section.way} ${section.situation}`;
    const all = section.situation === "damage" ? damages(way) : faults(way, SITUATIONS[section.situation], scratch);
    const chosen = all.map((each) => ({ ...each, name: `${title} ${each.name}` })).filter(({ name }) =>
      words.every((word) => isNamed(name, word))
    );
    // By name: the processes that share a section need not find the same number of places.
    const mine = sampleOf(chosen, sample, newPrng(seed)).filter(({ name }) => Bun.hash.crc32(name) % of === share);
    for (const { name, kind, attempt } of mine) tell({ name, kind, ...attempt() });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** `sendto` and `sendto#12` are names of the one, and of one of it. */
const isNamed = (name: string, word: string): boolean => [...name.split(" "), ...name.split(/[ #]/)].includes(word);

function faults(way: Way, situation: Situation, scratch: string): readonly Trial[] {
  const log = join(scratch, "log");
  const places = placesOf(way, situation, join(scratch, "trace"));
  cleanNode([]);
  return places.map(({ part, fault }) => ({
    name: [...(part === "cni" ? [] : [part]), formatFault(fault)].join(" "),
    kind: fault.kind,
    attempt: () =>
      judge({
        ...{ way, situation, part, fault },
        run: (command) => traced(command, log, fault),
        log: () => readFileSync(log, "utf8"),
      }),
  }));
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
      `trace=${trace([fault.syscall, ...fault.kind === "TERM" ? ["write"] : []])}`,
      `inject=${fault.syscall}:${isSignal(fault.kind) ? "signal" : "error"}=${fault.kind}:when=${fault.when}`,
    ]
    : [`trace=${trace(TRACED)}`];
  // The kernel's filter makes the trace cheap, but no signal can be delivered where it stops the program.
  const cheap = fault && isSignal(fault.kind) ? [] : ["--seccomp-bpf"];
  return run([...strace(log, ...cheap, ...options.flatMap((option) => ["-e", option])), ...command.argv], command);
}
