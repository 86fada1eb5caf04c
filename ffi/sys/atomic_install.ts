/**
 * Putting a program in its place: a link or a copy appears whole under its name, whatever was there before.
 *
 * @see rename(2): "atomically replaced, so that there is no point at which another process will find it missing"
 * @module
 */
import { ignoreErrors, withPurpose } from "./error.ts";
import { openFile } from "./file.ts";
import { fstat } from "./stat.ts";
import { sys } from "./libc.ts";
import { AT_FDCWD, O_CLOEXEC, O_CREAT, O_EXCL, O_WRONLY } from "./uapi.ts";

const CHUNK_BYTES = 1024 * 1024;

/** Makes `path` a symbolic link to `target`, which is kept as written. @throws {SystemError} */
export function installSymlink(target: string, path: string): void {
  withPurpose(
    `link "${path}" to "${target}"`,
    () => installAtomically(path, (temporary) => void sys.symlink(target, temporary)),
  );
}

/** Makes `path` another name of the file `existing`. @throws {SystemError} `EXDEV`, `EPERM` where the file system cannot */
export function installHardLink(existing: string, path: string): void {
  withPurpose(
    `link "${path}" to "${existing}"`,
    () => installAtomically(path, (temporary) => void sys.linkat(AT_FDCWD, existing, AT_FDCWD, temporary, 0)),
  );
}

/** Makes `path` a copy of the file `source`: same content, permissions and time of change. @throws {SystemError} */
export function installCopy(source: string, path: string): void {
  withPurpose(`copy "${source}" to "${path}"`, () => installAtomically(path, (temporary) => copy(source, temporary)));
}

function installAtomically(path: string, create: (temporary: string) => void): void {
  const slash = path.lastIndexOf("/") + 1;
  const temporary = `${path.slice(0, slash)}.${path.slice(slash)}.${process.pid}.tmp`;
  // A file left by a crashed process of the same number is in the way.
  ignoreErrors(["ENOENT"], () => sys.unlink(temporary));
  try {
    create(temporary);
    sys.rename(temporary, path);
  } finally {
    // Between two names of one file, rename(2) does nothing and keeps both.
    ignoreErrors(["ENOENT"], () => sys.unlink(temporary));
  }
}

function copy(source: string, path: string): void {
  using sourceFile = openFile(source);
  const { mode, mtime } = fstat(sourceFile.fd);
  const fd = sys.open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600);
  try {
    const buffer = new Uint8Array(CHUNK_BYTES);
    for (let count; (count = sys.read(sourceFile.fd, buffer, buffer.length)) > 0;) {
      for (let written = 0; written < count;) {
        written += sys.write(fd, buffer.subarray(written, count), count - written);
      }
    }
    // struct timespec times[2]: last access, last change
    const time = [mtime / 1_000_000_000n, mtime % 1_000_000_000n];
    sys.futimens(fd, new BigInt64Array([...time, ...time]));
    sys.chmod(path, mode);
    sys.fsync(fd);
  } finally {
    sys.close(fd);
  }
}
