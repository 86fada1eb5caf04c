/** The C library's functions. Only this module knows `bun:ffi`; importing it does no work. @module */
import type { dlopen, ptr, read } from "bun:ffi";
import { EBADF, EINTR } from "./errno.ts";
import { SystemError } from "./error.ts";

/** The types of Bun lack `bun:ffi` without its wrappers, which take 0.6 ms to load. */
interface BunWithFfi {
  readonly FFI: { readonly dlopen: typeof dlopen; readonly ptr: typeof ptr; readonly read: typeof read };
}
/** Deno has none: see `deno.ts`. */
const { Bun: BUN } = globalThis as unknown as { readonly Bun: BunWithFfi };

type CBuffer = Uint8Array | Uint16Array | Uint32Array | Int32Array | BigInt64Array | BigUint64Array | null;
interface CArguments {
  readonly i32: number;
  readonly i64_fast: number;
  readonly cstring: string;
  readonly ptr: CBuffer;
  /** An alias of `ptr` that marks a buffer or a number. */
  readonly pointer: CBuffer | number;
}
type CType = keyof CArguments;
/** Short, since every call of the binary makes the table. */
type Signature = readonly [returns: "i32" | "i64_fast" | "ptr", ...args: CType[]];
type Arguments<S extends Signature> = S extends readonly [unknown, ...infer A extends readonly CType[]]
  ? { -readonly [I in keyof A]: CArguments[A[I]] }
  : never;

/** Functions of glibc 2.17 and musl; others go through `syscall`. renameat2() is for glibc in `cni-lib`, which has it. */
const SIGNATURES = {
  __errno_location: ["ptr"],
  accept4: ["i32", "i32", "ptr", "ptr", "i32"],
  bind: ["i32", "i32", "ptr", "i32"],
  chmod: ["i32", "cstring", "i32"],
  chroot: ["i32", "cstring"],
  close: ["i32", "i32"],
  connect: ["i32", "i32", "ptr", "i32"],
  dup2: ["i32", "i32", "i32"],
  epoll_create1: ["i32", "i32"],
  epoll_ctl: ["i32", "i32", "i32", "i32", "ptr"],
  epoll_wait: ["i32", "i32", "ptr", "i32", "i32"],
  execvp: ["i32", "cstring", "ptr"],
  faccessat: ["i32", "i32", "cstring", "i32", "i32"],
  fchdir: ["i32", "i32"],
  fcntl: ["i32", "i32", "i32", "pointer"],
  flock: ["i32", "i32", "i32"],
  fstatfs: ["i32", "i32", "ptr"],
  fsync: ["i32", "i32"],
  futimens: ["i32", "i32", "ptr"],
  getppid: ["i32"],
  getsockname: ["i32", "i32", "ptr", "ptr"],
  getsockopt: ["i32", "i32", "i32", "i32", "ptr", "ptr"],
  ioctl: ["i32", "i32", "i64_fast", "pointer"],
  linkat: ["i32", "i32", "cstring", "i32", "cstring", "i32"],
  listen: ["i32", "i32", "i32"],
  mkdir: ["i32", "cstring", "i32"],
  mount: ["i32", "cstring", "cstring", "cstring", "i64_fast", "ptr"],
  open: ["i32", "cstring", "i32", "i32"],
  poll: ["i32", "ptr", "i64_fast", "i32"],
  prctl: ["i32", "i32", "i64_fast", "i64_fast", "i64_fast", "i64_fast"],
  read: ["i64_fast", "i32", "ptr", "i64_fast"],
  readlink: ["i64_fast", "cstring", "ptr", "i64_fast"],
  recv: ["i64_fast", "i32", "ptr", "i64_fast", "i32"],
  recvfrom: ["i64_fast", "i32", "ptr", "i64_fast", "i32", "ptr", "ptr"],
  recvmsg: ["i64_fast", "i32", "ptr", "i32"],
  recvmmsg: ["i32", "i32", "ptr", "i32", "i32", "ptr"],
  rename: ["i32", "cstring", "cstring"],
  renameat2: ["i32", "i32", "cstring", "i32", "cstring", "i32"],
  rmdir: ["i32", "cstring"],
  send: ["i64_fast", "i32", "ptr", "i64_fast", "i32"],
  sendmsg: ["i64_fast", "i32", "ptr", "i32"],
  sendto: ["i64_fast", "i32", "ptr", "i64_fast", "i32", "ptr", "i32"],
  setns: ["i32", "i32", "i32"],
  setsockopt: ["i32", "i32", "i32", "i32", "ptr", "i32"],
  signalfd: ["i32", "i32", "ptr", "i32"],
  sigaction: ["i32", "i32", "ptr", "ptr"],
  signal: ["i64_fast", "i32", "ptr"],
  sigpending: ["i32", "ptr"],
  sigprocmask: ["i32", "i32", "ptr", "ptr"],
  socket: ["i32", "i32", "i32", "i32"],
  socketpair: ["i32", "i32", "i32", "i32", "ptr"],
  statfs: ["i32", "cstring", "ptr"],
  symlink: ["i32", "cstring", "cstring"],
  syscall: ["i64_fast", "i64_fast", "i64_fast", "pointer", "pointer", "i64_fast"],
  umask: ["i32", "i32"],
  umount2: ["i32", "cstring", "i32"],
  unlink: ["i32", "cstring"],
  unshare: ["i32", "i32"],
  write: ["i64_fast", "i32", "ptr", "i64_fast"],
  kill: ["i32", "i32", "i32"],
  raise: ["i32", "i32"],
  lseek: ["i64_fast", "i32", "i64_fast", "i32"],
  pipe2: ["i32", "ptr", "i32"],
  posix_spawn: ["i32", "ptr", "cstring", "ptr", "ptr", "ptr", "ptr"],
  posix_spawn_file_actions_addclose: ["i32", "ptr", "i32"],
  posix_spawn_file_actions_adddup2: ["i32", "ptr", "i32", "i32"],
  posix_spawn_file_actions_destroy: ["i32", "ptr"],
  posix_spawn_file_actions_init: ["i32", "ptr"],
  posix_spawnattr_init: ["i32", "ptr"],
  posix_spawnattr_setflags: ["i32", "ptr", "i32"],
  posix_spawnattr_setsigdefault: ["i32", "ptr", "ptr"],
  waitid: ["i32", "i32", "i32", "ptr", "i32"],
} as const satisfies Record<string, Signature>;

