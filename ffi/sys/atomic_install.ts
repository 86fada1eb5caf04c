/**
 * Putting a program in its place: a link or a copy appears whole under its name, whatever was there before.
 *
 * @see rename(2): "atomically replaced, so that there is no point at which another process will find it missing"
 * @module
 */
import { forPurpose, unless } from "./error.ts";
import { openFile } from "./file.ts";
import { statusOf } from "./stat.ts";
import { sys } from "./libc.ts";

// asm-generic/fcntl.h
const O_WRONLY = 0o1;
const O_CREAT = 0o100;
const O_EXCL = 0o200;
const O_CLOEXEC = 0o2000000;
const AT_FDCWD = -100;
const CHUNK_BYTES = 1024 * 1024;

/** Makes `path` a symbolic link to `target`, which is kept as written. @throws {SystemError} */
export function placeSymbolicLink(target: string, path: string): void {
  forPurpose(`link "${path}" to "${target}"`, () => place(path, (temporary) => void sys.symlink(target, temporary)));
}

/** Makes `path` another name of the file `existing`. @throws {SystemError} `EXDEV`, `EPERM` where the file system cannot */
export function placeHardLink(existing: string, path: string): void {
  forPurpose(
    `link "${path}" to "${existing}"`,
    () => place(path, (temporary) => void sys.linkat(AT_FDCWD, existing, AT_FDCWD, temporary, 0)),
  );
}

/** Makes `path` a copy of the file `source`: same content, permissions and time of change. @throws {SystemError} */
export function placeCopy(source: string, path: string): void {
  forPurpose(`copy "${source}" to "${path}"`, () => place(path, (temporary) => copy(source, temporary)));
}

function place(path: string, create: (temporary: string) => void): void {
  const slash = path.lastIndexOf("/") + 1;
  const temporary = `${path.slice(0, slash)}.${path.slice(slash)}.${process.pid}.tmp`;
  // A file left by a crashed process of the same number is in the way.
  unless(["ENOENT"], () => sys.unlink(temporary));
  try {
    create(temporary);
    sys.rename(temporary, path);
  } finally {
    // Between two names of one file, rename(2) does nothing and keeps both.
    unless(["ENOENT"], () => sys.unlink(temporary));
  }
}

function copy(source: string, path: string): void {
  using from = openFile(source);
  const { mode, modified } = statusOf(from.fd);
  const fd = sys.open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600);
  try {
    const buffer = new Uint8Array(CHUNK_BYTES);
    for (let count; (count = sys.read(from.fd, buffer, buffer.length)) > 0;) {
      for (let done = 0; done < count;) done += sys.write(fd, buffer.subarray(done, count), count - done);
    }
    // struct timespec times[2]: last access, last change
    const time = [modified / 1_000_000_000n, modified % 1_000_000_000n];
    sys.futimens(fd, new BigInt64Array([...time, ...time]));
    sys.chmod(path, mode);
    sys.fsync(fd);
  } finally {
    sys.close(fd);
  }
}
