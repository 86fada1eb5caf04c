/** The value that `fraction` of the values do not exceed. NaN of none. */
export function percentile(values: readonly number[], fraction: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * fraction))] ?? NaN;
}

/** The middle one; of an even number, the larger of the two. */
export const median = (values: readonly number[]): number => percentile(values, 0.5);
