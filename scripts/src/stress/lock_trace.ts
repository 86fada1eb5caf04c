/** How long locks are waited for and held, seen by strace(1). @module */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { StressCommand } from "./network.ts";

/** Has some programs watched. */
export interface LockTrace {
  wrap(command: StressCommand): StressCommand;
  /** By kind of lock, what was seen. */
  figures(): readonly LockFigures[];
}

/** Milliseconds of all that were seen. */
export interface LockFigures {
  /** `addresses of a network`, `garbage collection (shared)`, … */
  readonly lock: string;
  readonly held: readonly number[];
  readonly waited: readonly number[];
}

/** Who traces looks only where the calls are: the kernel's filter keeps it away from all others. */
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

/** What a trace says. */
export function parseLockTrace(trace: string): readonly HeldLock[] {
  const found: HeldLock[] = [];
  const open = new Map<string, { readonly lock: string; readonly since: number; readonly waited: number }>();
  const release = (fd: string, at: number) => {
    const heldLock = open.get(fd);
    open.delete(fd);
    if (heldLock) {
      found.push({ lock: heldLock.lock, held: 1000 * (at - heldLock.since), waited: 1000 * heldLock.waited });
    }
  };
  // Of a lock that was asked for in vain at first.
  let firstAttempt = 0;
  for (const line of trace.split("\n")) {
    const [, pid, time, call = "", args = "", value, took = "0"] =
      /^(\d+) +([\d.]+) (\w+)\((.*)\) += (-?\d+|\?)[^<]*(?:<([\d.]+)>)?$/.exec(line) ?? [];
    if (pid === undefined) continue;
    const [began, ended] = [Number(time), Number(time) + Number(took)];
    const [, fd = "", path = "", operation = ""] = /^(\d+)<(.*)>(?:, (\S+))?$/.exec(args) ?? [];
    if (call === "exit_group") { for (const openFd of [...open.keys()]) release(openFd, began); }
    else if (call === "close" || operation === "LOCK_UN") release(fd, began);
    else if (call === "flock" && value !== "0") firstAttempt ||= began;
    else if (call === "flock") {
      const waited = firstAttempt ? ended - firstAttempt : 0;
      open.set(fd, { lock: lockKind(path, operation), since: ended, waited });
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
  return [...Map.groupBy(all, ({ lock }) => lock)].map(([lock, each]) => ({
    lock,
    held: each.map(({ held }) => held),
    waited: each.map(({ waited }) => waited),
  }));
}

/** A table with a row for each kind. */
export function formatLockFigures(all: readonly LockFigures[]): string {
  const rows = all.map(({ lock, held, waited }) => [
    lock,
    `${held.length}`,
    ...[upperMedian(held), Math.max(...held), upperMedian(waited), Math.max(...waited)].map((ms) => ms.toFixed(2)),
  ]).sort();
  const table = [["lock", "seen", "held: median", "most, ms", "waited for: median", "most, ms"], ...rows];
  const widths = table[0]!.map((_, column) => Math.max(...table.map((row) => row[column]!.length)));
  return table.map((row) =>
    row.map((cell, column) => column === 0 ? cell.padEnd(widths[column]!) : cell.padStart(widths[column]!)).join("  ")
  ).join("\n");
}

/** The middle one; of an even number, the larger of the two. */
export function upperMedian(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1] ?? 0;
}
