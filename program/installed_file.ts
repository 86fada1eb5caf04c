import { ensureDirectory } from "../ffi/sys/directory.ts";
import { installCopy, installHardLink, installSymlink } from "../ffi/sys/atomic_install.ts";
import { ignoreErrors } from "../ffi/sys/error.ts";
import { hasProgramMark } from "../ffi/sys/program_mark.ts";
import { openFile } from "../ffi/sys/file.ts";
import { hasSameContent } from "../ffi/sys/same_content.ts";
import { type FileStat, findStat, findSymlinkTarget } from "../ffi/sys/stat.ts";

export const COMMAND_NAME = "cni";

/** Shims beside it execute it by this name. */
export const FULL_PROGRAM_NAME = "cni-full";

/** Beside the program, with glibc's loader and libraries. */
export const LIBRARY_DIRECTORY_NAME = "cni-lib";

/** Where the program at a canonical path looks for libraries. It need not exist: then they are the host's. */
export const libraryDirectory = (program: string): string =>
  `${program.slice(0, program.lastIndexOf("/"))}/${LIBRARY_DIRECTORY_NAME}`;

/** @throws {RangeError} if it was replaced meanwhile */
export function runningProgram(): string {
  const path = canonicalPath("/proc/self/exe");
  if (findStat(path)?.identity === findStat("/proc/self/exe")?.identity) return path;
  throw new RangeError(`Cannot use "${path}": it was replaced after this process started`);
}

/** Follows links. @throws {SystemError} if it does not exist */
export function canonicalPath(path: string): string {
  using file = openFile(path);
  return findSymlinkTarget(`/proc/self/fd/${file.fd}`)!;
}

/**
 * Ours are links to this program, copies of any version, and dangling links to its name. The file's own name says
 * nothing: other plugins have the same.
 */
export function isForeignFile(path: string, program: string): boolean {
  const status = findStat(path);
  if (status) return !(status.isFile && hasProgramMark(path)) && !isSameFile(path, program);
  const target = findSymlinkTarget(path);
  return target !== undefined && ![COMMAND_NAME, FULL_PROGRAM_NAME].includes(target.slice(target.lastIndexOf("/") + 1));
}

/** True also of copies with the same time. Builds of one commit have one time, and often one size: content decides. */
export function isSameFile(path: string, other: string): boolean {
  const [a, b] = [findStat(path), findStat(other)];
  if (!a || !b) return false;
  return a.identity === b.identity || (a.size === b.size && a.mtime === b.mtime && hasSameContent(path, other));
}

/** Of copies, whatever the umask of whoever has unpacked or built the program: all users call plugins. */
export const PROGRAM_MODE = 0o755;
const ALL_MAY_RUN = 0o555;
export const mayAllRun = ({ mode }: FileStat): boolean => (mode & ALL_MAY_RUN) === ALL_MAY_RUN;

/** Whether a file there is a copy of the program that all users may run. */
export function isInstalledCopy(path: string, program: string): boolean {
  const status = findSymlinkTarget(path) === undefined ? findStat(path) : undefined;
  return status !== undefined && mayAllRun(status) && isSameFile(path, program);
}

/** Hidden from engines, and on the same file system. */
export function backupDirectory(directory: string): string {
  return `${directory}/.cni-backup`;
}

export function replacedFilePath(directory: string, name: string): string {
  return `${backupDirectory(directory)}/${name}`;
}

/** A file that has no other copy may have the backup's name. */
export function hasOtherBackup(directory: string, name: string): boolean {
  const path = `${directory}/${name}`;
  const backup = replacedFilePath(directory, name);
  const target = findSymlinkTarget(backup);
  if (target !== findSymlinkTarget(path)) return target !== undefined || findStat(backup) !== undefined;
  return target === undefined && findStat(backup) !== undefined && !isSameFile(path, backup);
}

/** The file stays in place until it is replaced. */
export function keepBackup(directory: string, name: string): void {
  const path = `${directory}/${name}`;
  const backup = replacedFilePath(directory, name);
  ensureDirectory(backupDirectory(directory));
  const target = findSymlinkTarget(path);
  if (target !== undefined) installSymlink(target, backup);
  else installLinkOrCopy(path, backup);
}

/** Copies where the file system has no hard links. */
export function installLinkOrCopy(
  source: string,
  path: string,
  progress?: (done: number, total: number) => void,
): void {
  const link = () => {
    installHardLink(source, path);
    return true;
  };
  if (!ignoreErrors(["EPERM", "EOPNOTSUPP", "EMLINK"], link)) installCopy(source, path, { progress });
}
