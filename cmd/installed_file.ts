/** Our files in a directory of plugins, and backups of the files that they replaced. @module */
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { installCopy, installHardLink, installSymlink } from "../ffi/sys/atomic_install.ts";
import { ignoreErrors } from "../ffi/sys/error.ts";
import { openFile, readTail } from "../ffi/sys/file.ts";
import { type FileStat, findStat, findSymlinkTarget } from "../ffi/sys/stat.ts";

/** The command, installed beside the plugins. */
export const COMMAND_NAME = "cni";

/** The build writes it at the end of the program, to mark copies of every version. Never change it. */
export const BINARY_MARK = "\ncni: the runtime and the plugins of container networks in one program\n";

/** The file of this process. @throws {RangeError} if it was replaced meanwhile */
export function runningProgram(): string {
  const path = canonicalPath("/proc/self/exe");
  if (findStat(path)?.identity === findStat("/proc/self/exe")?.identity) return path;
  throw new RangeError(`Cannot use "${path}": it was replaced after this process started`);
}

/** The path without links. @throws {SystemError} if it does not exist */
export function canonicalPath(path: string): string {
  using file = openFile(path);
  return findSymlinkTarget(`/proc/self/fd/${file.fd}`)!;
}

/**
 * Whether a file of another program is there. Ours are links to this program, copies of any version of it, and dangling
 * links to a program of its name. The name alone says nothing: other plugins have the same names.
 */
export function isForeignFile(path: string, program: string): boolean {
  const status = findStat(path);
  if (status) return !isSameFile(status, findStat(program)!) && !(status.isFile && hasBinaryMark(path));
  const target = findSymlinkTarget(path);
  return target !== undefined && target.slice(target.lastIndexOf("/") + 1) !== COMMAND_NAME;
}

/** Whether both are one file, or copies with the same time. */
export function isSameFile(a: FileStat, b: FileStat): boolean {
  return a.identity === b.identity || (a.size === b.size && a.mtime === b.mtime);
}

function hasBinaryMark(path: string): boolean {
  const mark = new TextEncoder().encode(BINARY_MARK);
  return Buffer.from(readTail(path, mark.length)).equals(mark);
}

/** Hidden, so that no engine finds plugins there, and on the same file system. */
export function backupDirectory(directory: string): string {
  return `${directory}/.cni-backup`;
}

export function replacedFilePath(directory: string, name: string): string {
  return `${backupDirectory(directory)}/${name}`;
}

/** Whether another file has this backup name: there is no other copy of it. */
export function hasOtherBackup(directory: string, name: string): boolean {
  const path = `${directory}/${name}`;
  const backup = replacedFilePath(directory, name);
  const target = findSymlinkTarget(backup);
  if (target !== findSymlinkTarget(path)) return target !== undefined || findStat(backup) !== undefined;
  const backupStatus = target === undefined ? findStat(backup) : undefined;
  return backupStatus !== undefined && !isSameFile(findStat(path)!, backupStatus);
}

/** Makes a backup of a file, which stays in its place until it is replaced. @throws {SystemError} */
export function keepBackup(directory: string, name: string): void {
  const path = `${directory}/${name}`;
  const backup = replacedFilePath(directory, name);
  ensureDirectory(backupDirectory(directory));
  const target = findSymlinkTarget(path);
  if (target !== undefined) installSymlink(target, backup);
  else installLinkOrCopy(path, backup);
}

/** Makes a hard link, or a copy where the file system has no hard links. @throws {SystemError} */
export function installLinkOrCopy(source: string, path: string): void {
  const link = () => (installHardLink(source, path), true);
  if (ignoreErrors(["EPERM", "EOPNOTSUPP", "EMLINK"], link) === undefined) installCopy(source, path);
}
