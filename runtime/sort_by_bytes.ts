/**
 * The order in which files are taken: that of the bytes of their names, in which the reference has it.
 *
 * @module
 */

/** Text by its bytes in UTF-8. `sort()` alone goes by UTF-16, where what is above U+FFFF comes before U+E000. */
export function sortedByBytes(names: readonly string[]): string[] {
  return [...names].sort(compareByBytes);
}

function compareByBytes(a: string, b: string): number {
  const [left, right] = [[...a], [...b]];
  for (let i = 0; i < left.length && i < right.length; i++) {
    // Code points are in the order of their bytes.
    if (left[i] !== right[i]) return left[i]!.codePointAt(0)! - right[i]!.codePointAt(0)!;
  }
  return left.length - right.length;
}
