/** Has one thing go wrong and looks whether the node gets over it. @module */
import { type Fault, isSignal } from "./fault.ts";
import type { Ended } from "../harness/node.ts";
import { must, type Situation, SUBJECT } from "./scenario.ts";
import { requireSame } from "../harness/node_state.ts";
import { findPlace } from "./plan.ts";
import { type Command, reserve, type Way } from "./invocation.ts";

/** How it went. */
export interface Outcome {
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
export interface Tried extends Outcome {
  /** `run add sendto#12 ENOBUFS` */
  readonly name: string;
  readonly kind: string;
}

/** One thing that can go wrong. */
export interface Trial {
  readonly name: string;
  readonly kind: string;
  attempt(): Outcome;
}

const LONG_MS = 10_000;

/** So often it is tried whether all addresses can be had, besides where the fault was one of their files. */
const EVERY = 4;

/** What there is before a command, and what after an ADD and a DEL that nothing interrupted. */
interface Prepared {
  readonly situation: Situation;
  readonly before: readonly string[];
  readonly rest: readonly string[];
}

/** Prepared by an earlier fault that left it as it was. */
let prepared: Prepared | undefined;

let count = 0;

/** What is tried, and on what. */
export interface Experiment {
  readonly way: Way;
  readonly situation: Situation;
  /** Which of the programs that the command runs. */
  readonly part: string;
  readonly fault: Fault;
  /** Runs that program with the fault. */
  run(command: Command): Ended;
  /** What strace(1) wrote of it. */
  log(): string;
}

/** Has a command go wrong at one place. */
export function judge(experiment: Experiment): Outcome {
  const { situation, log } = experiment;
  const { before, rest } = prepare(experiment);
  let said = "";
  try {
    const { ended, kept } = suffer(experiment, before);
    said = ended.stdout.trim() || ended.stderr.trim();
    const result = resultOf(experiment, ended);
    requireSense(ended, result);
    requireTruth(experiment, ended, kept);
    recover(experiment, before, rest);
    if (count++ % EVERY === 0 || log().includes("/networks/")) requireAllAddresses(situation);
    return { result, ...(result === "refused" && { said }) };
  } catch (error) {
    prepared = undefined;
    return { result: "FAILED", problem: error instanceof Error ? error.message : String(error), said };
  }
}

/** Makes it so, once where nobody else lives on the node: there it is the same each time. */
function prepare({ way, situation }: Experiment): Prepared {
  if (prepared?.situation !== situation) {
    prepared = undefined;
    situation.prepare(way);
    const before = situation.look();
    must(way, "add", SUBJECT);
    must(way, "del", SUBJECT);
    prepared = { situation, before, rest: situation.lookAtRest() };
  }
  if (!situation.inhabited) situation.prepare(way);
  return prepared;
}

/** @returns also what was there before the program that the fault is for: a plugin of a chain undoes its own part only */
function suffer({ way, situation, part, run }: Experiment, before: readonly string[]) {
  const { verb, subject } = situation;
  if (verb !== "add") must(way, "add", SUBJECT);
  let kept = before;
  const looked = (command: Command) => {
    if (verb === "add" && way.parts(verb).length > 1) kept = situation.look();
    return run(command);
  };
  return { ended: way.call(verb, subject, { part, run: looked }), kept };
}

function resultOf({ situation, fault, log }: Experiment, { exitCode, signal, stdout }: Ended): Outcome["result"] {
  const { kind } = fault;
  if (isSignal(kind)) {
    if (signal === `SIG${kind}`) return kind === "TERM" && isError(stdout) ? "refused" : "ended";
    const place = findPlace(log(), fault);
    if (!place) return "not reached";
    // Asked to end when all was done and said, an ADD has succeeded.
    if (kind === "TERM" && situation.verb === "add" && exitCode === 0 && place.answered) return "succeeded";
    throw new Error(`It went on to its end, ${exitCode ?? signal}, in spite of SIG${kind}`);
  }
  if (!log().includes("INJECTED")) return "not reached";
  return exitCode === 0 ? "succeeded" : "refused";
}

const isError = (stdout: string): boolean => stdout !== "" && typeof JSON.parse(stdout).code === "number";

/** An answer in the words of the specification, in good time. */
function requireSense({ exitCode, signal, stdout, stderr, ms }: Ended, result: string): void {
  if (ms > LONG_MS) throw new Error(`It took ${Math.round(ms)} ms`);
  if (result === "ended" || exitCode === 0 || (exitCode === 1 || signal === "SIGTERM") && isError(stdout)) return;
  throw new Error(`It ended with ${exitCode ?? signal}: ${stdout}${stderr}`);
}

/** What a command says is so: with success, that it did its work; with an error, for ADD, that nothing is left. */
function requireTruth(
  { way, situation, fault: { kind } }: Experiment,
  { exitCode }: Ended,
  kept: readonly string[],
): void {
  const isAdd = situation.verb === "add";
  if (exitCode === 0 ? isAdd : kind === "KILL") {
    if (exitCode === 0) must(way, "check", SUBJECT);
    return;
  }
  if (isAdd || exitCode === 0) requireSame("It left", kept, situation.look());
}

/** A DEL removes everything, and a new ADD and its DEL work as if nothing had been. */
function recover({ way, situation }: Experiment, before: readonly string[], rest: readonly string[]): void {
  must(way, "del", SUBJECT);
  requireSame("After DEL", before, situation.look());
  must(way, "add", SUBJECT);
  must(way, "check", SUBJECT);
  must(way, "del", SUBJECT);
  requireSame("After ADD and DEL", rest, situation.lookAtRest());
}

/** No address is lost, and none is given twice: all that are free can be had. */
function requireAllAddresses({ free }: Situation): void {
  const ids = Array.from({ length: free }, (_, index) => `filler${index}`);
  const given = ids.flatMap((id) => reserve("ADD", id));
  for (const id of ids) reserve("DEL", id);
  if (new Set(given).size !== 2 * free) throw new Error(`Given were ${given.join(" ")}`);
}
