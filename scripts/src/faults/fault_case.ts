/** Faults that can be tried, and what came of each. @module */
import type { TrialReport } from "../harness/campaign.ts";
import { newRandomSource } from "../harness/random.ts";
import type { Fault } from "./fault.ts";
import { sampleByKind } from "./plan.ts";

/** How a command ended: by a signal, well in spite of the error, or with an error; or it did not make that system call. */
type FaultResult = "ended" | "succeeded" | "refused" | "not reached" | "FAILED";

export interface FaultOutcome extends Pick<TrialReport, "problem" | "output"> {
  readonly result: FaultResult;
}

export const failedOutcome = (error: unknown): FaultOutcome => ({
  result: "FAILED",
  problem: error instanceof Error ? error.message : String(error),
});

export interface FaultCase {
  /** `run add sendto#12 ENOBUFS` */
  readonly name: string;
  readonly kind: string;
  run(): FaultOutcome | Promise<FaultOutcome>;
}

export type FaultReport = FaultOutcome & Omit<FaultCase, "run">;

export const casesOfFaults = (
  faults: readonly Fault[],
  prefix: string,
  run: (fault: Fault) => FaultOutcome | Promise<FaultOutcome>,
): readonly FaultCase[] =>
  faults.map((fault) => ({
    name: `${prefix}${fault.syscall}#${fault.occurrence} ${fault.kind}`,
    kind: fault.kind,
    run: () => run(fault),
  }));

export interface FaultSelection {
  /** So many, chosen at random by this seed, whose names have all words. */
  readonly sample: number;
  readonly seed: number;
  readonly words: readonly string[];
}

/** @param prepare is called before each */
export async function* tryCases(
  cases: readonly FaultCase[],
  { sample, seed, words }: FaultSelection,
  prepare: () => Promise<void>,
): AsyncGenerator<FaultReport> {
  const chosen = cases.filter(({ name }) => words.every((word) => matchesWord(name, word)));
  for (const { name, kind, run } of sampleByKind(chosen, sample, newRandomSource(seed))) {
    await prepare();
    yield { name, kind, ...await run() };
  }
}

/** `sendto` matches all faults of the call, `sendto#12` those of one. */
const matchesWord = (name: string, word: string): boolean => [...name.split(" "), ...name.split(/[ #]/)].includes(word);
