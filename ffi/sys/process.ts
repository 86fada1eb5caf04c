/**
 * Starting another program with pipes to its standard streams, and seeing it end: all by system calls, since nothing here may wait
 * for an event loop.
 *
 * @see posix_spawn(3), pidfd_open(2), waitid(2)
 * @module
 */
import { ignoreErrors, SystemError } from "./error.ts";
import { cStringArray, sys } from "./libc.ts";
import { O_CLOEXEC, SYS_pidfd_open } from "./uapi.ts";

// linux/wait.h
const P_PID = 1;
const WNOHANG = 1;
const WEXITED = 4;
const WNOWAIT = 0x01000000;
const CLD_EXITED = 1;
// spawn.h
export const POSIX_SPAWN_SETPGROUP = 0x02;
export const POSIX_SPAWN_SETSIGDEF = 0x04;
export const POSIX_SPAWN_SETSIGMASK = 0x08;
// asm-generic/signal.h
const SIGPIPE = 13;
const SIGCHLD = 17;
const SIGXFSZ = 25;
export const SIGKILL = 9;
export const SIGTERM = 15;

/** Kernels before 5.3, sandboxes, and when there are too many: the end is looked for then, instead of being told. */
const NO_PIDFD_CODES = ["ENOSYS", "EPERM", "EINVAL", "ENODEV", "EMFILE", "ENFILE", "ENOMEM"];

/** A program that was started. Whoever has it closes its descriptors and reaps it. */
export interface ChildProcess {
  readonly pid: number;
  /** To be written to. */
  readonly stdin: number;
  /** To be read from. */
  readonly stdout: number;
  /** To be read from. */
  readonly stderr: number;
  /** Readable for poll(2) once the program has ended; -1 where the kernel has no such descriptors. */
  readonly pidfd: number;
}

/** How a program ended: its exit status, or the signal that ended it. */
export type ExitStatus = { readonly status: number } | { readonly signal: number };

/**
 * Starts the program at `path`, in the working directory and the namespaces of this thread, with three pipes, and open besides
 * what this process opened for its programs too: an inherited lock.
 *
 * @param env all of its environment: `NAME=value`
 * @param group whether it becomes the first of a process group of its own, so that it can be ended with all that it starts
 * @param args what follows its name
 * @throws {SystemError} also with the reason why it cannot be executed: `ETXTBSY`, `ENOEXEC`
 */
export function startProgram(
  path: string,
  env: readonly string[],
  group: boolean,
  args: readonly string[] = [],
): ChildProcess {
  // A list and not a DisposableStack, which costs a quarter of a millisecond when it is used first.
  const fds: number[] = [];
  try {
    for (let count = 0; count < 3; count++) openPipe(fds);
    const [stdin, stdinWriter, stdoutReader, stdout, stderrReader, stderr] = fds as unknown as readonly [
      number,
      number,
      number,
      number,
      number,
      number,
    ];
    // If whoever started us has these ignored, the kernel forgets how children end before we can ask.
    sys.signal(SIGCHLD, null);
    const pid = posixSpawn([path, ...args], env, [stdin, stdout, stderr], group);
    const pidfd = ignoreErrors(NO_PIDFD_CODES, () => sys.syscall(SYS_pidfd_open, pid, null, 0, 0)) ?? -1;
    for (const fd of [stdin, stdout, stderr]) sys.close(fd);
    return { pid, stdin: stdinWriter, stdout: stdoutReader, stderr: stderrReader, pidfd };
  } catch (error) {
    for (const fd of fds) sys.close(fd);
    throw error;
  }
}

/** Both ends close when the program is executed; `dup2` makes copies that do not. */
function openPipe(fds: number[]): void {
  const ends = new Int32Array(2);
  sys.pipe2(ends, O_CLOEXEC);
  fds.push(ends[0]!, ends[1]!);
}

function posixSpawn(
  command: readonly [path: string, ...args: string[]],
  env: readonly string[],
  streams: readonly number[],
  group: boolean,
): number {
  const [path] = command;
  const pid = new Int32Array(1);
  // Larger than posix_spawn_file_actions_t (80 bytes) and posix_spawnattr_t (336) of any C library.
  const actions = new Uint8Array(1024);
  const argv = cStringArray(command);
  const environ = cStringArray(env);
  sys.posix_spawn_file_actions_init(actions);
  try {
    streams.forEach((fd, number) => sys.posix_spawn_file_actions_adddup2(actions, fd, number));
    // The JavaScript runtime closes what it inherits, but begins with 4.
    sys.posix_spawn_file_actions_addclose(actions, 3);
    const failure = sys.posix_spawn(pid, path, actions, spawnAttributes(group), argv, environ);
    if (failure !== 0) throw new SystemError("posix_spawn", failure, `start "${path}"`);
  } finally {
    sys.posix_spawn_file_actions_destroy(actions);
  }
  return pid[0]!;
}

/** The JavaScript runtime ignores SIGPIPE and SIGXFSZ, the C library its own two; what is ignored would stay so in the program. */
function spawnAttributes(group: boolean): Uint8Array {
  const attributes = new Uint8Array(1024);
  // sigset_t: one bit for each signal, from 1
  const signals = new Uint8Array(128);
  for (const signal of [SIGPIPE, SIGXFSZ, 32, 33]) signals[(signal - 1) >> 3]! |= 1 << ((signal - 1) & 7);
  sys.posix_spawnattr_init(attributes);
  sys.posix_spawnattr_setsigdefault(attributes, signals);
  // What this process holds back is not to wait in the program; the mask it is given is empty. The group it is given is 0, which stands for one of its own.
  sys.posix_spawnattr_setflags(
    attributes,
    POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | (group ? POSIX_SPAWN_SETPGROUP : 0),
  );
  return attributes;
}

/** How the program ended, or `undefined` while it runs. It can be asked and sent signals again. @throws {SystemError} */
export function findExitStatus(child: ChildProcess): ExitStatus | undefined {
  return waitForExit(child, WNOWAIT);
}

/** As {@linkcode findExitStatus}, but makes the kernel forget a program that has ended: its number may belong to another then. @throws {SystemError} */
export function reap(child: ChildProcess): ExitStatus | undefined {
  return waitForExit(child, 0);
}

/** siginfo_t of SIGCHLD: { i32 signo, errno, code, padding; i32 pid; u32 uid; i32 status; … } of 128 bytes */
function waitForExit({ pid }: ChildProcess, flags: number): ExitStatus | undefined {
  const info = new Int32Array(32);
  sys.waitid(P_PID, pid, info, WEXITED | WNOHANG | flags);
  if (info[4] === 0) return undefined;
  const status = info[6]!;
  return info[2] === CLD_EXITED ? { status } : { signal: status };
}

/** Sends a signal to a program that was not reaped, or to all of its group; to what has ended it does nothing. @throws {SystemError} */
export function sendSignal({ pid }: ChildProcess, signal: number, group: boolean): void {
  ignoreErrors(["ESRCH"], () => sys.kill(group ? -pid : pid, signal));
}
