import { bootTime } from "./boot_clock.ts";
import { readText } from "./file.ts";

// The kernel's unit for process starts.
const TICK_NS = 10_000_000n;

/** In nanoseconds, at most 10 ms too little. @see proc_pid_stat(5) */
export function processAge(pid: number): bigint {
  const stat = readText(`/proc/${pid}/stat`);
  // Field 2, the name, may hold anything; field 22 is the start since boot.
  const ticks = BigInt(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]!);
  return bootTime() - (ticks + 1n) * TICK_NS;
}
