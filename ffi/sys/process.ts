/** Child programs with pipes as standard streams, without an event loop. @module */
import { ignoreErrors, SystemError } from "./error.ts";
import { copyDescriptor } from "./file.ts";
import { cStringArray, sys } from "./libc.ts";
import { newSigset } from "./signals.ts";
import { O_CLOEXEC, SIGCHLD, SYS_pidfd_open } from "./uapi.ts";

// linux/wait.h
const P_ALL = 0;
const P_PID = 1;
const WNOHANG = 1;
const WEXITED = 4;
const WNOWAIT = 0x01000000;
const CLD_EXITED = 1;
// spawn.h
const POSIX_SPAWN_SETPGROUP = 0x02;
const POSIX_SPAWN_SETSID = 128;
const POSIX_SPAWN_SETSIGDEF = 0x04;
const POSIX_SPAWN_SETSIGMASK = 0x08;
// asm-generic/signal.h
const SIGPIPE = 13;
const SIGXFSZ = 25;

// Before Linux 5.3, in sandboxes, or with too many open files: then the exit is polled for.
const NO_PIDFD_CODES = ["ENOSYS", "EPERM", "EINVAL", "ENODEV", "EMFILE", "ENFILE", "ENOMEM"];

/** The caller closes the descriptors and reaps it. */
export interface ChildProcess {
  readonly pid: number;
  readonly stdin: number;
  readonly stdout: number;
  readonly stderr: number;
  /** Readable after the exit; -1 where the kernel has none. */
  readonly pidfd: number;
}

export type ExitStatus = { readonly status: number } | { readonly signal: number };

/**
 * Starts a program in this thread's directory and namespaces. It inherits locks opened for children.
 *
 * @param env its whole environment: `NAME=value`
 * @param group whether it leads a process group, to end its children too
 * @param args without its name
 * @throws {SystemError} also if it cannot be executed: `ETXTBSY`, `ENOEXEC`
 */
export function startProgram(
  path: string,
  env: readonly string[],
  group: boolean,
  args: readonly string[] = [],
): ChildProcess {
  // A DisposableStack takes 0.25 ms on first use.
  const fds: number[] = [];
  try {
    for (let count = 0; count < 3; count++) openPipe(fds);
    const [stdin = -1, stdinWriter = -1, stdoutReader = -1, stdout = -1, stderrReader = -1, stderr = -1] = fds;
    // If a parent ignored SIGCHLD, the kernel would reap children before us.
    sys.signal(SIGCHLD, null);
    const pid = posixSpawn(path, [path, ...args], env, [stdin, stdout, stderr], group ? POSIX_SPAWN_SETPGROUP : 0);
    const pidfd = ignoreErrors(NO_PIDFD_CODES, () => sys.syscall(SYS_pidfd_open, pid, null, 0, 0)) ?? -1;
    for (const fd of [stdin, stdout, stderr]) sys.close(fd);
    return { pid, stdin: stdinWriter, stdout: stdoutReader, stderr: stderrReader, pidfd };
  } catch (error) {
    for (const fd of fds) sys.close(fd);
    throw error;
  }
}

/**
 * Starts a program with `fds` as its descriptors from 0 on. It leads a session: a terminal's signals do not reach it
 * and its children. It may use any terminal without being stopped.
 *
 * @returns its process number
 */
export function startWithDescriptors(
  path: string,
  argv: readonly string[],
  env: readonly string[],
  fds: readonly number[],
): number {
  // Out of the way: no copy below may replace one that is still needed.
  using copies = new DisposableStack();
  const streams = fds.map((fd) => copies.use(copyDescriptor(fd)).fd);
  return posixSpawn(path, argv, env, streams, POSIX_SPAWN_SETSID);
}

/** Returns `undefined` if no child has ended. @throws {SystemError} `ECHILD` */
export function reapAnyChild(): { readonly pid: number; readonly exitStatus: ExitStatus } | undefined {
  return reapChild(P_ALL, 0, 0);
}

/** These ends close on exec; `dup2` copies do not. */
function openPipe(fds: number[]): void {
  const ends = new Int32Array(2);
  sys.pipe2(ends, O_CLOEXEC);
  fds.push(ends[0]!, ends[1]!);
}

function posixSpawn(
  path: string,
  command: readonly string[],
  env: readonly string[],
  streams: readonly number[],
  flags: number,
): number {
  const pid = new Int32Array(1);
  // More than any C library's posix_spawn_file_actions_t (80 bytes) and posix_spawnattr_t (336).
  const actions = new Uint8Array(1024);
  const argv = cStringArray(command);
  const environ = cStringArray(env);
  sys.posix_spawn_file_actions_init(actions);
  try {
    streams.forEach((fd, number) => sys.posix_spawn_file_actions_adddup2(actions, fd, number));
    // The JavaScript runtime closes inherited descriptors from 4 on.
    sys.posix_spawn_file_actions_addclose(actions, streams.length);
    const failure = sys.posix_spawn(pid, path, actions, spawnAttributes(flags), argv, environ);
    if (failure !== 0) throw new SystemError("posix_spawn", failure, `start "${path}"`);
  } finally {
    sys.posix_spawn_file_actions_destroy(actions);
  }
  return pid[0]!;
}

/** The JavaScript runtime ignores SIGPIPE and SIGXFSZ, the C library 32 and 33; the program would inherit that. */
function spawnAttributes(flags: number): Uint8Array {
  const attributes = new Uint8Array(1024);
  sys.posix_spawnattr_init(attributes);
  sys.posix_spawnattr_setsigdefault(attributes, newSigset([SIGPIPE, SIGXFSZ, 32, 33]));
  // The zeros in `attributes` mean no blocked signal, and a group of its own.
  sys.posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | flags);
  return attributes;
}

export function findExitStatus(child: ChildProcess): ExitStatus | undefined {
  return waitForExit(child, WNOWAIT);
}

export function reap(child: ChildProcess): ExitStatus | undefined {
  return waitForExit(child, 0);
}

function waitForExit({ pid }: ChildProcess, flags: number): ExitStatus | undefined {
  return reapChild(P_PID, pid, flags)?.exitStatus;
}

// siginfo_t of SIGCHLD: { i32 signo, errno, code, padding; i32 pid; u32 uid; i32 status; … } of 128 bytes
function reapChild(
  kind: number,
  id: number,
  flags: number,
): { readonly pid: number; readonly exitStatus: ExitStatus } | undefined {
  const info = new Int32Array(32);
  sys.waitid(kind, id, info, WEXITED | WNOHANG | flags);
  const [, , code, , pid = 0, , status = 0] = info;
  return pid === 0 ? undefined : { pid, exitStatus: code === CLD_EXITED ? { status } : { signal: status } };
}

/** Does nothing if the program has ended. It must not be reaped yet. */
export function sendSignal({ pid }: ChildProcess, signal: number, group: boolean): void {
  ignoreErrors(["ESRCH"], () => sys.kill(group ? -pid : pid, signal));
}
