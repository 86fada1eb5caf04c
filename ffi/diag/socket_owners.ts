import { findEntryNames } from "../sys/directory.ts";
import { ignoreErrors } from "../sys/error.ts";
import { readText } from "../sys/file.ts";
import { findSymlinkTarget } from "../sys/stat.ts";

export interface SocketOwner {
  readonly pid: number;
  /** The kernel keeps at most 15 bytes of it. */
  readonly name: string;
  readonly cmdline: readonly string[];
}

/** Programs of other users refuse, and programs may end meanwhile. */
const IGNORED_ERRORS = ["ENOENT", "ESRCH", "EACCES", "EPERM"];

/** The oldest programs first. Reads every descriptor of every program. */
export function findSocketOwners(inodes: readonly number[]): ReadonlyMap<number, readonly SocketOwner[]> {
  const inodeByLink = new Map(inodes.map((inode) => [`socket:[${inode}]`, inode]));
  const owners = new Map<number, SocketOwner[]>(inodes.map((inode) => [inode, []]));
  const pids = (findEntryNames("/proc") ?? []).filter((name) => /^\d+$/.test(name)).map(Number).sort((a, b) => a - b);
  for (const pid of pids) {
    const openInodes = new Set(readLinks(`/proc/${pid}/fd`).flatMap((link) => inodeByLink.get(link) ?? []));
    const owner = openInodes.size > 0 ? ignoreErrors(IGNORED_ERRORS, () => readProcess(pid)) : undefined;
    for (const inode of owner ? openInodes : []) owners.get(inode)!.push(owner!);
  }
  return owners;
}

function readLinks(directory: string): string[] {
  const names = ignoreErrors(IGNORED_ERRORS, () => findEntryNames(directory)) ?? [];
  return names.flatMap((name) => ignoreErrors(IGNORED_ERRORS, () => findSymlinkTarget(`${directory}/${name}`)) ?? []);
}

function readProcess(pid: number): SocketOwner {
  return {
    pid,
    name: readText(`/proc/${pid}/comm`).trimEnd(),
    cmdline: readText(`/proc/${pid}/cmdline`).split("\0"),
  };
}

/**
 * `"nginx" (process 812)`
 *
 * @param uid the socket's user
 */
export function describeSocketOwners([first, ...more]: readonly SocketOwner[], uid: number): string {
  if (!first) return `a program of user ${uid} that is not visible here, or the kernel itself,`;
  const others = more.length === 0 ? "" : `, with ${more.length} more`;
  return `"${first.name}" (process ${first.pid}${others})`;
}
