/** Random choices that a seed determines. @module */
import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

/** Choices that are the same for the same seed. */
export interface RandomSource {
  /** At least 0, less than 1. */
  next(): number;
  /** True so often: 0.1 for one time out of ten. */
  chance(probability: number): boolean;
  /** One of several. */
  pick<T>(values: readonly T[]): T;
  /** One of several, as often as its weight says. */
  pickWeighted<T>(weighted: readonly (readonly [weight: number, value: T])[]): T;
  /** All of them in another order. */
  shuffle<T>(values: readonly T[]): readonly T[];
}

/** A new source. */
export function newRandomSource(seed: number): RandomSource {
  const generator = xoroshiro128plus(seed);
  const next = () => uniformFloat64(generator);
  return {
    next,
    chance: (probability) => next() < probability,
    pick: (values) => values[Math.floor(next() * values.length)],
    pickWeighted(weighted) {
      let remaining = next() * weighted.reduce((sum, [weight]) => sum + weight, 0);
      return (weighted.find(([weight]) => (remaining -= weight) < 0) ?? weighted.at(-1)!)[1];
    },
    shuffle: (values) =>
      values.map((value) => ({ value, order: next() })).sort((a, b) => a.order - b.order).map(({ value }) => value),
  };
}
