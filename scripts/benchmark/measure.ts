/**
 * Measuring sides against each other: each round runs every side once, in turn, so that a machine whose speed drifts slows all of them.
 *
 * @module
 */

/** One measured value in one round; several are given where one call yields several. */
export type Measurement = number | Readonly<Record<string, number>>;
/** The values of each side, in the order of the rounds. A side `run` that gives `{ add, del }` is found as `run.add` and `run.del`. */
export type Samples = Readonly<Record<string, readonly number[]>>;

/** How often a side is run before its values count. */
const WARM_UP = 3;
/** How long a row may take, so that the whole remains a matter of minutes; some rounds are made always. */
const PATIENCE_MS = 30_000;
const ALWAYS = 3;

/** Runs all sides in turn, `rounds` times and a few times before. `round` counts from 0, those before included. */
export function interleave(
  rounds: number,
  sides: Readonly<Record<string, (round: number) => Measurement>>,
  warmUp: number = WARM_UP,
): Samples {
  const samples: Record<string, number[]> = {};
  const began = performance.now();
  for (let round = 0; round < rounds + warmUp; round++) {
    if (round >= warmUp + ALWAYS && performance.now() - began > PATIENCE_MS) break;
    for (const [name, side] of Object.entries(sides)) {
      const measured = side(round);
      if (round < warmUp) continue;
      const values = typeof measured === "number" ? { [name]: measured } : named(name, measured);
      for (const [key, value] of Object.entries(values)) (samples[key] ??= []).push(value);
    }
  }
  return samples;
}

function named(name: string, values: Readonly<Record<string, number>>): Readonly<Record<string, number>> {
  return Object.fromEntries(Object.entries(values).map(([key, value]) => [`${name}.${key}`, value]));
}

/** The value that `fraction` of the values do not exceed. NaN of none. */
export function percentile(values: readonly number[], fraction: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))] ?? NaN;
}

export const median = (values: readonly number[]): number => percentile(values, 0.5);

/** Lets the kernel finish what it does behind our back, such as taking down the namespaces of the row before. */
export function settle(ms = 300): void {
  Bun.sleepSync(ms);
}
