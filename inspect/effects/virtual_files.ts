/** Has a dry run change files in memory, at the system calls. What it reads is what it would have written. @module */
import { TUN_DEVICE } from "../../ffi/route/tap.ts";
import { findEntryNames, SYS_getdents64 } from "../../ffi/sys/directory.ts";
import { EEXIST, ENOENT, ENOTEMPTY } from "../../ffi/sys/errno.ts";
import { ignoreErrors, SystemError } from "../../ffi/sys/error.ts";
import { SYS_pwrite64 } from "../../ffi/sys/file.ts";
import { interceptSystemCalls } from "../../ffi/sys/intercept.ts";
import { addressOf, sys, type SystemCall } from "../../ffi/sys/libc.ts";
import { SYS_fstat, SYS_newfstatat } from "../../ffi/sys/stat.ts";
import {
  AT_FDCWD,
  AT_SYMLINK_NOFOLLOW,
  O_CLOEXEC,
  O_CREAT,
  O_DIRECTORY,
  O_EXCL,
  O_NOFOLLOW,
  O_NONBLOCK,
  O_RDONLY,
  O_RDWR,
  O_TMPFILE,
  O_TRUNC,
  O_WRONLY,
} from "../../ffi/sys/uapi.ts";
import { type Effect, type EffectList, type FileOperation, sysctlEffect } from "./effect.ts";

const SYS_memfd_create = process.arch === "arm64" ? 279 : 319;
const STAT_BYTES = 144;
const CHUNK_BYTES = 64 * 1024;
const MAX_PATH_BYTES = 4096;
const SYSCTL_DIRECTORY = "/proc/sys/";
/** As a path, it leads to the file of a descriptor. */
const OWN_DESCRIPTORS = "/proc/self/fd/";
/** An empty directory stands for those that are not made. */
const ANY_DIRECTORY = "/";

interface MemoryFile {
  readonly fd: number;
}

interface VirtualLink {
  readonly target: string;
}

/** A file in memory, a link or a directory that is made up, or the absence of a file that is there. */
type Stand = MemoryFile | VirtualLink | "directory" | "removed";

const isMemoryFile = (stand: Stand | undefined): stand is MemoryFile => typeof stand === "object" && "fd" in stand;
const isLink = (stand: Stand | undefined): stand is VirtualLink => typeof stand === "object" && "target" in stand;
type Arguments = readonly unknown[];
type Call = (...args: Arguments) => number;

/** The functions as they are before the interception. */
const rawCalls = () => ({
  open: sys.open,
  read: sys.read,
  write: sys.write,
  close: sys.close,
  chmod: sys.chmod,
  syscall: sys.syscall,
  readlink: sys.readlink,
});
type RawCalls = ReturnType<typeof rawCalls>;

interface FileView {
  readonly raw: RawCalls;
  readonly stands: Map<string, Stand>;
  /** Descriptors of kernel parameters, which keep their value. */
  readonly sysctls: Map<number, string>;
  /** Descriptors of {@linkcode ANY_DIRECTORY}, and the paths of directories in whose place they are. */
  readonly emptyDirectories: Map<number, string>;
  readonly directories: Map<number, string>;
  /** Times that directories would get, by device and inode. */
  readonly mtimes: Map<string, readonly [seconds: bigint, nanoseconds: bigint]>;
  readonly effects: EffectList;
  /** True in a copy of the host: what belongs to the network namespace may be changed. */
  readonly isInCopy: boolean;
  /** What effects call the thread's namespace: `host`, or the path of the container. */
  readonly netnsOfThread: () => string;
}

/**
 * Until the scope ends, changes of files become effects.
 *
 * @param isInCopy the thread is in a copy of the host: kernel parameters of its network namespace are written
 */
export function virtualizeFiles(
  effects: EffectList,
  isInCopy: boolean,
  netnsOfThread: () => string,
): Disposable {
  const raw = rawCalls();
  const view: FileView = {
    raw,
    effects,
    isInCopy,
    netnsOfThread,
    stands: new Map(),
    sysctls: new Map(),
    emptyDirectories: new Map(),
    directories: new Map(),
    mtimes: new Map(),
  };
  const names = Object.keys(HANDLERS) as SystemCall[];
  const interception = interceptSystemCalls(names, (name, args, call) => HANDLERS[name]!(view, args, call));
  return {
    [Symbol.dispose]() {
      interception[Symbol.dispose]();
      for (const stand of view.stands.values()) if (isMemoryFile(stand)) raw.close(stand.fd);
    },
  };
}

