import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Caller, execInvocation, type ProgramCommand, runInvocation } from "../harness/invocation.ts";
import { prepareNode, resetNode } from "../harness/node.ts";
import { type ProcessCommand, requireSuccess, runLimited } from "../harness/process.ts";
import { newRandomSource } from "../harness/random.ts";
import { newScratchDirectory } from "../repository.ts";
import { type FaultCase, type FaultReport, runExperiment } from "./experiment.ts";
import { type Fault, isSignal, TRACED_SYSCALLS } from "./fault.ts";
import { fileDamageCases } from "./file_damage.ts";
import { faultsOfTrace, sampleByKind } from "./plan.ts";
import { callChain, FAULTS_NETWORK, type Scenario, SCENARIOS } from "./scenario.ts";

export const FAULT_SECTIONS: readonly string[] = ["run", "exec"].flatMap((invocation) =>
  [...Object.keys(SCENARIOS), "damage"].map((scenario) => `${invocation} ${scenario}`)
);

export interface FaultSelection {
  /** So many, chosen at random by this seed, whose names have all words. */
  readonly sample: number;
  readonly seed: number;
  readonly words: readonly string[];
}

export function* runSection(section: string, { sample, seed, words }: FaultSelection): Generator<FaultReport> {
  prepareNode();
  using scratch = newScratchDirectory();
  const [invocation, scenario] = section.split(" ");
  const caller = new Caller(invocation === "run" ? runInvocation("/run") : execInvocation());
  const all = scenario === "damage"
    ? fileDamageCases(caller)
    : faultCases(caller, SCENARIOS[scenario as keyof typeof SCENARIOS], join(scratch.path, "trace"));
  const chosen = all.map((faultCase) => ({ ...faultCase, name: `${section} ${faultCase.name}` }))
    .filter(({ name }) => words.every((word) => matchesWord(name, word)));
  const selected = sampleByKind(chosen, sample, newRandomSource(seed));
  for (const { name, kind, run } of selected) yield { name, kind, ...run() };
}

/** `sendto` matches all faults of the call, `sendto#12` those of one. */
const matchesWord = (name: string, word: string): boolean => [...name.split(" "), ...name.split(/[ #]/)].includes(word);

/** Faults at all system calls of a command, found by running each of its programs once without a fault. */
function faultCases(caller: Caller, scenario: Scenario, file: string): readonly FaultCase[] {
  const log = () => readFileSync(file, "utf8");
  const { verb, container } = scenario;
  const cases = caller.invocation.programs(FAULTS_NETWORK, verb).flatMap((program) => {
    scenario.prepare(caller);
    const runOne = (fault?: Fault) => (command: ProgramCommand) =>
      command.program === program ? runTraced(command, file, fault) : runLimited(command);
    requireSuccess({ argv: [verb, "without any fault"] }, callChain(caller, verb, container, runOne()));
    return faultsOfTrace(log()).map((fault) => ({
      name: `${program === "cni" ? "" : `${program} `}${fault.syscall}#${fault.occurrence} ${fault.kind}`,
      kind: fault.kind,
      run: () => runExperiment({ caller, scenario, program, fault, log, run: runOne(fault) }),
    }));
  });
  resetNode([]);
  return cases;
}

function runTraced(command: ProcessCommand, log: string, fault?: Fault) {
  const traced = !fault ? TRACED_SYSCALLS : [fault.syscall, ...fault.kind === "TERM" ? ["write"] : []];
  const injection = fault &&
    `inject=${fault.syscall}:${isSignal(fault.kind) ? "signal" : "error"}=${fault.kind}:when=${fault.occurrence}`;
  const strace = [
    ...["strace", "-f", "-y", "-q", "-o", log, "-e", "signal=none", ...injection ? ["-e", injection] : []],
    ...["-e", `trace=${traced.map((name) => `?${name}`).join(",")}`],
    // The kernel's filter makes the trace cheap, but no signal can be delivered where it stops the program.
    ...fault && isSignal(fault.kind) ? [] : ["--seccomp-bpf"],
  ];
  return runLimited({ ...command, argv: [...strace, ...command.argv] });
}
