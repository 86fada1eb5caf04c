/**
 * Since when a process runs.
 *
 * @see proc_pid_stat(5), clock_gettime(2)
 * @module
 */
import { readText } from "./file.ts";
import { sys } from "./libc.ts";

const SYS_clock_gettime = process.arch === "arm64" ? 113 : 228;
const CLOCK_BOOTTIME = 7;
/** What the kernel counts the starts of processes in. */
const TICK_NS = 10_000_000n;

/**
 * When this process was started, in nanoseconds since 1970, or up to a hundredth of a second later: whatever its caller did before, such
 * as making the list that is in its arguments, was done by then, and nothing that it began after that has ended.
 *
 * @throws {SystemError}
 */
export function processStartTime(): bigint {
  const age = processAge("self");
  return BigInt(Date.now()) * 1_000_000n - age;
}

/** Since when the process of this number runs, in nanoseconds, or up to a hundredth of a second less. @throws {SystemError} */
export function processAge(pid: number | "self"): bigint {
  const stat = readText(`/proc/${pid}/stat`);
  // The second field, the name, may hold anything; the start, since the kernel's own, is the 22nd.
  const ticks = BigInt(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]!);
  const [seconds, nanoseconds] = [0, 1];
  const now = new BigInt64Array(2);
  sys.syscall(SYS_clock_gettime, CLOCK_BOOTTIME, new Uint8Array(now.buffer), 0, 0);
  return now[seconds]! * 1_000_000_000n + now[nanoseconds]! - (ticks + 1n) * TICK_NS;
}
