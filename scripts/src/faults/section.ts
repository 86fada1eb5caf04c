/** One command called in one way, and every fault that it can meet. @module */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newPrng } from "../harness/prng.ts";
import { fileDamageCases } from "./file_damage.ts";
import { type FaultCase, type FaultReport, runExperiment } from "./experiment.ts";
import { type Fault, formatFault, isSignal, TRACED_SYSCALLS } from "./fault.ts";
import { hideMachineState, resetNode, runProgram, runShell } from "../harness/node.ts";
import { faultsOfTrace, sampleByKind } from "./plan.ts";
import { type Scenario, SCENARIOS } from "./scenario.ts";
import { execInvocation, type FaultCommand, type Invocation, runInvocation } from "./invocation.ts";

/** What is to be tried: a command at all of its system calls, or commands on damaged files. */
export interface FaultSection {
  readonly invocation: "run" | "exec";
  readonly scenario: keyof typeof SCENARIOS | "damage";
}

/** All sections. */
export const FAULT_SECTIONS: readonly FaultSection[] = (["run", "exec"] as const).flatMap((invocation) =>
  ([...Object.keys(SCENARIOS), "damage"] as FaultSection["scenario"][]).map((scenario) => ({ invocation, scenario }))
);

/** Which of its faults. */
export interface FaultSelection {
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
interface FaultSite {
  readonly program: string;
  readonly fault: Fault;
}

/** Tries the faults of a section, in a process that was started in new namespaces. */
export function runSection(
  section: FaultSection,
  cni: string,
  { sample, seed, words, share, of }: FaultSelection,
  report: (tried: FaultReport) => void,
): void {
  hideMachineState();
  runShell(`${cni} install /opt/cni/bin`);
  const scratch = mkdtempSync(join(tmpdir(), "cni-faults-"));
  try {
    const invocation = section.invocation === "run" ? runInvocation(cni) : execInvocation();
    const title = `${section.invocation} ${section.scenario}`;
    const all = section.scenario === "damage"
      ? fileDamageCases(invocation)
      : faultCases(invocation, SCENARIOS[section.scenario], scratch);
    const chosen = all.map((faultCase) => ({ ...faultCase, name: `${title} ${faultCase.name}` })).filter(({ name }) =>
      words.every((word) => matchesWord(name, word))
    );
    // By name: the processes that share a section need not find the same number of places.
    const selected = sampleByKind(chosen, sample, newPrng(seed)).filter(({ name }) =>
      Bun.hash.crc32(name) % of === share
    );
    for (const { name, kind, run } of selected) report({ name, kind, ...run() });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** `sendto` and `sendto#12` are names of the one, and of one of it. */
const matchesWord = (name: string, word: string): boolean => [...name.split(" "), ...name.split(/[ #]/)].includes(word);

function faultCases(invocation: Invocation, scenario: Scenario, scratch: string): readonly FaultCase[] {
  const log = join(scratch, "log");
  const sites = findFaultSites(invocation, scenario, join(scratch, "trace"));
  resetNode([]);
  return sites.map(({ program, fault }) => ({
    name: [...(program === "cni" ? [] : [program]), formatFault(fault)].join(" "),
    kind: fault.kind,
    run: () =>
      runExperiment({
        ...{ invocation, scenario, program, fault },
        run: (command) => runTraced(command, log, fault),
        log: () => readFileSync(log, "utf8"),
      }),
  }));
}

const syscallFilter = (calls: readonly string[]) => calls.map((name) => `?${name}`).join(",");
const straceCommand = (
  log: string,
  ...options: string[]
) => ["strace", "-f", "-y", "-q", "-o", log, "-e", "signal=none", ...options];

/** Where the command can go wrong: found by running it once, well. */
function findFaultSites(invocation: Invocation, scenario: Scenario, log: string): readonly FaultSite[] {
  return invocation.programs(scenario.verb).flatMap((program) => {
    scenario.prepare(invocation);
    const run = (command: FaultCommand) => runTraced(command, log);
    const { exitCode, stdout, stderr } = invocation.call(scenario.verb, scenario.container, { part: program, run });
    if (exitCode !== 0) {
      throw new Error(`Without any fault, ${scenario.verb} ended with ${exitCode}: ${stdout}${stderr}`);
    }
    return faultsOfTrace(readFileSync(log, "utf8")).map((fault) => ({ program, fault }));
  });
}

/** Runs a program under strace(1), with a fault or without. */
function runTraced(command: FaultCommand, log: string, fault?: Fault) {
  const options = fault
    ? [
      `trace=${syscallFilter([fault.syscall, ...fault.kind === "TERM" ? ["write"] : []])}`,
      `inject=${fault.syscall}:${isSignal(fault.kind) ? "signal" : "error"}=${fault.kind}:when=${fault.occurrence}`,
    ]
    : [`trace=${syscallFilter(TRACED_SYSCALLS)}`];
  // The kernel's filter makes the trace cheap, but no signal can be delivered where it stops the program.
  const filterOptions = fault && isSignal(fault.kind) ? [] : ["--seccomp-bpf"];
  return runProgram([
    ...straceCommand(log, ...filterOptions, ...options.flatMap((option) => ["-e", option])),
    ...command.argv,
  ], command);
}
