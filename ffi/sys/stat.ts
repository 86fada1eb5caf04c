import { ignoreErrors, withPurpose } from "./error.ts";
import { sys } from "./libc.ts";
import { AT_FDCWD, AT_SYMLINK_NOFOLLOW } from "./uapi.ts";

const arm = process.arch === "arm64";
export const SYS_fstat = arm ? 80 : 5;
export const SYS_newfstatat = arm ? 79 : 262;
export const STATFS_BYTES = 120;
// struct stat; x86-64 and arm64 differ only in st_mode's place.
const STAT_BYTES = 144;

export interface FileStat {
  /** Device and inode: equal for two paths of one file. */
  readonly identity: string;
  readonly isFile: boolean;
  readonly isDirectory: boolean;
  readonly isCharacterDevice: boolean;
  readonly isPipe: boolean;
  readonly isSocket: boolean;
  readonly mode: number;
  readonly size: number;
  readonly mtime: bigint;
  /** Last change of content or status, in nanoseconds since 1970; cannot be set. */
  readonly ctime: bigint;
}

export function fstat(fd: number): FileStat {
  const bytes = new Uint8Array(STAT_BYTES);
  sys.syscall(SYS_fstat, fd, bytes, 0, 0);
  return parseStat(bytes);
}

function parseStat(bytes: Uint8Array): FileStat {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const mode = view.getUint32(arm ? 16 : 24, true);
  return {
    // Costly, so made on demand.
    get identity() {
      return `${view.getBigUint64(0, true)}:${view.getBigUint64(8, true)}`;
    },
    isFile: (mode & 0o170000) === 0o100000,
    isDirectory: (mode & 0o170000) === 0o040000,
    isCharacterDevice: (mode & 0o170000) === 0o020000,
    isPipe: (mode & 0o170000) === 0o010000,
    isSocket: (mode & 0o170000) === 0o140000,
    mode: mode & 0o7777,
    size: Number(view.getBigInt64(48, true)),
    get mtime() {
      return readTimespec(view, 88);
    },
    get ctime() {
      return readTimespec(view, 104);
    },
  };
}

function readTimespec(view: DataView, at: number): bigint {
  return view.getBigInt64(at, true) * 1_000_000_000n + view.getBigInt64(at + 8, true);
}

/** @param follow whether to follow a final link */
export function findStat(path: string, follow = true): FileStat | undefined {
  if (path.includes("\0")) throw new TypeError(`Cannot find ${JSON.stringify(path)}: it holds a NUL`);
  const bytes = new Uint8Array(STAT_BYTES);
  const name = new TextEncoder().encode(`${path}\0`);
  const found = ignoreErrors(
    ["ENOENT", "ENOTDIR", "ELOOP"],
    () =>
      withPurpose(
        `find "${path}"`,
        () => sys.syscall(SYS_newfstatat, AT_FDCWD, name, bytes, follow ? 0 : AT_SYMLINK_NOFOLLOW),
      ),
  );
  return found === undefined ? undefined : parseStat(bytes);
}

// ext4, XFS, Btrfs, tmpfs, F2FS, ZFS, linux/magic.h. Layered and remote file systems may repeat numbers.
const UNIQUE_INODE_TYPES = [0xef53, 0x58465342, 0x9123683e, 0x01021994, 0xf2f52010, 0x2fc12fc1];

export function hasUniqueInodes(directory: string): boolean {
  const bytes = new Uint8Array(STATFS_BYTES);
  withPurpose(`look at the file system of "${directory}"`, () => sys.statfs(directory, bytes));
  return UNIQUE_INODE_TYPES.includes(new DataView(bytes.buffer).getUint32(0, true));
}

export function findSymlinkTarget(path: string): string | undefined {
  const buffer = new Uint8Array(4096);
  const length = ignoreErrors(
    ["ENOENT", "ENOTDIR", "EINVAL"],
    () => withPurpose(() => `read link "${path}"`, () => sys.readlink(path, buffer, buffer.length)),
  );
  return length === undefined ? undefined : new TextDecoder().decode(buffer.subarray(0, length));
}
