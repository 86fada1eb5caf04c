/** One command called in one way, and all faults that can be injected into it. @module */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Caller, execInvocation, runInvocation } from "../harness/invocation.ts";
import { prepareNode, resetNode } from "../harness/node.ts";
import { type ProcessCommand, requireSuccess, runLimited } from "../harness/process.ts";
import { newRandomSource } from "../harness/random.ts";
import { fileDamageCases } from "./file_damage.ts";
import { type FaultCase, type FaultReport, runExperiment } from "./experiment.ts";
import { type Fault, formatFault, isSignal, TRACED_SYSCALLS } from "./fault.ts";
import { faultsOfTrace, sampleByKind } from "./plan.ts";
import { callChain, FAULTS_NETWORK, type Scenario, SCENARIOS } from "./scenario.ts";

/** A command with faults at all of its system calls, or commands on damaged files. */
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
  onReport: (report: FaultReport) => void,
): void {
  prepareNode(cni);
  const scratch = mkdtempSync(join(tmpdir(), "cni-faults-"));
  try {
    const caller = new Caller(section.invocation === "run" ? runInvocation(cni, "/run") : execInvocation());
    const title = `${section.invocation} ${section.scenario}`;
    const all = section.scenario === "damage"
      ? fileDamageCases(caller)
      : faultCases(caller, SCENARIOS[section.scenario], scratch);
    const chosen = all.map((faultCase) => ({ ...faultCase, name: `${title} ${faultCase.name}` })).filter(({ name }) =>
      words.every((word) => matchesWord(name, word))
    );
    // By name: the processes that share a section need not find the same number of system calls.
    const selected = sampleByKind(chosen, sample, newRandomSource(seed)).filter(({ name }) =>
      Bun.hash.crc32(name) % of === share
    );
    for (const { name, kind, run } of selected) onReport({ name, kind, ...run() });
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** `sendto` matches all faults of the call, `sendto#12` those of one. */
const matchesWord = (name: string, word: string): boolean => [...name.split(" "), ...name.split(/[ #]/)].includes(word);

function faultCases(caller: Caller, scenario: Scenario, scratch: string): readonly FaultCase[] {
  const log = join(scratch, "log");
  const sites = findFaultSites(caller, scenario, join(scratch, "trace"));
  resetNode([]);
  return sites.map(({ program, fault }) => ({
    name: [...(program === "cni" ? [] : [program]), formatFault(fault)].join(" "),
    kind: fault.kind,
    run: () =>
      runExperiment({
        ...{ caller, scenario, program, fault },
        run: (command) => runTraced(command, log, fault),
        log: () => readFileSync(log, "utf8"),
      }),
  }));
}

/** The system calls of a command, found by running it once without a fault. */
function findFaultSites(caller: Caller, scenario: Scenario, log: string): readonly FaultSite[] {
  const { verb, container } = scenario;
  return caller.invocation.programs(FAULTS_NETWORK, verb).flatMap((program) => {
    scenario.prepare(caller);
    const run = (command: ProcessCommand) => runTraced(command, log);
    requireSuccess({ argv: [verb, "without any fault"] }, callChain(caller, verb, container, { program, run }));
    return faultsOfTrace(readFileSync(log, "utf8")).map((fault) => ({ program, fault }));
  });
}

/** Runs a program under strace(1), with a fault or without. */
function runTraced(command: ProcessCommand, log: string, fault?: Fault) {
  const traced = !fault ? TRACED_SYSCALLS : [fault.syscall, ...fault.kind === "TERM" ? ["write"] : []];
  const injection = fault
    ? [
      "-e",
      `inject=${fault.syscall}:${isSignal(fault.kind) ? "signal" : "error"}=${fault.kind}:when=${fault.occurrence}`,
    ]
    : [];
  const strace = [
    ...["strace", "-f", "-y", "-q", "-o", log, "-e", "signal=none", ...injection],
    ...["-e", `trace=${traced.map((name) => `?${name}`).join(",")}`],
    // The kernel's filter makes the trace cheap, but no signal can be delivered where it stops the program.
    ...fault && isSignal(fault.kind) ? [] : ["--seccomp-bpf"],
  ];
  return runLimited({ ...command, argv: [...strace, ...command.argv] });
}
