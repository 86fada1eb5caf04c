/** Installs a file in one step, in place of any other, and whole even after a power cut. @module */
import { ignoreErrors, withPurpose } from "./error.ts";
import { createReadWrite, openFile, writeAll } from "./file.ts";
import { fstat } from "./stat.ts";
import { sys } from "./libc.ts";
import { AT_FDCWD, O_CLOEXEC, O_CREAT, O_EXCL, O_WRONLY } from "./uapi.ts";

const CHUNK_BYTES = 1024 * 1024;
// linux/fs.h
const RENAME_EXCHANGE = 2;

export function installSymlink(target: string, path: string): void {
  withPurpose(
    `link "${path}" to "${target}"`,
    () => installAtomically(path, (temporary) => void sys.symlink(target, temporary)),
  );
}

/** @throws {SystemError} `EXDEV`, `EPERM` where the file system cannot */
export function installHardLink(existing: string, path: string): void {
  withPurpose(
    `link "${path}" to "${existing}"`,
    () => installAtomically(path, (temporary) => void sys.linkat(AT_FDCWD, existing, AT_FDCWD, temporary, 0)),
  );
}

interface CopyOptions {
  /** A copy has the source's if none is given. */
  readonly mode?: number;
  /** Told of bytes after each chunk. */
  readonly progress?: ((done: number, total: number) => void) | undefined;
}

/** Copies content and modification time. */
export function installCopy(source: string, path: string, options: CopyOptions = {}): void {
  withPurpose(
    `copy "${source}" to "${path}"`,
    () => installAtomically(path, (temporary) => copy(source, temporary, options)),
  );
}

/** Two directories of one file system get each other's name. @returns whether that file system can do so */
export function exchangeDirectories(path: string, other: string): boolean {
  return withPurpose(`exchange "${path}" and "${other}"`, () => {
    const exchange = () => sys.renameat2(AT_FDCWD, path, AT_FDCWD, other, RENAME_EXCHANGE);
    return ignoreErrors(["EINVAL", "ENOSYS", "EXDEV"], exchange) !== undefined;
  });
}

export function installBytes(bytes: Uint8Array, path: string, mode = 0o755): void {
  withPurpose(`write "${path}"`, () =>
    installAtomically(path, (temporary) => {
      using file = createReadWrite(temporary, mode);
      writeAll(file.fd, bytes);
      // The umask takes some bits away. A confined process has a fitting one: it may change no mode.
      if ((fstat(file.fd).mode & 0o7777) !== mode) sys.chmod(temporary, mode);
      sys.fsync(file.fd);
    }));
}

function installAtomically(path: string, create: (temporary: string) => void): void {
  const slash = path.lastIndexOf("/") + 1;
  const temporary = `${path.slice(0, slash)}.${path.slice(slash)}.${process.pid}.tmp`;
  // A crashed process of this number may have left one.
  ignoreErrors(["ENOENT"], () => sys.unlink(temporary));
  try {
    create(temporary);
    sys.rename(temporary, path);
  } finally {
    // Between two names of one file, rename(2) does nothing.
    ignoreErrors(["ENOENT"], () => sys.unlink(temporary));
  }
}

function copy(source: string, path: string, options: CopyOptions): void {
  using sourceFile = openFile(source);
  const { mode, mtime, size } = fstat(sourceFile.fd);
  const fd = sys.open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600);
  try {
    const buffer = new Uint8Array(CHUNK_BYTES);
    let done = 0;
    for (let count; (count = sys.read(sourceFile.fd, buffer, buffer.length)) > 0;) {
      writeAll(fd, buffer.subarray(0, count));
      done += count;
      options.progress?.(done, size);
    }
    // struct timespec times[2]: access, modification
    const time = [mtime / 1_000_000_000n, mtime % 1_000_000_000n];
    sys.futimens(fd, new BigInt64Array([...time, ...time]));
    sys.chmod(path, options.mode ?? mode);
    sys.fsync(fd);
  } finally {
    sys.close(fd);
  }
}
