import { readText } from "./file.ts";
import { sys } from "./libc.ts";

const SYS_clock_gettime = process.arch === "arm64" ? 113 : 228;
const CLOCK_BOOTTIME = 7;
/** The kernel's unit for process starts. */
const TICK_NS = 10_000_000n;

/** In nanoseconds, at most 10 ms too little. @see proc_pid_stat(5) */
export function processAge(pid: number): bigint {
  const stat = readText(`/proc/${pid}/stat`);
  // Field 2, the name, may hold anything; field 22 is the start since boot.
  const ticks = BigInt(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]!);
  const [seconds, nanoseconds] = [0, 1];
  const now = new BigInt64Array(2);
  sys.syscall(SYS_clock_gettime, CLOCK_BOOTTIME, new Uint8Array(now.buffer), 0, 0);
  return now[seconds]! * 1_000_000_000n + now[nanoseconds]! - (ticks + 1n) * TICK_NS;
}