type Signatures = typeof SIGNATURES;
type Sys = {
  readonly [N in keyof Signatures]: (...args: Arguments<Signatures[N]>) => number;
};
type Call = (...args: unknown[]) => number;
type NativeFunction = Call & { readonly ptr: number };

/**
 * Each function is looked up on first use, which takes 6 µs.
 *
 * Interrupted calls are repeated, except flock(2), which only a signal ends in time.
 *
 * @throws {SystemError} if a call fails; close(2) for a wrong number only
 */
export const sys: Sys = Object.create(
  new Proxy({}, {
    get(_, name, self) {
      const value = bindFunction(name as keyof Signatures);
      // Configurable, for interceptSystemCalls().
      Object.defineProperty(self, name, { value, configurable: true });
      return value;
    },
  }),
);

export type SystemCall = keyof Signatures;

/** errno is per thread, and the thread never changes. */
let errnoAddress: number | undefined;

function bindFunction(name: keyof Signatures): Call {
  const native = openFunction(name);
  // Before the call, since the lookup may change errno.
  const errnoAt = errnoAddress ??= openFunction("__errno_location")();
  const count = SIGNATURES[name].length - 1;
  // An array of the arguments would cost a microsecond, more than many system calls. Surplus ones are ignored.
  return (a, b, c, d, e, f) => {
    const isSafe = (count < 1 || isSafeArgument(a)) && (count < 2 || isSafeArgument(b)) &&
      (count < 3 || isSafeArgument(c)) && (count < 4 || isSafeArgument(d)) &&
      (count < 5 || isSafeArgument(e)) && (count < 6 || isSafeArgument(f));
    if (!isSafe) throw unsafeArgumentError(name, [a, b, c, d, e, f].slice(0, count));
    for (;;) {
      const result = native(a, b, c, d, e, f);
      if (result >= 0) return result;
      const code = BUN.FFI.read.i32(errnoAt as Parameters<typeof read.i32>[0], 0);
      if (name === "close") {
        // On other errors close(2) has closed the descriptor, and fsync(2) has reported what matters.
        if (code !== EBADF) return 0;
      } else if (code === EINTR && name !== "flock") continue;
      throw new SystemError(name, code);
    }
  };
}

