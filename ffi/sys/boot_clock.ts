import { sys } from "./libc.ts";

const SYS_clock_gettime = process.arch === "arm64" ? 113 : 228;
export const CLOCK_BOOTTIME = 7;

/** Nanoseconds since the boot. Runs during suspension, and nobody sets it. @see clock_gettime(2) */
export function bootTime(): bigint {
  // struct timespec { time_t tv_sec; long tv_nsec; }
  const now = new BigInt64Array(2);
  sys.syscall(SYS_clock_gettime, CLOCK_BOOTTIME, new Uint8Array(now.buffer), 0, 0);
  return now[0]! * 1_000_000_000n + now[1]!;
}

/** Whole milliseconds since the boot. */
export const bootTimeMs = (): number => Number(bootTime() / 1_000_000n);