type Handler = (view: FileView, args: Arguments, call: Call) => number;

const HANDLERS: Partial<Readonly<Record<SystemCall, Handler>>> = {
  open: (view, args, call) => openFile(view, keyOf(args[0]), args[1] as number, args, call),
  close(view, args, call) {
    view.sysctls.delete(args[0] as number);
    view.emptyDirectories.delete(args[0] as number);
    view.directories.delete(args[0] as number);
    return call(...args);
  },
  write: (view, args, call) => writeSysctl(view, args[0], args[1], () => call(...args)) ?? call(...args),
  unlink(view, [path]) {
    removeEntry(view, keyOf(path), "unlink");
    return 0;
  },
  rmdir(view, [path]) {
    if (listNames(view, keyOf(path)).length > 0) throw new SystemError("rmdir", ENOTEMPTY);
    removeEntry(view, keyOf(path), "rmdir");
    return 0;
  },
  mkdir(view, [path]) {
    const key = keyOf(path);
    requireAbsent(view, key, "mkdir");
    requireParent(view, key, "mkdir");
    setStand(view, key, "directory");
    addOperation(view, "create", "directory", key);
    return 0;
  },
  rename(view, [from, to]) {
    const [source, target] = [keyOf(from), keyOf(to)];
    const isNew = typeof view.stands.get(source) === "object";
    const stand = standFor(view, source, "rename");
    withdraw(view, source);
    view.stands.delete(source);
    setStand(view, source, "removed");
    setStand(view, target, stand);
    if (!isNew) {
      withdraw(view, target);
      add(view, "change", `rename file "${source}" to "${target}"`, target);
    } else if (isLink(stand)) addLink(view, target, stand);
    else addCreation(view, target);
    return 0;
  },
  linkat(view, [, from, , to]) {
    const target = keyOf(to);
    requireAbsent(view, target, "linkat");
    requireParent(view, target, "linkat");
    const source = String(from);
    if (source.startsWith(OWN_DESCRIPTORS)) {
      setStand(view, target, { fd: reopen(view, Number(source.slice(OWN_DESCRIPTORS.length)), O_RDWR) });
    } else {
      const stand = standFor(view, keyOf(from), "linkat");
      setStand(view, target, isMemoryFile(stand) ? { fd: reopen(view, stand.fd, O_RDWR) } : stand);
    }
    addCreation(view, target);
    return 0;
  },
  symlink(view, [target, path]) {
    const key = keyOf(path);
    const link = { target: String(target) };
    requireAbsent(view, key, "symlink");
    requireParent(view, key, "symlink");
    setStand(view, key, link);
    addLink(view, key, link);
    return 0;
  },
  chmod(view, [path, mode]) {
    const key = keyOf(path);
    const stand = standFor(view, key, "chmod");
    if (isMemoryFile(stand)) view.raw.chmod(`${OWN_DESCRIPTORS}${stand.fd}`, mode as number);
    add(view, "change", `change the mode of "${key}" to 0${(mode as number).toString(8)}`, key);
    return 0;
  },
  futimens(view, [fd, times]) {
    const [, , seconds = 0n, nanoseconds = 0n] = times as BigInt64Array;
    const bytes = new Uint8Array(STAT_BYTES);
    view.raw.syscall(SYS_fstat, fd as number, bytes, 0, 0);
    view.mtimes.set(identityOf(bytes), [seconds, nanoseconds]);
    return 0;
  },
  fsync: () => 0,
  mount(view, [source, target]) {
    add(view, "change", `mount "${source}" at "${target}"`, String(target));
    return 0;
  },
  umount2(view, [target]) {
    add(view, "change", `unmount "${target}"`, String(target));
    return 0;
  },
  readlink(view, args, call) {
    const key = keyOf(args[0]);
    const stand = view.stands.get(key);
    const directory = key.startsWith(OWN_DESCRIPTORS)
      ? view.emptyDirectories.get(Number(key.slice(OWN_DESCRIPTORS.length)))
      : undefined;
    const target = isLink(stand) ? stand.target : directory;
    if (target !== undefined) return new TextEncoder().encodeInto(target, args[1] as Uint8Array).written;
    if (stand === "removed") throw new SystemError("readlink", ENOENT);
    return stand === undefined ? call(...args) : call(ANY_DIRECTORY, ...args.slice(1));
  },
  syscall(view, args, call) {
    const [number, first, second] = args;
    if (number === SYS_pwrite64) return writeSysctl(view, first, second, () => call(...args)) ?? call(...args);
    if (number === SYS_getdents64) return listEntries(view, args, call);
    if (number === SYS_newfstatat) return findStatus(view, args, call);
    if (number === SYS_fstat) return withMtime(view, second, call(...args));
    return call(...args);
  },
};

