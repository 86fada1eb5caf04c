/** In nanoseconds since 1970, rounded up: older files must not look newer. */
export function nowCeil(): bigint {
  return BigInt(Date.now() + 1) * 1_000_000n;
}

/** `start` in nanoseconds since 1970. Later times than now come from a clock that was set back. */
export function modifiedSince(start: bigint): (mtime: bigint) => boolean {
  return (mtime) => mtime >= start && mtime <= nowCeil();
}
