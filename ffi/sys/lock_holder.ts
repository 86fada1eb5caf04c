/**
 * Who holds a lock, for the error of somebody who waited in vain.
 *
 * @see proc_locks(5)
 * @module
 */
import { findNames } from "./directory.ts";
import { unlessFailed } from "./error.ts";
import { readText } from "./file.ts";
import { ageOf } from "./start_time.ts";

/** So many are named. */
const MOST_NAMED = 3;

/** The holders of a BSD lock. */
export interface Holders {
  /** For a sentence: `process 4711 ("cni run add")`. */
  readonly holder: string;
  /** What can be done, as a sentence. */
  readonly advice: string;
}

/** Finds those that hold the lock of the file of this {@linkcode FileStatus.identity}. Processes of other PID namespaces are not to be seen. */
export function describeHolders(identity: string): Holders {
  const pids = holdersOf(identity);
  if (pids.length === 0) {
    return {
      holder: "a process that /proc/locks does not show",
      advice: "it may be in another PID namespace, or may have ended meanwhile: try again",
    };
  }
  const stopped = pids.filter(isStopped);
  const names = pids.slice(0, MOST_NAMED).map((pid) => describe(pid, stopped.includes(pid)));
  const others = pids.length > MOST_NAMED ? ` and ${pids.length - MOST_NAMED} more` : "";
  return {
    holder: `${names.join(", ")}${others}`,
    advice: stopped.length > 0
      ? `let it go on (kill -CONT ${stopped.join(" ")}) or end it (kill -KILL ${stopped.join(" ")})`
      : `wait for it, or end it if it hangs (kill ${pids.slice(0, MOST_NAMED).join(" ")})`,
  };
}

/**
 * True if whoever took the lock has ended, and those that have it of him, having been started by him meanwhile, all run for longer than
 * `ms`: what he started to work for him has ended by then, and they are what that left running.
 */
export function isLeft(identity: string, ms: number): boolean {
  if (takersOf(identity).length > 0) return false;
  const ages = heirsOf(identity).map((pid) => unlessFailed(() => ageOf(pid)));
  return ages.length > 0 && ages.every((age) => age === undefined || age > BigInt(ms) * 1_000_000n);
}

function holdersOf(identity: string): number[] {
  const takers = takersOf(identity);
  // Who inherited the file has the lock as well, also when the one that took it has ended.
  return takers.length > 0 ? takers : heirsOf(identity);
}

/** Those that took the lock, as far as they live. */
function takersOf(identity: string): number[] {
  const pids = new Set(locksOf(textOf("/proc/locks").split("\n").flatMap(parseLock), identity).map(({ pid }) => pid));
  return [...pids].filter((pid) => pid > 0 && textOf(`/proc/${pid}/stat`) !== "");
}

/** Those that have a file open by which the lock is held. @see proc_pid_fdinfo(5) */
function heirsOf(identity: string): number[] {
  const all = namesIn("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) =>
    namesIn(`/proc/${pid}/fdinfo`).flatMap((fd) => textOf(`/proc/${pid}/fdinfo/${fd}`).match(/(?<=^lock:).*/gm) ?? [])
      .flatMap(parseLock).map((lock): Lock => ({ ...lock, pid: Number(pid) }))
  );
  return [...new Set(locksOf(all, identity).map(({ pid }) => pid))];
}

interface Lock {
  /** Who took it, 0 if he is not to be seen; or who has it open. */
  readonly pid: number;
  /** `fe:00:264194` */
  readonly file: string;
}

/** A line of /proc/locks: `1: FLOCK  ADVISORY  WRITE 4711 fe:00:264194 0 EOF`; those who wait have `->` in the second place. */
function parseLock(line: string): Lock[] {
  const [, kind, , , pid, file = ""] = line.trim().split(/\s+/);
  return kind === "FLOCK" ? [{ pid: Number(pid), file }] : [];
}

/** The locks of a file. */
function locksOf(all: readonly Lock[], identity: string): readonly Lock[] {
  const [device, inode] = identity.split(":").map(BigInt) as [bigint, bigint];
  const ofInode = all.filter(({ file }) => file.split(":")[2] === String(inode));
  // Some file systems tell programs of another device.
  const ofDevice = ofInode.filter(({ file }) => file.startsWith(`${formatDevice(device)}:`));
  return ofDevice.length > 0 ? ofDevice : ofInode;
}

/** `fe:00`. @see sys/sysmacros.h */
function formatDevice(device: bigint): string {
  const major = (device >> 8n & 0xfffn) | (device >> 32n & ~0xfffn);
  const minor = (device & 0xffn) | (device >> 12n & ~0xffn);
  return [major, minor].map((number) => number.toString(16).padStart(2, "0")).join(":");
}

/** `process 4711 ("cni run add"), which is stopped` */
function describe(pid: number, stopped: boolean): string {
  const command = commandOf(pid);
  return `process ${pid}${command && ` (${JSON.stringify(command)})`}${stopped ? ", which is stopped" : ""}`;
}

/** The words with which it was called, up to the first that is not one: `cni run add`. */
function commandOf(pid: number): string {
  const [path = "", ...words] = textOf(`/proc/${pid}/cmdline`).split("\0");
  const name = path.slice(path.lastIndexOf("/") + 1) || textOf(`/proc/${pid}/comm`).trim();
  const end = words.findIndex((word) => !/^[a-z][a-z-]{0,19}$/.test(word));
  return [name, ...words.slice(0, Math.min(end < 0 ? words.length : end, MOST_NAMED))].join(" ");
}

const isStopped = (pid: number): boolean => /\) [Tt] /.test(textOf(`/proc/${pid}/stat`));

/** Empty where it cannot be read. */
const textOf = (path: string): string => unlessFailed(() => readText(path)) ?? "";

/** None where they cannot be read. */
const namesIn = (path: string): readonly string[] => unlessFailed(() => findNames(path)) ?? [];
