import type { Caller, RunProgram } from "../harness/invocation.ts";
import { requireSameState } from "../harness/node_state.ts";
import type { ProcessResult } from "../harness/process.ts";
import { type Fault, isSignal } from "./fault.ts";
import { failedOutcome, type FaultOutcome } from "./fault_case.ts";
import { findFaultInTrace } from "./plan.ts";
import {
  attachAndDetach,
  callChain,
  FAULTS_NETWORK,
  mustSucceed,
  requireAllAddresses,
  type Scenario,
  TEST_CONTAINER,
} from "./scenario.ts";

const SLOW_MS = 10_000;

/** After every so many experiments all addresses are reserved, and after each whose trace has one of their files. */
const ADDRESS_CHECK_EVERY = 4;

interface PreparedScenario {
  readonly scenario: Scenario;
  readonly before: readonly string[];
  readonly afterDel: readonly string[];
}

/** Prepared by an earlier fault that left it as it was. */
let preparedScenario: PreparedScenario | undefined;

let experimentCount = 0;

export interface Experiment {
  readonly caller: Caller;
  readonly scenario: Scenario;
  /** Which of the programs that the command runs has the fault. */
  readonly program: string;
  readonly fault: Fault;
  /** By a shim and a server: a call may succeed in spite of a signal to one of them. */
  readonly isServed: boolean;
  /** Whether the fault is in a process of the server. */
  readonly isAttached: boolean;
  readonly run: RunProgram;
  log(): string;
}

export function runExperiment(experiment: Experiment): FaultOutcome {
  const { caller, scenario, log } = experiment;
  const prepared = prepareScenario(experiment);
  let output = "";
  try {
    const { ended, expected } = runWithFault(experiment, prepared.before);
    output = ended.stdout.trim() || ended.stderr.trim();
    const result = resultOf(experiment, ended);
    requireWellFormedAnswer(ended, result);
    requireAnswerMatchesState(experiment, ended.exitCode, expected);
    requireRecovery(caller, prepared);
    if (experimentCount++ % ADDRESS_CHECK_EVERY === 0 || log().includes("/networks/")) requireAllAddresses(scenario);
    return { result };
  } catch (error) {
    preparedScenario = undefined;
    return { ...failedOutcome(error), output };
  }
}

/** Without another container on the node, the state before the command is the same each time and read once. */
function prepareScenario({ caller, scenario }: Experiment): PreparedScenario {
  if (preparedScenario?.scenario !== scenario) {
    preparedScenario = undefined;
    scenario.prepare(caller);
    const before = scenario.snapshot();
    attachAndDetach(caller);
    preparedScenario = { scenario, before, afterDel: scenario.snapshotAfterDel() };
  }
  if (!scenario.hasResident) scenario.prepare(caller);
  return preparedScenario;
}

/** @returns also what was there before the program that the fault is for: a plugin of a chain undoes its own part only */
function runWithFault({ caller, scenario, program, run }: Experiment, before: readonly string[]) {
  const { verb, container } = scenario;
  if (verb !== "add") mustSucceed(caller, "add", TEST_CONTAINER);
  let expected = before;
  const isChain = caller.invocation.programs(FAULTS_NETWORK, verb).length > 1;
  const ended = callChain(caller, verb, container, (command) => {
    if (command.program === program && verb === "add" && isChain) expected = scenario.snapshot();
    return run(command);
  });
  return { ended, expected };
}

function resultOf(
  { scenario, fault, isServed, isAttached, log }: Experiment,
  { exitCode, signal, stdout }: ProcessResult,
): FaultOutcome["result"] {
  const { kind } = fault;
  if (!isSignal(kind)) {
    if (!log().includes("INJECTED")) return "not reached";
    return exitCode === 0 ? "succeeded" : "refused";
  }
  if (signal === `SIG${kind}`) return kind === "TERM" && isError(stdout) ? "refused" : "ended";
  const location = findFaultInTrace(log(), fault, isAttached);
  if (!location) return "not reached";
  if (isServed) return exitCode === 0 ? "succeeded" : kind === "KILL" ? "ended" : "refused";
  // An ADD that has printed its answer before SIGTERM has succeeded.
  if (kind === "TERM" && scenario.verb === "add" && exitCode === 0 && location.answered) return "succeeded";
  throw new Error(`It went on to its end, ${exitCode ?? signal}, in spite of SIG${kind}`);
}

const isError = (stdout: string): boolean => stdout !== "" && typeof JSON.parse(stdout).code === "number";

function requireWellFormedAnswer(
  { exitCode, signal, stdout, stderr, ms }: ProcessResult,
  result: FaultOutcome["result"],
): void {
  if (ms > SLOW_MS) throw new Error(`It took ${Math.round(ms)} ms`);
  if (result === "ended" || exitCode === 0 || (exitCode === 1 || signal === "SIGTERM") && isError(stdout)) return;
  throw new Error(`It ended with ${exitCode ?? signal}: ${stdout}${stderr}`);
}

function requireAnswerMatchesState(experiment: Experiment, exitCode: number | null, expected: readonly string[]): void {
  const { caller, scenario, fault: { kind } } = experiment;
  const [isAdd, isSuccess] = [scenario.verb === "add", exitCode === 0];
  if (isAdd && isSuccess) mustSucceed(caller, "check", TEST_CONTAINER);
  else if (isSuccess || isAdd && kind !== "KILL") requireSameState("It left", expected, scenario.snapshot());
}

function requireRecovery(caller: Caller, { scenario, before, afterDel }: PreparedScenario): void {
  mustSucceed(caller, "del", TEST_CONTAINER);
  requireSameState("After DEL", before, scenario.snapshot());
  attachAndDetach(caller);
  requireSameState("After ADD and DEL", afterDel, scenario.snapshotAfterDel());
}
