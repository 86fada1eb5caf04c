/** Files that appear whole or not at all, even after a kill. @module */
import { ignoreErrors, withPurpose } from "./error.ts";
import { explainDirectory, removeFileOrLog } from "./directory_in_place.ts";
import { type Descriptor, descriptor, hardLink, removeFile, writeAll } from "./file.ts";
import { sys } from "./libc.ts";
import { O_CLOEXEC, O_CREAT, O_EXCL, O_NOFOLLOW, O_TMPFILE, O_WRONLY } from "./uapi.ts";

export function writeTemporary(path: string, text: string, mode = 0o600): string {
  const directory = directoryOf(path);
  // Containers that share the directory may have equal process numbers.
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

/** Closing removes it, unless {@linkcode hardLink} named it. */
export interface UnnamedFile extends Descriptor {
  readonly path: string;
}

/**
 * Writes an unnamed file on the file system of `directory`. A final slash follows a link.
 *
 * @returns `undefined` where the file system cannot
 * @throws {SystemError} `ENOTDIR` for a link
 */
export function writeUnnamed(directory: string, text: string, mode = 0o600): UnnamedFile | undefined {
  return withPurpose(`write to directory "${directory}"`, () => {
    // EISDIR, EINVAL: O_TMPFILE was taken for O_DIRECTORY.
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
 * Replaces `path`: a reader finds the old content or the new.
 *
 * A kill may leave {@linkcode temporaryName}, which the next replacement reuses. For power cuts, see
 * {@linkcode createFile}.
 */
export function replaceFile(path: string, text: string, mode = 0o600): void {
  withPurpose(`write "${path}"`, () => {
    const temporary = temporaryName(path);
    const replace = () => {
      explainDirectory(() => publishAs(path, temporary, text, mode));
      explainDirectory(() => renameOrRemove(temporary, path));
      return true;
    };
    // Another writer may have taken the temporary name. The last one wins.
    for (let attempts = 10; attempts > 0; attempts--) {
      if (ignoreErrors(["ENOENT"], replace)) return;
    }
    replace();
  });
}

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

/** @param log gets that a directory is in the place of either, and stays */
export function removeWithTemporary(path: string, log: (message: string) => void): void {
  // The file last: while it exists, callers repeat the removal.
  removeFileOrLog(temporaryName(path), log);
  removeFileOrLog(path, log);
}

function temporaryName(path: string): string {
  const name = path.slice(directoryOf(path).length);
  // The name may have the greatest length already.
  return `${directoryOf(path)}.${name.slice(0, 100)}.${Bun.hash.wyhash(name).toString(36)}.tmp`;
}

const directoryOf = (path: string): string => path.slice(0, path.lastIndexOf("/") + 1);

/**
 * Creates `path` in one step; false if it exists.
 *
 * Nothing is synced: links, rules and addresses do not outlive a boot. After a power cut the file may be incomplete.
 *
 * Where {@linkcode writeUnnamed} cannot work, two callers for one path disturb each other.
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
