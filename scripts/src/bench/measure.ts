/**
 * Measuring sides against each other: each round runs every side once, in turn, so that a machine whose speed drifts slows all of them.
 *
 * @module
 */
import { readdirSync, readFileSync } from "node:fs";

/** One measured value in one round; several are given where one call yields several. */
export type Measurement = number | Readonly<Record<string, number>>;
/** The values of each side, in the order of the rounds. A side `run` that gives `{ add, del }` is found as `run.add` and `run.del`. */
export type Samples = Readonly<Record<string, readonly number[]>>;

/** How to interleave. */
export interface InterleaveOptions {
  /** How often a side is run before its values count; default: 3. */
  readonly warmUp?: number;
  /** How many rounds are made however long they take; default: 3. */
  readonly minimumRounds?: number;
}

/** How long a row may take before it ends early, so that the whole remains a matter of minutes. */
const ROW_TIME_LIMIT_MS = 25_000;

/** Runs all sides in turn, `rounds` times and a few times before. `round` counts from 0, those before included. */
export function interleave(
  rounds: number,
  sides: Readonly<Record<string, (round: number) => Measurement>>,
  { warmUp = 3, minimumRounds = 3 }: InterleaveOptions = {},
): Samples {
  const samples: Record<string, number[]> = {};
  const began = performance.now();
  for (let round = 0; round < rounds + warmUp; round++) {
    if (round >= warmUp + minimumRounds && performance.now() - began > ROW_TIME_LIMIT_MS) break;
    for (const [name, side] of Object.entries(sides)) {
      const measured = side(round);
      if (round < warmUp) continue;
      const values = typeof measured === "number" ? { [name]: measured } : withPrefix(name, measured);
      for (const [key, value] of Object.entries(values)) (samples[key] ??= []).push(value);
    }
  }
  return samples;
}

function withPrefix(name: string, values: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [`${name}.${key}`, value]));
}

/** Waits until the kernel has taken down the namespaces of the row before, which can take seconds. */
export function awaitNamespaceCleanup(): void {
  for (let quiet = 0, waited = 0; quiet < 4 && waited < 600; waited++) {
    Bun.sleepSync(50);
    quiet = isCleaningUpNamespaces() ? 0 : quiet + 1;
  }
}

/** Whether a thread of the kernel does so: `kworker/u8:4+netns`. */
function isCleaningUpNamespaces(): boolean {
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).some((pid) => {
    try {
      return readFileSync(`/proc/${pid}/comm`, "latin1").endsWith("+netns\n");
    } catch {
      return false;
    }
  });
}
