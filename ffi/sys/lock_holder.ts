/** @see proc_locks(5) */
import { findEntryNames } from "./directory.ts";
import { ignoreSystemErrors } from "./error.ts";
import { readText } from "./file.ts";
import { processAge } from "./process_age.ts";

const MAX_NAMED = 3;

/** Processes of the server begin so. SIGTERM ends no worker during a call; the end of its caller does. */
const SERVER_PROCESS = "cni serve: ";
const WORKER = "cni serve: worker";

export interface LockHolders {
  readonly description: string;
  readonly advice: string;
}

/** Other PID namespaces stay hidden. @param identity the file's {@linkcode FileStat.identity} */
export function describeLockHolders(identity: string): LockHolders {
  const pids = lockHolders(identity);
  if (pids.length === 0) {
    return {
      description: "a process that /proc/locks does not show",
      advice: "it may be in another PID namespace, or may have ended meanwhile: try again",
    };
  }
  const stopped = pids.filter(isStopped);
  const names = pids.slice(0, MAX_NAMED).map((pid) => describe(pid, stopped.includes(pid)));
  const rest = pids.length > MAX_NAMED ? ` and ${pids.length - MAX_NAMED} more` : "";
  return {
    description: `${names.join(", ")}${rest}`,
    advice: adviceFor(pids, stopped),
  };
}

function adviceFor(pids: readonly number[], stopped: readonly number[]): string {
  if (stopped.length > 0) {
    return `let it go on (kill -CONT ${stopped.join(" ")}) or end it (kill -KILL ${stopped.join(" ")})`;
  }
  const endable = pids.filter((pid) => commandOf(pid) !== WORKER).slice(0, MAX_NAMED);
  if (endable.length > 0) return `wait for it, or end it if it hangs (kill ${endable.join(" ")})`;
  return "wait for it, or end the program that called the worker";
}

/** True if the owner has ended and all inheritors have run for `minAgeMs`. Their work for the owner is over then. */
export function isHeldByOrphansOnly(identity: string, minAgeMs: number): boolean {
  if (lockOwners(identity).length > 0) return false;
  const ages = lockInheritors(identity).map((pid) => ignoreSystemErrors(() => processAge(pid)));
  return ages.length > 0 && ages.every((age) => age === undefined || age > BigInt(minAgeMs) * 1_000_000n);
}

/** Whether the process that locked the file runs, or waits for a processor or for the kernel. */
export function isHeldByWorking(identity: string): boolean {
  return lockOwners(identity).some((pid) => /\) [RD] /.test(readTextOrEmpty(`/proc/${pid}/stat`)));
}

function lockHolders(identity: string): number[] {
  const owners = lockOwners(identity);
  // Processes that inherited the file hold the lock too.
  return owners.length > 0 ? owners : lockInheritors(identity);
}

function lockOwners(identity: string): number[] {
  const pids = new Set(
    locksOf(readTextOrEmpty("/proc/locks").split("\n").flatMap(parseLock), identity).map(({ pid }) => pid),
  );
  return [...pids].filter((pid) => pid > 0 && readTextOrEmpty(`/proc/${pid}/stat`) !== "");
}

/** @see proc_pid_fdinfo(5) */
function lockInheritors(identity: string): number[] {
  const lockLines = listNamesOrNone("/proc").filter((name) => /^\d+$/.test(name)).flatMap((pid) =>
    listNamesOrNone(`/proc/${pid}/fdinfo`).flatMap((fd) =>
      readTextOrEmpty(`/proc/${pid}/fdinfo/${fd}`).match(/(?<=^lock:).*/gm) ?? []
    )
      .flatMap(parseLock).map((lock): LockLine => ({ ...lock, pid: Number(pid) }))
  );
  return [...new Set(locksOf(lockLines, identity).map(({ pid }) => pid))];
}

interface LockLine {
  /** The taker, 0 if hidden; or a process that has the file open. */
  readonly pid: number;
  readonly file: string;
}

/** A line is `1: FLOCK  ADVISORY  WRITE 4711 fe:00:264194 0 EOF`; waiters have `->` in the second place. */
function parseLock(line: string): LockLine[] {
  const [, kind, , , pid, file = ""] = line.trim().split(/\s+/);
  return kind === "FLOCK" ? [{ pid: Number(pid), file }] : [];
}

function locksOf(locks: readonly LockLine[], identity: string): readonly LockLine[] {
  const [device, inode] = identity.split(":").map(BigInt) as [bigint, bigint];
  const ofInode = locks.filter(({ file }) => file.split(":")[2] === String(inode));
  // Some file systems show programs another device.
  const ofDevice = ofInode.filter(({ file }) => file.startsWith(`${formatDevice(device)}:`));
  return ofDevice.length > 0 ? ofDevice : ofInode;
}

/** Makes `fe:00` of the numbers. @see sys/sysmacros.h */
function formatDevice(device: bigint): string {
  const major = (device >> 8n & 0xfffn) | (device >> 32n & ~0xfffn);
  const minor = (device & 0xffn) | (device >> 12n & ~0xffn);
  return [major, minor].map((number) => number.toString(16).padStart(2, "0")).join(":");
}

function describe(pid: number, stopped: boolean): string {
  const command = commandOf(pid);
  return `process ${pid}${command && ` (${JSON.stringify(command)})`}${stopped ? ", which is stopped" : ""}`;
}

/** The program and its plain leading words: `cni run add`. */
function commandOf(pid: number): string {
  const [path = "", ...words] = readTextOrEmpty(`/proc/${pid}/cmdline`).split("\0");
  if (path.startsWith(SERVER_PROCESS)) return path;
  const name = path.slice(path.lastIndexOf("/") + 1) || readTextOrEmpty(`/proc/${pid}/comm`).trim();
  const end = words.findIndex((word) => !/^[a-z][a-z-]{0,19}$/.test(word));
  return [name, ...words.slice(0, Math.min(end < 0 ? words.length : end, MAX_NAMED))].join(" ");
}

const isStopped = (pid: number): boolean => /\) [Tt] /.test(readTextOrEmpty(`/proc/${pid}/stat`));

const readTextOrEmpty = (path: string): string => ignoreSystemErrors(() => readText(path)) ?? "";

const listNamesOrNone = (path: string): readonly string[] => ignoreSystemErrors(() => findEntryNames(path)) ?? [];
