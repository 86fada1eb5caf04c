/** In the order of UTF-8 bytes, as in libcni; `sort()` goes by UTF-16. */
export function sortedByBytes(names: readonly string[]): string[] {
  return names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}
