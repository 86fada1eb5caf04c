/**
 * What is ours in a directory of plugins, and what of others was replaced there.
 *
 * @module
 */
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { installCopy, installHardLink, installSymlink } from "../ffi/sys/atomic_install.ts";
import { ignoreErrors } from "../ffi/sys/error.ts";
import { openFile, readTail } from "../ffi/sys/file.ts";
import { type FileStat, findStat, findSymlinkTarget } from "../ffi/sys/stat.ts";

/** The command itself; installed beside the plugins. */
export const COMMAND_NAME = "cni";

/** What the build writes at the end of the program, by which it knows copies of every version. Never to be changed. */
export const BINARY_MARK = "\ncni: the runtime and the plugins of container networks in one program\n";

/** The file that this process runs. @throws {RangeError} if it was replaced meanwhile */
export function runningProgram(): string {
  const path = canonicalPath("/proc/self/exe");
  if (findStat(path)?.identity === findStat("/proc/self/exe")?.identity) return path;
  throw new RangeError(`Cannot use "${path}": it is not the program that is running any more`);
}

/** The path without links. @throws {SystemError} if there is nothing */
export function canonicalPath(path: string): string {
  using file = openFile(path);
  return findSymlinkTarget(`/proc/self/fd/${file.fd}`)!;
}

/**
 * Whether something is there that is not ours. Ours is what leads to this program or to a copy of any version of it, and a link to a
 * program of its name that is gone. Other programs of that name have plugins too, so the name says nothing about what is there.
 */
export function isForeignFile(path: string, program: string): boolean {
  const status = findStat(path);
  if (status) return !isSameFile(status, findStat(program)!) && !(status.isFile && hasBinaryMark(path));
  const target = findSymlinkTarget(path);
  return target !== undefined && target.slice(target.lastIndexOf("/") + 1) !== COMMAND_NAME;
}

/** The same file, or a copy that kept its time. */
export function isSameFile(a: FileStat, b: FileStat): boolean {
  return a.identity === b.identity || (a.size === b.size && a.mtime === b.mtime);
}

function hasBinaryMark(path: string): boolean {
  const mark = new TextEncoder().encode(BINARY_MARK);
  return Buffer.from(readTail(path, mark.length)).equals(mark);
}

/** Where backups are: hidden, so that no engine takes them for plugins, and on the same file system. */
export function backupDirectory(directory: string): string {
  return `${directory}/.cni-backup`;
}

/** Where the file of somebody else is kept that has this name. */
export function replacedFilePath(directory: string, name: string): string {
  return `${backupDirectory(directory)}/${name}`;
}

/** Whether another file is kept under this name already; there is no other copy of it. */
export function hasOtherBackup(directory: string, name: string): boolean {
  const path = `${directory}/${name}`;
  const backup = replacedFilePath(directory, name);
  const target = findSymlinkTarget(backup);
  if (target !== findSymlinkTarget(path)) return target !== undefined || findStat(backup) !== undefined;
  const backupStatus = target === undefined ? findStat(backup) : undefined;
  return backupStatus !== undefined && !isSameFile(findStat(path)!, backupStatus);
}

/** Keeps a file of somebody else that is about to be replaced. It stays in its place until then. @throws {SystemError} */
export function keepBackup(directory: string, name: string): void {
  const path = `${directory}/${name}`;
  const backup = replacedFilePath(directory, name);
  ensureDirectory(backupDirectory(directory));
  const target = findSymlinkTarget(path);
  if (target !== undefined) installSymlink(target, backup);
  else installLinkOrCopy(path, backup);
}

/** Makes `path` another name of a file, or a copy: not every file system has more than one name for a file. @throws {SystemError} */
export function installLinkOrCopy(source: string, path: string): void {
  const link = () => (installHardLink(source, path), true);
  if (ignoreErrors(["EPERM", "EOPNOTSUPP", "EMLINK"], link) === undefined) installCopy(source, path);
}
