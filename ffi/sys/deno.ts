/** Files under Deno, which has no `bun:ffi`, by its own functions. Every other system call throws. @module */
import { SYS_getdents64 } from "./directory.ts";
import { EBADF, findErrno } from "./errno.ts";
import { SystemError } from "./error.ts";
import { sys, type SystemCall } from "./libc.ts";
import { SYS_fstat, SYS_newfstatat } from "./stat.ts";
import { O_DIRECTORY, O_RDWR, O_WRONLY } from "./uapi.ts";

interface DenoFiles {
  readonly stdin: DenoStream;
  readonly stdout: DenoStream;
  readonly stderr: DenoStream;
  openSync(path: string): DenoFile;
  readDirSync(path: string): Iterable<{ readonly name: string; readonly isFile: boolean }>;
  readLinkSync(path: string): string;
  statSync(path: string): DenoFileInfo;
  lstatSync(path: string): DenoFileInfo;
}
interface DenoStream {
  readSync?(buffer: Uint8Array): number | null;
  writeSync?(bytes: Uint8Array): number;
}
interface DenoFile extends DenoStream {
  statSync(): DenoFileInfo;
  close(): void;
}
interface DenoFileInfo {
  readonly dev: number;
  readonly ino: number | null;
  readonly mode: number | null;
  readonly size: number;
  readonly mtime: Date | null;
  readonly ctime: Date | null;
}

/** A stream, the entries of a directory that are left, or a namespace. */
type OpenFile = DenoStream & Partial<DenoFile> & { readonly entries?: DirectoryEntries };
type DirectoryEntries = { readonly name: string; readonly isFile: boolean }[];
/** The arguments have the types of the table in libc.ts, which the callers saw. */
// deno-lint-ignore no-explicit-any
type Call = (...args: readonly any[]) => number;

const arm = process.arch === "arm64";
/** Deno opens none without all permissions. A handle is made before anything is done with it. */
const NETNS_PATH = /^\/proc\/[^/]+\/ns\/net$/;

/** From then on, the functions of {@linkcode sys} that read files work under Deno. */
export function useDenoFiles(): void {
  const { Deno: deno } = globalThis as unknown as { readonly Deno: DenoFiles };
  for (const [name, call] of Object.entries(fileCalls(deno)) as [SystemCall, Call][]) {
    const value: Call = (...args) => withErrno(name, () => call(...args));
    // Configurable, for interceptSystemCalls().
    Object.defineProperty(sys, name, { value, configurable: true });
  }
  const refuse = (name: string) => () => {
    throw needsBun(name);
  };
  Object.setPrototypeOf(sys, new Proxy({}, { get: (_, name) => refuse(String(name)) }));
}

function fileCalls(deno: DenoFiles): Partial<Record<SystemCall, Call>> {
  const files = new Map<number, OpenFile>([[0, deno.stdin], [1, deno.stdout], [2, deno.stderr]]);
  const find = (fd: number): OpenFile => {
    const file = files.get(fd);
    if (file) return file;
    throw new SystemError("read", EBADF);
  };
  return {
    open(path, flags) {
      const fd = Math.max(...files.keys()) + 1;
      files.set(fd, openFileOf(deno, path, flags));
      return fd;
    },
    read: (fd, buffer) => find(fd).readSync?.(buffer) ?? 0,
    write: (fd, bytes) => find(fd).writeSync?.(bytes) ?? 0,
    close(fd) {
      find(fd).close?.();
      files.delete(fd);
      return 0;
    },
    readlink: (path, buffer) => new TextEncoder().encodeInto(deno.readLinkSync(path), buffer).written,
    syscall(number, first, second, third, fourth) {
      if (number === SYS_getdents64) return takeEntries(find(first).entries ?? [], second);
      const file = number === SYS_fstat ? find(first) : undefined;
      if (file?.statSync) {
        writeStat(second, file.statSync());
        return 0;
      }
      if (number !== SYS_newfstatat) throw needsBun(`syscall ${number}`);
      const path = new TextDecoder().decode((second as Uint8Array).subarray(0, -1));
      writeStat(third, fourth === 0 ? deno.statSync(path) : deno.lstatSync(path));
      return 0;
    },
  };
}

const needsBun = (call: string): Error =>
  new Error(
    `Cannot call ${call} under Deno: run the program with Bun; Deno can load, check and convert configurations, and derive requests`,
  );

function openFileOf(deno: DenoFiles, path: string, flags: number): OpenFile {
  if ((flags & (O_WRONLY | O_RDWR)) !== 0) throw needsBun("open for writing");
  if (NETNS_PATH.test(path)) return {};
  if ((flags & O_DIRECTORY) !== 0) return { entries: [...deno.readDirSync(path)] };
  try {
    return deno.openSync(path);
  } catch (error) {
    // Only all permissions together open these.
    const isKernels = path.startsWith("/proc/") && (error as Error).name === "NotCapable";
    throw isKernels ? needsBun("open") : error;
  }
}

/** Deno's errors have the code of the system call. Where it lacks a permission, its own message says so. */
function withErrno(name: SystemCall, call: () => number): number {
  try {
    return call();
  } catch (error) {
    const errno = error instanceof SystemError
      ? undefined
      : findErrno((error as { readonly code?: string }).code ?? "");
    throw errno === undefined ? error : new SystemError(name, errno);
  }
}

/** Takes as many as fit into the buffer. @see readEntries() of directory.ts */
function takeEntries(entries: DirectoryEntries, buffer: Uint8Array): number {
  const view = new DataView(buffer.buffer, buffer.byteOffset, buffer.length);
  let at = 0;
  for (let entry = entries[0]; entry; entry = entries[0]) {
    const name = new TextEncoder().encode(entry.name);
    const length = 19 + name.length + 1;
    if (at + length > buffer.length) break;
    view.setUint16(at + 16, length, true);
    // DT_REG and DT_DIR
    buffer[at + 18] = entry.isFile ? 8 : 4;
    buffer.set(name, at + 19);
    buffer[at + 19 + name.length] = 0;
    at += length;
    entries.shift();
  }
  return at;
}

/** @see parseStat() of stat.ts */
function writeStat(bytes: Uint8Array, { dev, ino, mode, size, mtime, ctime }: DenoFileInfo): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  view.setBigUint64(0, BigInt(dev), true);
  view.setBigUint64(8, BigInt(ino ?? 0), true);
  view.setUint32(arm ? 16 : 24, mode ?? 0, true);
  view.setBigInt64(48, BigInt(size), true);
  for (const [at, time] of [[88, mtime], [104, ctime]] as const) {
    const milliseconds = BigInt(time?.getTime() ?? 0);
    view.setBigInt64(at, milliseconds / 1000n, true);
    view.setBigInt64(at + 8, milliseconds % 1000n * 1_000_000n, true);
  }
}
