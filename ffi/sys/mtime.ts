/**
 * Which files came after a moment: whoever collects garbage by a list of the living has to spare what is younger than that list.
 *
 * @module
 */

/** This moment in nanoseconds since 1970, rounded up: what was written before must not look newer. */
export function nowCeil(): bigint {
  return BigInt(Date.now() + 1) * 1_000_000n;
}

/**
 * Tells of the time at which a file was changed, in nanoseconds since 1970, whether that was since `start`. A time that is still to come
 * says that the clock was set back, and nothing else.
 *
 * @param start in nanoseconds since 1970
 */
export function modifiedSince(start: bigint): (mtime: bigint) => boolean {
  return (mtime) => mtime >= start && mtime <= nowCeil();
}
