/** Has one thing go wrong and looks whether the node gets over it. @module */
import { type Fault, isSignal } from "./fault.ts";
import type { ProgramEnd } from "../harness/node.ts";
import { mustSucceed, type Scenario, TEST_CONTAINER } from "./scenario.ts";
import { requireSameState } from "../harness/node_state.ts";
import { findFaultInTrace } from "./plan.ts";
import { type FaultCommand, type Invocation, reserveAddresses } from "./invocation.ts";

/** How it went. */
export interface FaultOutcome {
  readonly result:
    /** A signal ended the process there, and what it left was removed. */
    | "ended"
    /** The command succeeded in spite of the error. */
    | "succeeded"
    /** The command failed and said so. */
    | "refused"
    /** The command did not come by there. */
    | "not reached"
    | "FAILED";
  /** What was wrong. */
  readonly problem?: string;
  /** What the command said of the error. */
  readonly said?: string;
}

/** A fault that was tried. */
export interface FaultReport extends FaultOutcome {
  /** `run add sendto#12 ENOBUFS` */
  readonly name: string;
  readonly kind: string;
}

/** One thing that can go wrong. */
export interface FaultCase {
  readonly name: string;
  readonly kind: string;
  run(): FaultOutcome;
}

const SLOW_MS = 10_000;

/** So often it is tried whether all addresses can be had, besides where the fault was one of their files. */
const ADDRESS_CHECK_EVERY = 4;

/** What there is before a command, and what after an ADD and a DEL that nothing interrupted. */
interface PreparedScenario {
  readonly scenario: Scenario;
  readonly before: readonly string[];
  readonly afterDel: readonly string[];
}

/** Prepared by an earlier fault that left it as it was. */
let preparedScenario: PreparedScenario | undefined;

let experimentCount = 0;

/** What is tried, and on what. */
export interface Experiment {
  readonly invocation: Invocation;
  readonly scenario: Scenario;
  /** Which of the programs that the command runs. */
  readonly program: string;
  readonly fault: Fault;
  /** Runs that program with the fault. */
  run(command: FaultCommand): ProgramEnd;
  /** What strace(1) wrote of it. */
  log(): string;
}

/** Has a command go wrong at one place. */
export function runExperiment(experiment: Experiment): FaultOutcome {
  const { scenario, log } = experiment;
  const { before, afterDel } = prepareScenario(experiment);
  let output = "";
  try {
    const { ended: programEnd, kept: expected } = runWithFault(experiment, before);
    output = programEnd.stdout.trim() || programEnd.stderr.trim();
    const result = resultOf(experiment, programEnd);
    requireWellFormedAnswer(programEnd, result);
    requireAnswerMatchesState(experiment, programEnd, expected);
    requireRecovery(experiment, before, afterDel);
    if (experimentCount++ % ADDRESS_CHECK_EVERY === 0 || log().includes("/networks/")) requireAllAddresses(scenario);
    return { result, ...(result === "refused" && { said: output }) };
  } catch (error) {
    preparedScenario = undefined;
    return { result: "FAILED", problem: error instanceof Error ? error.message : String(error), said: output };
  }
}

/** Makes it so, once where nobody else lives on the node: there it is the same each time. */
function prepareScenario({ invocation, scenario }: Experiment): PreparedScenario {
  if (preparedScenario?.scenario !== scenario) {
    preparedScenario = undefined;
    scenario.prepare(invocation);
    const before = scenario.snapshot();
    mustSucceed(invocation, "add", TEST_CONTAINER);
    mustSucceed(invocation, "del", TEST_CONTAINER);
    preparedScenario = { scenario, before, afterDel: scenario.snapshotAfterDel() };
  }
  if (!scenario.hasResident) scenario.prepare(invocation);
  return preparedScenario;
}

/** @returns also what was there before the program that the fault is for: a plugin of a chain undoes its own part only */
function runWithFault({ invocation, scenario, program, run }: Experiment, before: readonly string[]) {
  const { verb, container } = scenario;
  if (verb !== "add") mustSucceed(invocation, "add", TEST_CONTAINER);
  let expected = before;
  const runAfterSnapshot = (command: FaultCommand) => {
    if (verb === "add" && invocation.programs(verb).length > 1) expected = scenario.snapshot();
    return run(command);
  };
  return { ended: invocation.call(verb, container, { part: program, run: runAfterSnapshot }), kept: expected };
}

function resultOf(
  { scenario, fault, log }: Experiment,
  { exitCode, signal, stdout }: ProgramEnd,
): FaultOutcome["result"] {
  const { kind } = fault;
  if (isSignal(kind)) {
    if (signal === `SIG${kind}`) return kind === "TERM" && isError(stdout) ? "refused" : "ended";
    const location = findFaultInTrace(log(), fault);
    if (!location) return "not reached";
    // Asked to end when all was done and said, an ADD has succeeded.
    if (kind === "TERM" && scenario.verb === "add" && exitCode === 0 && location.answered) return "succeeded";
    throw new Error(`It went on to its end, ${exitCode ?? signal}, in spite of SIG${kind}`);
  }
  if (!log().includes("INJECTED")) return "not reached";
  return exitCode === 0 ? "succeeded" : "refused";
}

const isError = (stdout: string): boolean => stdout !== "" && typeof JSON.parse(stdout).code === "number";

/** An answer in the words of the specification, in good time. */
function requireWellFormedAnswer({ exitCode, signal, stdout, stderr, ms }: ProgramEnd, result: string): void {
  if (ms > SLOW_MS) throw new Error(`It took ${Math.round(ms)} ms`);
  if (result === "ended" || exitCode === 0 || (exitCode === 1 || signal === "SIGTERM") && isError(stdout)) return;
  throw new Error(`It ended with ${exitCode ?? signal}: ${stdout}${stderr}`);
}

/** What a command says is so: with success, that it did its work; with an error, for ADD, that nothing is left. */
function requireAnswerMatchesState(
  { invocation, scenario, fault: { kind } }: Experiment,
  { exitCode }: ProgramEnd,
  expected: readonly string[],
): void {
  const isAdd = scenario.verb === "add";
  if (exitCode === 0 ? isAdd : kind === "KILL") {
    if (exitCode === 0) mustSucceed(invocation, "check", TEST_CONTAINER);
    return;
  }
  if (isAdd || exitCode === 0) requireSameState("It left", expected, scenario.snapshot());
}

/** A DEL removes everything, and a new ADD and its DEL work as if nothing had been. */
function requireRecovery(
  { invocation, scenario }: Experiment,
  before: readonly string[],
  afterDel: readonly string[],
): void {
  mustSucceed(invocation, "del", TEST_CONTAINER);
  requireSameState("After DEL", before, scenario.snapshot());
  mustSucceed(invocation, "add", TEST_CONTAINER);
  mustSucceed(invocation, "check", TEST_CONTAINER);
  mustSucceed(invocation, "del", TEST_CONTAINER);
  requireSameState("After ADD and DEL", afterDel, scenario.snapshotAfterDel());
}

/** No address is lost, and none is given twice: all that are free can be had. */
function requireAllAddresses({ freeAddresses }: Scenario): void {
  const ids = Array.from({ length: freeAddresses }, (_, index) => `filler${index}`);
  const addresses = ids.flatMap((id) => reserveAddresses("ADD", id));
  for (const id of ids) reserveAddresses("DEL", id);
  if (new Set(addresses).size !== 2 * freeAddresses) throw new Error(`Given were ${addresses.join(" ")}`);
}
