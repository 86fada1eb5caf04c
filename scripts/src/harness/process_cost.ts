/** What a process has cost so far. @module */
import { readFileSync, writeFileSync } from "node:fs";
import { privateBytes } from "../../../server/memory.ts";

/** The kernel counts processor time in hundredths of a second. */
const TICK_MS = 10;

/** The kernel keeps the peak of all memory since then. */
export const resetPeak = (pid: number): void => writeFileSync(`/proc/${pid}/clear_refs`, "5");

/** What is shared now was shared at the peak. */
export function peakPrivateBytes(pid: number): number {
  const kilobytes = (name: string) =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, "m").exec(readFileSync(`/proc/${pid}/status`, "latin1"))![1]);
  return (kilobytes("VmHWM") - kilobytes("VmRSS")) * 1024 + privateBytes(pid);
}

export const processorMsOf = (pid: number): number => ticksOf(pid, 11, 13);

/** Children count when they have ended. */
export const processorMsWithChildrenOf = (pid: number): number => ticksOf(pid, 11, 15);

/** Adds up fields of what the kernel says of a process, which it counts from the state on. */
function ticksOf(pid: number, first: number, end: number): number {
  const [, fields] = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ");
  return fields!.split(" ").slice(first, end).reduce((sum, ticks) => sum + Number(ticks), 0) * TICK_MS;
}
