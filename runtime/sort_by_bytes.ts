/** Sorts by UTF-8 bytes, as libcni does; `sort()` goes by UTF-16. */
export function sortedByBytes(names: readonly string[]): string[] {
  return names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}
