/** Random numbers that a seed determines. @module */

/** Choices that are the same for the same seed. */
export interface Prng {
  /** At least 0, less than 1. */
  next(): number;
  /** True so often: 0.1 for one time out of ten. */
  chance(share: number): boolean;
  /** One of several, as often as its weight says. */
  pick<T>(weighted: readonly (readonly [weight: number, value: T])[]): T;
}

/** mulberry32: 32 bits of state, good enough to choose what to do next. */
export function newPrng(seed: number): Prng {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  return {
    next,
    chance: (share) => next() < share,
    pick(weighted) {
      const sum = weighted.reduce((all, [weight]) => all + weight, 0);
      let remaining = next() * sum;
      for (const [weight, value] of weighted) {
        remaining -= weight;
        if (remaining < 0) return value;
      }
      return weighted.at(-1)![1];
    },
  };
}
