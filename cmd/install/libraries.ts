/** Glibc's files beside the program. @module */
import { ensureDirectory, findEntryNames, removeEmptyDirectory } from "../../ffi/sys/directory.ts";
import { exchangeDirectories, installCopy } from "../../ffi/sys/atomic_install.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { openFile, removeFile, renameFile } from "../../ffi/sys/file.ts";
import { lockOpenFile } from "../../ffi/sys/lock.ts";
import { hasSameContent } from "../../ffi/sys/same_content.ts";
import { findStat, findSymlinkTarget } from "../../ffi/sys/stat.ts";
import { COMMAND_NAME, LIBRARY_DIRECTORY_NAME } from "../../program/installed_file.ts";

/** What a release of any version has there, and what an install that was killed has left. */
const NAMES = /^(ld-linux|lib)[\w.-]*\.so\.\d+$|^copyright$|^\.[\w.-]+\.\d+\.tmp$/;

const LOAD_TIMEOUT_MS = 2000;

/** Whatever the umask of whoever has unpacked them: the loader of all users reads them. */
const LIBRARY_MODE = 0o644;
const ALL_MAY_READ = 0o444;

/** Whether dpkg looks after a directory's files: our package has libraries of each version beside the link to them. */
const isPackaged = (directory: string): boolean =>
  findSymlinkTarget(`${directory}/${LIBRARY_DIRECTORY_NAME}`)?.startsWith(`${LIBRARY_DIRECTORY_NAME}-`) === true;

/** @param action such as `install into` @throws {RangeError} if a package has put the files there */
export function requireUnpackaged(directory: string, action: string, remedy: string): void {
  if (!isPackaged(directory)) return;
  throw new RangeError(
    `Cannot ${action} "${directory}": its files are of the Debian package "${COMMAND_NAME}": ${remedy}`,
  );
}

/** Whether something is there that no release of ours has put there. */
export function isForeignLibraryDirectory(path: string): boolean {
  if (findSymlinkTarget(path) !== undefined) return true;
  const status = findStat(path);
  if (!status) return false;
  return !status.isDirectory || !findEntryNames(path)!.every((name) => NAMES.test(name));
}

/** Each file in one step, and only where something differs. @param put installs a file @returns whether something did */
export function installLibraries(
  source: string,
  directory: string,
  put: (source: string, path: string) => void = putLibrary,
): boolean {
  ensureDirectory(directory);
  const names = findEntryNames(source)!;
  const stale = findEntryNames(directory)!.filter((name) => !names.includes(name));
  const changed = names.filter((name) => !isInstalled(`${source}/${name}`, `${directory}/${name}`));
  for (const name of changed) put(`${source}/${name}`, `${directory}/${name}`);
  for (const name of stale) removeFile(`${directory}/${name}`);
  return changed.length + stale.length > 0;
}

function putLibrary(source: string, path: string): void {
  installCopy(source, path, { mode: LIBRARY_MODE });
}

/**
 * In one step, as the loader of one version dies of the libraries of another. What was there stays until the calls that have
 * begun to load it have done so: they hold a lock.
 *
 * @param put installs a file, where a file system cannot exchange directories
 * @returns whether something differs
 */
export function replaceLibraries(
  staged: string,
  directory: string,
  put: (source: string, path: string) => void,
): boolean {
  if (!findStat(directory)) {
    renameFile(staged, directory);
    return true;
  }
  const [names, present] = [staged, directory].map((path) => findEntryNames(path)!);
  const isSame = names!.join("/") === present!.join("/") &&
    names!.every((name) => isInstalled(`${staged}/${name}`, `${directory}/${name}`));
  if (isSame) return false;
  if (!exchangeDirectories(staged, directory)) {
    installLibraries(staged, directory, put);
    return true;
  }
  using old = openFile(staged);
  using _ = tryLock(old.fd);
  removeLibraries(staged);
  return true;
}

/** A call loads libraries in less time. Whoever holds the lock for longer does something else. */
function tryLock(fd: number): Disposable | undefined {
  return ignoreErrors(["EAGAIN"], () => lockOpenFile(fd, "the replaced libraries", { timeoutMs: LOAD_TIMEOUT_MS }));
}

function isInstalled(source: string, path: string): boolean {
  const status = findStat(path);
  return status !== undefined && (status.mode & ALL_MAY_READ) === ALL_MAY_READ && hasSameContent(source, path);
}

export function removeLibraries(directory: string): void {
  for (const name of findEntryNames(directory) ?? []) removeFile(`${directory}/${name}`);
  removeEmptyDirectory(directory);
}
