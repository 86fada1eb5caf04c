/** In the order of the bytes in UTF-8, which is the reference's; `sort()` goes by UTF-16. */
export function sortedByBytes(names: readonly string[]): string[] {
  return names.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
}
