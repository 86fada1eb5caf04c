/** How long programs wait for locks and hold them, traced by strace(1). @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { ProcessCommand } from "../harness/process.ts";
import { median } from "../harness/statistics.ts";
import { formatTable } from "../../../cmd/output/table.ts";
import { parseStartedCalls } from "../harness/trace.ts";

/** Traces some programs. */
export interface LockTrace {
  wrap(command: ProcessCommand): ProcessCommand;
  /** By kind of lock, all that were traced. */
  figures(): readonly LockFigures[];
}

/** Milliseconds of all that were traced. */
export interface LockFigures {
  /** `addresses of a network`, `garbage collection (shared)`, … */
  readonly lock: string;
  readonly held: readonly number[];
  readonly waited: readonly number[];
}

/** The kernel's filter stops the program at the traced calls only. */
const LOCK_STRACE = ["strace", "-f", "--seccomp-bpf", "-ttt", "-T", "-y", "-q", "-e", "signal=none"];

/** Keeps traces in a directory, which is made anew. */
export function newLockTrace(directory: string): LockTrace {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
  let count = 0;
  return {
    wrap: ({ argv, ...rest }) => ({
      ...rest,
      argv: [...LOCK_STRACE, "-e", "trace=flock,close,exit_group", "-o", join(directory, `${count++}`), ...argv],
    }),
    figures() {
      const names = existsSync(directory) ? readdirSync(directory) : [];
      return groupByLock(names.flatMap((name) => parseLockTrace(readFileSync(join(directory, name), "utf8"))));
    },
  };
}

/** One lock that was held. */
interface HeldLock {
  readonly lock: string;
  readonly held: number;
  readonly waited: number;
}

/** The locks of a trace. */
export function parseLockTrace(trace: string): readonly HeldLock[] {
  const found: HeldLock[] = [];
  const open = new Map<string, { readonly lock: string; readonly since: number; readonly waited: number }>();
  const release = (fd: string, time: number) => {
    const held = open.get(fd);
    open.delete(fd);
    if (held) found.push({ lock: held.lock, held: 1000 * (time - held.since), waited: 1000 * held.waited });
  };
  // Of a lock that could not be had without waiting.
  let firstAttempt = 0;
  for (const { name, args: [file = "", operation = ""], startTime, duration, result } of parseStartedCalls(trace)) {
    const [, fd = "", path = ""] = /^(\d+)<(.*)>$/.exec(file) ?? [];
    if (name === "exit_group") { for (const openFd of [...open.keys()]) release(openFd, startTime); }
    else if (name === "close" || operation === "LOCK_UN") release(fd, startTime);
    else if (name === "flock" && result !== 0) firstAttempt ||= startTime;
    else if (name === "flock") {
      const since = startTime + duration;
      open.set(fd, { lock: lockKind(path, operation), since, waited: firstAttempt ? since - firstAttempt : 0 });
      firstAttempt = 0;
    }
  }
  return found;
}

function lockKind(path: string, operation: string): string {
  const name = path.slice(path.lastIndexOf("/") + 1);
  if (name === "lock") return "addresses of a network";
  if (name === ".gc.lock") return operation.startsWith("LOCK_SH") ? "no GC meanwhile" : "GC alone";
  if (name === ".turn.lock") return "turn before GC";
  if (name.startsWith(".container-")) return "one container";
  return path.startsWith("net:") ? "order at a ruleset" : name;
}

function groupByLock(all: readonly HeldLock[]): LockFigures[] {
  return [...Map.groupBy(all, ({ lock }) => lock)].map(([lock, group]) => ({
    lock,
    held: group.map(({ held }) => held),
    waited: group.map(({ waited }) => waited),
  }));
}

/** A table with a row for each kind. */
export function formatLockFigures(all: readonly LockFigures[]): string {
  const rows = all.map(({ lock, held, waited }) => [
    ...[lock, `${held.length}`],
    ...[median(held), Math.max(...held), median(waited), Math.max(...waited)].map((ms) => ms.toFixed(2)),
  ]);
  return formatTable(["lock", "seen", "held: median", "most, ms", "waited for: median", "most, ms"], rows.sort());
}