/** The command may have the former file open: it has its own descriptor of it. */
function setStand({ stands, raw }: FileView, key: string, stand: Stand): void {
  const former = stands.get(key);
  stands.set(key, stand);
  if (isMemoryFile(former) && former !== stand) raw.close(former.fd);
}

function keyOf(path: unknown): string {
  return String(path).replace(/[/]+/g, "/").replace(/(.)[/]$/, "$1");
}

const ACTIONS = { create: "add", replace: "change", write: "change", remove: "remove" } as const;

function addOperation(
  { effects }: FileView,
  operation: FileOperation,
  object: "file" | "directory",
  target: string,
): void {
  const sentence = `${operation} ${object} "${target}"`;
  effects.add({ kind: "file", action: ACTIONS[operation], sentence, target, object, operation });
}

function add({ effects }: FileView, action: Effect["action"], sentence: string, target: string): void {
  effects.add({ kind: "file", action, sentence, target });
}

/** A file that was there before is replaced, even if it was removed meanwhile. */
function addCreation(view: FileView, key: string): void {
  withdraw(view, key);
  addOperation(view, realExists(view, key) ? "replace" : "create", "file", key);
}

function addLink(view: FileView, key: string, { target }: VirtualLink): void {
  withdraw(view, key);
  add(view, realExists(view, key) ? "change" : "add", `link "${key}" to "${target}"`, key);
}

/** What was created and removed again is no effect. */
function withdraw({ effects }: FileView, key: string): void {
  effects.withdrawFile(key);
}

function openFile(view: FileView, key: string, flags: number, args: Arguments, call: Call): number {
  const { stands, sysctls } = view;
  const isWritten = (flags & (O_WRONLY | O_RDWR)) !== 0;
  if (key.startsWith(SYSCTL_DIRECTORY) && isWritten) {
    const isOfCopy = view.isInCopy && key.startsWith(`${SYSCTL_DIRECTORY}net/`);
    const fd = isOfCopy ? call(...args) : call(args[0], O_RDONLY | O_CLOEXEC, 0);
    sysctls.set(fd, key.slice(SYSCTL_DIRECTORY.length));
    return fd;
  }
  if (isKernelFile(key) && !stands.has(key)) return isWritten ? writeKernelFile(view, key, args, call) : call(...args);
  if ((flags & O_TMPFILE) === O_TMPFILE) {
    if (stands.get(key) !== "directory") view.raw.close(call(key, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0));
    return newMemoryFile(view, args[2] as number);
  }
  if (!exists(view, key)) {
    if (!(flags & O_CREAT)) throw new SystemError("open", ENOENT);
    return createFile(view, key, flags, args[2] as number);
  }
  if (flags & O_CREAT && flags & O_EXCL) throw new SystemError("open", EEXIST);
  const stand = stands.get(key);
  if (stand === "directory") return openEmptyDirectory(view, key, call);
  if (isLink(stand)) {
    const path = followLink(key, stand);
    return openFile(view, path, flags, [path, ...args.slice(1)], call);
  }
  if (isMemoryFile(stand)) return reopen(view, stand.fd, flags);
  if (!isWritten || flags & O_DIRECTORY) {
    const fd = call(args[0], flags & ~O_CREAT, 0);
    if (flags & O_DIRECTORY) view.directories.set(fd, key);
    return fd;
  }
  const copy = standFor(view, key, "open");
  if (!isMemoryFile(copy)) return openFile(view, key, flags, args, call);
  addOperation(view, "write", "file", key);
  return reopen(view, copy.fd, flags);
}

