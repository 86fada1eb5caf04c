/**
 * The programs that have a socket open.
 *
 * @see proc(5)
 * @module
 */
import { findNames } from "../../ffi/sys/directory.ts";
import { unless } from "../../ffi/sys/error.ts";
import { readText } from "../../ffi/sys/file.ts";
import { findLink } from "../../ffi/sys/stat.ts";

/** A running program. */
export interface Program {
  readonly pid: number;
  /** The kernel's name for it, of 15 bytes at most. */
  readonly name: string;
  /** Its command line. */
  readonly words: readonly string[];
}

/** Other users' where this one may not look, and those that end meanwhile. */
const UNSEEN = ["ENOENT", "ESRCH", "EACCES", "EPERM"];

/** The programs that have these sockets open, the oldest first: all descriptors of all programs are looked at. @throws {SystemError} */
export function findHolders(inodes: readonly number[]): ReadonlyMap<number, readonly Program[]> {
  const wanted = new Map(inodes.map((inode) => [`socket:[${inode}]`, inode]));
  const found = new Map<number, Program[]>(inodes.map((inode) => [inode, []]));
  const pids = (findNames("/proc") ?? []).filter((name) => /^\d+$/.test(name)).map(Number).sort((a, b) => a - b);
  for (const pid of pids) {
    const held = new Set(linksIn(`/proc/${pid}/fd`).flatMap((link) => wanted.get(link) ?? []));
    const program = held.size > 0 ? unless(UNSEEN, () => programOf(pid)) : undefined;
    for (const inode of program ? held : []) found.get(inode)!.push(program!);
  }
  return found;
}

function linksIn(directory: string): string[] {
  const names = unless(UNSEEN, () => findNames(directory)) ?? [];
  return names.flatMap((name) => unless(UNSEEN, () => findLink(`${directory}/${name}`)) ?? []);
}

function programOf(pid: number): Program {
  return {
    pid,
    name: readText(`/proc/${pid}/comm`).trimEnd(),
    words: readText(`/proc/${pid}/cmdline`).split("\0"),
  };
}

/**
 * `"nginx" (process 812)`
 *
 * @param user id of the user whose socket it is
 */
export function describeHolders([first, ...more]: readonly Program[], user: number): string {
  if (!first) return `a program of user ${user} that is not to be seen from here, or the kernel itself,`;
  const others = more.length === 0 ? "" : `, with ${more.length} more`;
  return `"${first.name}" (process ${first.pid}${others})`;
}
