/** Now, in nanoseconds since 1970, rounded up so that older files do not look newer. */
export function nowCeil(): bigint {
  return BigInt(Date.now() + 1) * 1_000_000n;
}

/**
 * Returns a test whether a file's mtime lies between `start` (nanoseconds since 1970) and now. Later times only show that the
 * clock was set back.
 */
export function modifiedSince(start: bigint): (mtime: bigint) => boolean {
  return (mtime) => mtime >= start && mtime <= nowCeil();
}
