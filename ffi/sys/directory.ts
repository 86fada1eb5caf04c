import { ignoreErrors, SystemError, withPurpose } from "./error.ts";
import { descriptor } from "./file.ts";
import { sys } from "./libc.ts";
import { O_CLOEXEC, O_DIRECTORY, O_NOFOLLOW, O_RDONLY } from "./uapi.ts";

const arm = process.arch === "arm64";
export const SYS_getdents64 = arm ? 61 : 217;
const DT_UNKNOWN = 0;
const DT_REG = 8;

export function ensureDirectory(path: string, mode = 0o755): void {
  withPurpose(`create directory "${path}"`, () => {
    if (ignoreErrors(["ENOENT"], () => makeDirectory(path, mode)) !== undefined) return;
    const parent = parentOf(path);
    if (parent === "" || parent === path) throw new RangeError(`Cannot create directory "${path}": no such parent`);
    ensureDirectory(parent, mode);
    makeDirectory(path, mode);
  });
}

/** Runs `call`; if the directory `path` is missing, creates it and runs `call` again. */
export function inDirectory<T>(path: string, mode: number, call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (!(error instanceof SystemError && error.code === "ENOENT")) throw error;
  }
  ensureDirectory(path, mode);
  return call();
}

export function removeEmptyDirectory(path: string): void {
  withPurpose(`remove directory "${path}"`, () => {
    ignoreErrors(["ENOENT", "ENOTEMPTY"], () => sys.rmdir(path));
  });
}

export const parentOf = (path: string): string => path.replace(/[/]+[^/]*[/]*$/, "");

function makeDirectory(path: string, mode: number): number {
  return ignoreErrors(["EEXIST"], () => sys.mkdir(path, mode)) ?? 0;
}

export function findEntryNames(path: string): string[] | undefined {
  return ignoreErrors(["ENOENT"], () => listDirectory(path).map(({ name }) => name));
}

export interface DirectoryEntry {
  readonly name: string;
  /** Equal for two names of one file, see hasUniqueInodes(). A number if exact, since maps of those are faster. */
  readonly inode: number | bigint;
  /** Also true if the file system does not tell. */
  readonly isFile: boolean;
}

/**
 * Sorted by name: each file system has another order, and people read what is made of them.
 *
 * @throws {SystemError} `ENOTDIR` for a link that is not followed
 */
export function listDirectory(path: string, follow = true): DirectoryEntry[] {
  return [...readPages(path, follow)].flat().sort((a, b) => a.name < b.name ? -1 : 1);
}

/** Keeps the file system's order, and reads no further than the caller goes. */
export function* walkDirectory(path: string): Generator<DirectoryEntry> {
  for (const page of readPages(path, true)) yield* page;
}

function* readPages(path: string, follow: boolean): Generator<DirectoryEntry[]> {
  const purpose = `list directory "${path}"`;
  const flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW);
  using directory = descriptor(withPurpose(purpose, () => sys.open(path, flags, 0)));
  const buffer = new Uint8Array(32 * 1024);
  for (;;) {
    const length = withPurpose(purpose, () => sys.syscall(SYS_getdents64, directory.fd, buffer, buffer.length, 0));
    if (length === 0) return;
    yield readEntries(buffer.subarray(0, length));
  }
}

// struct linux_dirent64 { u64 d_ino; s64 d_off; u16 d_reclen; u8 d_type; char d_name[]; }
function readEntries(bytes: Uint8Array): DirectoryEntry[] {
  const entries: DirectoryEntry[] = [];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const decoder = new TextDecoder();
  for (let at = 0; at < bytes.length; at += view.getUint16(at + 16, true)) {
    const name = decoder.decode(bytes.subarray(at + 19, bytes.indexOf(0, at + 19)));
    const type = bytes[at + 18];
    const isFile = type === DT_REG || type === DT_UNKNOWN;
    if (name !== "." && name !== "..") entries.push({ name, inode: readInode(view, at), isFile });
  }
  return entries;
}

function readInode(view: DataView, at: number): number | bigint {
  const high = view.getUint32(at + 4, true);
  return high < 2 ** 21 ? high * 2 ** 32 + view.getUint32(at, true) : view.getBigUint64(at, true);
}
