/**
 * Files that are there with all of their content or not at all: a killed process leaves the whole file or none.
 *
 * @see open(2) O_TMPFILE, linkat(2), rename(2)
 * @module
 */
import { ignoreErrors, withPurpose } from "./error.ts";
import { type Descriptor, descriptor, hardLink, removeFile, writeAll } from "./file.ts";
import { sys } from "./libc.ts";
import { O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_TMPFILE, O_WRONLY } from "./uapi.ts";

/**
 * Writes a complete new file beside `path`, under a hidden name that no reader looks for and that ends in `.tmp`.
 *
 * @returns its path
 * @throws {SystemError}
 */
export function writeTemporary(path: string, text: string, mode = 0o600): string {
  const directory = directoryOf(path);
  // At random: process numbers are equal in two containers that share the directory.
  const random = Math.random().toString(36).slice(2);
  const temporary = `${directory}.${path.slice(directory.length, directory.length + 100)}.${random}.tmp`;
  writeNewFile(temporary, text, mode);
  return temporary;
}

function writeNewFile(path: string, text: string, mode: number): void {
  withPurpose(`write "${path}"`, () => {
    using file = descriptor(sys.open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
    try {
      writeAll(file.fd, new TextEncoder().encode(text));
    } catch (error) {
      sys.unlink(path);
      throw error;
    }
  });
}

/** A file without a name: gone when it is closed, unless {@linkcode hardLink} gave it one by then. */
export interface UnnamedFile extends Descriptor {
  /** Leads to it for as long as it is open. */
  readonly path: string;
}

/**
 * Writes a complete new file that has no name yet, on the file system of `directory`, which does not change by that; a link in its place
 * is followed only if a slash ends the path.
 *
 * @returns `undefined` where the file system knows no such files
 * @throws {SystemError} `ENOTDIR` for a link that is not followed
 * @see O_TMPFILE in open(2)
 */
export function writeUnnamed(directory: string, text: string, mode = 0o600): UnnamedFile | undefined {
  return withPurpose(`write to directory "${directory}"`, () => {
    // EISDIR and EINVAL: what kernels and file systems answer that take the flag for O_DIRECTORY.
    const fd = ignoreErrors(
      ["EOPNOTSUPP", "EISDIR", "EINVAL"],
      () => sys.open(directory, O_WRONLY | O_TMPFILE | O_NOFOLLOW | O_CLOEXEC, mode),
    );
    if (fd === undefined) return undefined;
    const file = descriptor(fd);
    try {
      writeAll(fd, new TextEncoder().encode(text));
      return { ...file, path: `/proc/self/fd/${fd}` };
    } catch (error) {
      file[Symbol.dispose]();
      throw error;
    }
  });
}

/**
 * Replaces `path` as a whole: a reader finds the old content or the new, also after this process was killed at any point.
 *
 * A kill in the moment before the file is in its place leaves it under {@linkcode temporaryName}, which the next replacement uses up.
 * A power cut may leave an empty or damaged file, see {@linkcode createFile}.
 *
 * @throws {SystemError}
 */
export function replaceFile(path: string, text: string, mode = 0o600): void {
  withPurpose(`write "${path}"`, () => {
    const temporary = temporaryName(path);
    const replace = () => {
      publishAs(path, temporary, text, mode);
      renameOrRemove(temporary, path);
    };
    // Whoever writes the same file may have taken it away to put its own there; the last one to come has the last word.
    for (let attempts = 10; attempts > 0; attempts--) {
      if (ignoreErrors(["ENOENT"], () => (replace(), true))) return;
    }
    replace();
  });
}

/** Gives a new file the name `temporary`, in one step; whatever had it is removed. */
function publishAs(path: string, temporary: string, text: string, mode: number): void {
  using unnamed = writeUnnamed(directoryOf(path), text, mode);
  if (unnamed === undefined) {
    removeFile(temporary);
    return writeNewFile(temporary, text, mode);
  }
  while (!hardLink(unnamed.path, temporary)) removeFile(temporary);
}

function renameOrRemove(temporary: string, path: string): void {
  try {
    sys.rename(temporary, path);
  } catch (error) {
    removeFile(temporary);
    throw error;
  }
}

/** Removes a file that {@linkcode replaceFile} or {@linkcode createFile} wrote, and what a crash left beside it. @throws {SystemError} */
export function removeWithTemporary(path: string): void {
  // The file itself last: as long as it is there, it is known that there is something to remove.
  removeFile(temporaryName(path));
  removeFile(path);
}

/** The hidden name that `path` has for a moment before it is replaced; it ends in `.tmp`. */
function temporaryName(path: string): string {
  const name = path.slice(directoryOf(path).length);
  // A name may be as long as the file system takes.
  return `${directoryOf(path)}.${name.slice(0, 100)}.${Bun.hash.wyhash(name).toString(36)}.tmp`;
}

/** With its slash. */
const directoryOf = (path: string): string => path.slice(0, path.lastIndexOf("/") + 1);

/**
 * Creates `path` with its content in one step; false if it exists. A killed process leaves the whole file or none.
 *
 * Nothing waits for the disk. What is written here describes links, rules and addresses that no boot outlives; a power cut, which ends the
 * boot, may leave the name without all of the content, and whoever reads such a file in a later boot has to expect that.
 *
 * Two that do so at once for one path, on a file system that knows no files without a name, are in each other's way.
 *
 * @throws {SystemError}
 */
export function createFile(path: string, text: string, mode = 0o600): boolean {
  return withPurpose(`create "${path}"`, () => {
    using unnamed = writeUnnamed(directoryOf(path), text, mode);
    if (unnamed) return hardLink(unnamed.path, path);
    const temporary = temporaryName(path);
    removeFile(temporary);
    writeNewFile(temporary, text, mode);
    try {
      return hardLink(temporary, path);
    } finally {
      removeFile(temporary);
    }
  });
}
