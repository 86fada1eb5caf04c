/** Has one thing go wrong and looks whether the node gets over it. @module */
import { isSignal, type Kind } from "./fault.ts";
import type { Ended } from "./node.ts";
import { must, type Situation, SUBJECT } from "./situation.ts";
import { requireSame } from "./traces.ts";
import { type Command, FREE_ADDRESSES, reserve, type Way } from "./way.ts";

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

/** Prepared by an earlier fault that left it as it was. */
let prepared: { readonly situation: Situation; readonly before: readonly string[] } | undefined;

/** What is tried, and on what. */
export interface Experiment {
  readonly way: Way;
  readonly situation: Situation;
  /** Which of the programs that the command runs. */
  readonly part: string;
  readonly kind: Kind;
  /** Runs that program with the fault. */
  run(command: Command): Ended;
  /** What strace(1) wrote of it. */
  log(): string;
}

/** Has a command go wrong at one place. */
export function judge(experiment: Experiment): Outcome {
  const { way, situation, log } = experiment;
  const before = prepare(experiment);
  let said = "";
  try {
    const { ended, kept } = suffer(experiment, before);
    said = ended.stdout.trim() || ended.stderr.trim();
    const result = resultOf(experiment, ended);
    requireSense(ended, result);
    requireTruth(experiment, ended, kept);
    recover(way, situation, before);
    if (situation.inhabited && log().includes("/networks/")) requireAllAddresses();
    return { result, ...(result === "refused" && { said }) };
  } catch (error) {
    prepared = undefined;
    return { result: "FAILED", problem: error instanceof Error ? error.message : String(error), said };
  }
}

/** @returns what is there */
function prepare({ way, situation }: Experiment): readonly string[] {
  if (prepared?.situation !== situation || !situation.inhabited) {
    prepared = undefined;
    situation.prepare(way);
    prepared = { situation, before: situation.look() };
  }
  return prepared.before;
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

function resultOf({ situation, kind, log }: Experiment, { exitCode, signal, stdout }: Ended): Outcome["result"] {
  if (isSignal(kind)) {
    // Asked to end when all was done and said, an ADD has succeeded.
    if (kind === "TERM" && situation.verb === "add" && exitCode === 0) return "succeeded";
    if (signal !== `SIG${kind}`) return "not reached";
    return kind === "TERM" && isError(stdout) ? "refused" : "ended";
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
  { way, situation, kind }: Experiment,
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
function recover(way: Way, situation: Situation, before: readonly string[]): void {
  must(way, "del", SUBJECT);
  requireSame("After DEL", before, situation.look());
  must(way, "add", SUBJECT);
  must(way, "check", SUBJECT);
  must(way, "del", SUBJECT);
  requireSame("After ADD and DEL", before, situation.look());
}

/** No address is lost, and none is given twice: all that are free can be had. */
function requireAllAddresses(): void {
  const ids = Array.from({ length: FREE_ADDRESSES }, (_, index) => `filler${index}`);
  const given = ids.flatMap((id) => reserve("ADD", id));
  for (const id of ids) reserve("DEL", id);
  if (new Set(given).size !== 2 * FREE_ADDRESSES) throw new Error(`Given were ${given.join(" ")}`);
}
