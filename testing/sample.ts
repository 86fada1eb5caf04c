/** `scripts/test` without words runs a third of long tables of cases; `scripts/test --all` and `scripts/test PART` all of them. @module */

/** Every which case of a long table is run. */
export const SAMPLE_VARIABLE = "CNI_TEST_SAMPLE";

export function sampleOf<T>(cases: readonly T[]): readonly T[] {
  const step = Number(process.env[SAMPLE_VARIABLE] ?? 1);
  return cases.filter((_, at) => at % step === 0);
}