export function noopFunctionAddress(): number {
  return openFunction("getppid").ptr;
}

function openFunction(name: keyof Signatures): NativeFunction {
  const [returns, ...args]: Signature = SIGNATURES[name];
  // This name is safe: it is mapped already. Others are looked up in the current directory.
  const library = BUN.FFI.dlopen("libc.so.6", { [name]: { returns, args } } as Parameters<typeof dlopen>[1]);
  // It returns errors instead of throwing.
  if (Error.isError(library)) throw new Error(openFailure(library), { cause: library });
  return (library.symbols as unknown as Record<string, NativeFunction>)[name]!;
}

function openFailure({ message }: Error): string {
  return message.includes("requires the JIT")
    ? "Cannot get executable memory: allow it (MemoryDenyWriteExecute=no in systemd, execmem in SELinux)"
    : message;
}

function unsafeArgumentError(name: string, args: readonly unknown[]): TypeError {
  const unsafe = args.find((arg) => !isSafeArgument(arg));
  return new TypeError(`Cannot call ${name}: unusable argument ${JSON.stringify(unsafe)}`);
}

/** bun:ffi makes `undefined` 0 (`close(undefined)` would close standard input) and cuts strings at a NUL. */
function isSafeArgument(arg: unknown): boolean {
  if (typeof arg === "number") return Number.isSafeInteger(arg);
  if (typeof arg === "string") return !arg.includes("\0");
  return arg === null || ArrayBuffer.isView(arg);
}

/** Replaces this process by a program, found in PATH. @see execvp(3) */
export function execProgram(argv: readonly [string, ...string[]], path = argv[0]): never {
  // SIGPIPE and SIGXFSZ, see spawnAttributes().
  for (const signal of [13, 25]) sys.signal(signal, null);
  sys.execvp(path, cStringArray(argv));
  throw new Error(`Cannot execute "${path}": its arguments were taken and nothing happened`);
}

/**
 * An `argv` or `environ`: pointers and texts in one buffer, so that they live equally long.
 *
 * @throws {TypeError} if a text holds a NUL
 */
export function cStringArray(strings: readonly string[]): Uint32Array {
  let joined = "";
  for (const text of strings) joined += `${text}\0`;
  // Encoding texts one by one takes 0.25 ms for an ordinary environment.
  const encoded = new TextEncoder().encode(joined);
  const headerBytes = (strings.length + 1) * 8;
  const table = new Uint32Array(Math.ceil((headerBytes + encoded.length) / 4));
  new Uint8Array(table.buffer).set(encoded, headerBytes);
  // After the view above, which may move a small array.
  const address = BUN.FFI.ptr(table) + headerBytes;
  let offset = 0;
  for (let index = 0; index < strings.length; index++) {
    putPointer(table, index * 2, address + offset);
    offset = encoded.indexOf(0, offset) + 1;
  }
  if (offset === encoded.length) return table;
  const invalid = strings.find((text) => text.includes("\0"));
  throw new TypeError(`Cannot pass ${JSON.stringify(invalid)} to a program: it holds a NUL`);
}

/**
 * A struct sock_fprog with instructions of two words each. `address` is valid while `memory` is referenced.
 *
 * @see linux/filter.h
 */
export function newSockFprog(words: readonly number[]): { readonly memory: Uint32Array; readonly address: number } {
  const memory = new Uint32Array(4 + words.length);
  const address = BUN.FFI.ptr(memory) as number;
  memory.set([words.length / 2, 0, 0, 0, ...words]);
  putPointer(memory, 2, address + 16);
  return { memory, address };
}

/** The address of an array. It may move until its buffer was asked for, unless it was made on an explicit one. */
export const addressOf = (array: ArrayBufferView): number => BUN.FFI.ptr(array as Uint8Array) as number;

export function putPointer(words: Uint32Array, at: number, address: number): void {
  words[at] = address;
  words[at + 1] = Math.floor(address / 2 ** 32);
}