function followLink(key: string, { target }: VirtualLink): string {
  const parts: string[] = [];
  for (const part of (target.startsWith("/") ? target : `${key}/../${target}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

/** Not those of `/dev/shm`, which are like others. */
const isKernelFile = (key: string): boolean => /^[/](proc|sys|dev(?![/]shm[/]))[/]/.test(key);

/** What the command does to itself passes, and taps of the copy. Their content means nothing, so it is not copied. */
function writeKernelFile(view: FileView, key: string, args: Arguments, call: Call): number {
  const isOwn = /^[/]proc[/](thread-)?self[/]|^[/]dev[/]null$/.test(key);
  if (isOwn || (view.isInCopy && key === TUN_DEVICE)) return call(...args);
  const fd = newMemoryFile(view);
  setStand(view, key, { fd });
  addOperation(view, "write", "file", key);
  return reopen(view, fd, args[1] as number);
}

function createFile(view: FileView, key: string, flags: number, mode: number): number {
  requireParent(view, key, "open");
  const fd = newMemoryFile(view, mode);
  setStand(view, key, { fd });
  addCreation(view, key);
  return reopen(view, fd, flags);
}

function openEmptyDirectory({ emptyDirectories }: FileView, key: string, call: Call): number {
  const fd = call(ANY_DIRECTORY, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
  emptyDirectories.set(fd, key);
  return fd;
}

/** The file in memory for a path; a copy if there is none yet. @throws {SystemError} `ENOENT` */
function standFor(view: FileView, key: string, syscall: string): Stand {
  const stand = view.stands.get(key);
  if (stand === "removed" || !exists(view, key)) throw new SystemError(syscall, ENOENT);
  if (stand !== undefined) return stand;
  const target = findRealTarget(view, key);
  const copy = target === undefined ? { fd: copyFile(view, key) } : { target };
  setStand(view, key, copy);
  return copy;
}

function findRealTarget({ raw }: FileView, key: string): string | undefined {
  const buffer = new Uint8Array(MAX_PATH_BYTES);
  const length = ignoreErrors(["EINVAL"], () => raw.readlink(key, buffer, buffer.length));
  return length === undefined ? undefined : new TextDecoder().decode(buffer.subarray(0, length));
}

function copyFile(view: FileView, key: string): number {
  const { raw } = view;
  using resources = new DisposableStack();
  const source = raw.open(key, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  resources.defer(() => void raw.close(source));
  using unfinished = new DisposableStack();
  const target = newMemoryFile(view);
  unfinished.defer(() => void raw.close(target));
  const buffer = new Uint8Array(CHUNK_BYTES);
  for (let count; (count = raw.read(source, buffer, buffer.length)) > 0;) {
    raw.write(target, buffer.subarray(0, count), count);
  }
  unfinished.move();
  return target;
}

function newMemoryFile({ raw }: FileView, mode = 0o600): number {
  const name = new TextEncoder().encode("dry-run\0");
  const fd = raw.syscall(SYS_memfd_create, addressOf(name), null, 0, 0);
  raw.chmod(`${OWN_DESCRIPTORS}${fd}`, mode);
  return fd;
}

function reopen({ raw }: FileView, fd: number, flags: number): number {
  return raw.open(
    `${OWN_DESCRIPTORS}${fd}`,
    flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW) & (O_WRONLY | O_RDWR | O_TRUNC | O_CLOEXEC),
    0,
  );
}

function exists({ raw, stands }: FileView, key: string): boolean {
  const stand = stands.get(key);
  if (stand !== undefined) return stand !== "removed";
  const path = new TextEncoder().encode(`${key}\0`);
  return ignoreErrors(
    ["ENOENT", "ENOTDIR", "ELOOP"],
    () => raw.syscall(SYS_newfstatat, AT_FDCWD, path, new Uint8Array(STAT_BYTES), AT_SYMLINK_NOFOLLOW),
  ) !== undefined;
}

function requireAbsent(view: FileView, key: string, syscall: string): void {
  if (exists(view, key)) throw new SystemError(syscall, EEXIST);
}

function requireParent(view: FileView, key: string, syscall: string): void {
  if (!exists(view, key.slice(0, Math.max(1, key.lastIndexOf("/"))))) throw new SystemError(syscall, ENOENT);
}

function removeEntry(view: FileView, key: string, syscall: "unlink" | "rmdir"): void {
  if (!exists(view, key)) throw new SystemError(syscall, ENOENT);
  const isReal = realExists(view, key);
  withdraw(view, key);
  setStand(view, key, "removed");
  if (isReal) addOperation(view, "remove", syscall === "rmdir" ? "directory" : "file", key);
}

function listNames({ stands }: FileView, key: string): string[] {
  const isInside = (path: string) => path.startsWith(`${key}/`) && !path.slice(key.length + 1).includes("/");
  const added = [...stands].filter(([path, stand]) => stand !== "removed" && isInside(path)).map(([path]) => path);
  // The handlers leave out what would be removed.
  return [...added, ...findEntryNames(key) ?? []];
}

function realExists(view: FileView, key: string): boolean {
  return exists({ ...view, stands: new Map() }, key);
}

/** struct stat begins with the device and the inode. */
const identityOf = (stat: Uint8Array): string => stat.subarray(0, 16).toHex();

function withMtime({ mtimes }: FileView, stat: unknown, result: number): number {
  const MTIME_OFFSET = 88;
  const bytes = stat as Uint8Array;
  const [seconds, nanoseconds] = mtimes.get(identityOf(bytes)) ?? [];
  if (seconds === undefined || nanoseconds === undefined) return result;
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  view.setBigInt64(MTIME_OFFSET, seconds, true);
  view.setBigInt64(MTIME_OFFSET + 8, nanoseconds, true);
  return result;
}

/** getdents64(2) without what would be removed; see readEntries() for the layout. */
function listEntries(view: FileView, args: Arguments, call: Call): number {
  const fd = args[1] as number;
  const buffer = args[2] as Uint8Array;
  if (view.emptyDirectories.has(fd)) return 0;
  const length = call(...args);
  const directory = view.directories.get(fd);
  if (directory === undefined) return length;
  let kept = 0;
  for (let at = 0, size; at < length; at += size) {
    size = buffer[at + 16]! + buffer[at + 17]! * 256;
    const name = new TextDecoder().decode(buffer.subarray(at + 19, buffer.indexOf(0, at + 19)));
    if (view.stands.get(`${directory}/${name}`) === "removed") continue;
    buffer.copyWithin(kept, at, at + size);
    kept += size;
  }
  // Zero would mean the end.
  return kept === 0 && length > 0 ? listEntries(view, args, call) : kept;
}

/** The system call is newfstatat(AT_FDCWD, path, …). */
function findStatus(view: FileView, args: Arguments, call: Call): number {
  const [number, directory, path, ...rest] = args;
  const stand = view.stands.get(keyOf(new TextDecoder().decode(path as Uint8Array).split("\0")[0]));
  if (stand === undefined) return withMtime(view, rest[0], call(...args));
  if (stand === "removed") throw new SystemError("newfstatat", ENOENT);
  if (isLink(stand)) {
    const key = followLink(keyOf(new TextDecoder().decode(path as Uint8Array).split("\0")[0]), stand);
    return findStatus(view, [number, directory, new TextEncoder().encode(`${key}\0`), ...rest], call);
  }
  const target = stand === "directory" ? ANY_DIRECTORY : `${OWN_DESCRIPTORS}${stand.fd}`;
  return call(number, directory, new TextEncoder().encode(`${target}\0`), rest[0], 0);
}

/** @returns the number of bytes; `undefined` for another file */
function writeSysctl(
  { sysctls, effects, isInCopy, netnsOfThread }: FileView,
  fd: unknown,
  bytes: unknown,
  write: () => number,
): number | undefined {
  const name = sysctls.get(fd as number);
  if (name === undefined || !(bytes instanceof Uint8Array)) return undefined;
  const isOfNetns = name.startsWith("net/");
  if (isInCopy && isOfNetns) write();
  const value = new TextDecoder().decode(bytes).trim();
  effects.add(sysctlEffect(name, value, isOfNetns ? netnsOfThread() : undefined));
  return bytes.length;
}
