import { uniformFloat64 } from "pure-rand/distribution/uniformFloat64";
import { xoroshiro128plus } from "pure-rand/generator/xoroshiro128plus";

export type RandomSource = ReturnType<typeof newRandomSource>;

export function newRandomSource(seed: number) {
  const generator = xoroshiro128plus(seed);
  const next = () => uniformFloat64(generator);
  return {
    next,
    pick: <T>(values: readonly T[]): T => values[Math.floor(next() * values.length)]!,
    pickWeighted<T>(weighted: readonly (readonly [weight: number, value: T])[]): T {
      let remaining = next() * weighted.reduce((sum, [weight]) => sum + weight, 0);
      return (weighted.find(([weight]) => (remaining -= weight) < 0) ?? weighted.at(-1)!)[1];
    },
    shuffle: <T>(values: readonly T[]): readonly T[] =>
      values.map((value) => ({ value, order: next() })).sort((a, b) => a.order - b.order).map(({ value }) => value),
  };
}
