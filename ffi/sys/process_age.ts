import { bootTime } from "./boot_clock.ts";
import { readText } from "./file.ts";

// The kernel's unit for process starts.
const TICK_NS = 10_000_000n;

/** @see proc_pid_stat(5) */
export interface ProcessStat {
  readonly pid: number;
  readonly state: string;
  /** When it started, in ticks since the boot. */
  readonly startTicks: number;
}

/** @param pid `self` for this process, whose number is that of the mounted /proc */
export function readProcessStat(pid: number | "self"): ProcessStat {
  const stat = readText(`/proc/${pid}/stat`);
  // Field 2, the name, may hold anything; field 22 is the start since boot.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return { pid: parseInt(stat), state: fields[0]!, startTicks: Number(fields[19]) };
}

/** In nanoseconds, at most 10 ms too little. */
export function processAge(pid: number): bigint {
  return bootTime() - BigInt(readProcessStat(pid).startTicks + 1) * TICK_NS;
}
