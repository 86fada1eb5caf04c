/**
 * Starts programs and waits for them as a container engine written in C would: `posix_spawn(3)` and `wait4(2)`, standard input and output
 * in memory, nothing polled. What `Bun.spawnSync` adds of its own would make every ratio look smaller than it is.
 *
 * @module
 */
import { dlopen, type Pointer, ptr, read } from "bun:ffi";

/** What to start. */
export interface ProcessCommand {
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  /** Where standard output goes instead of into memory. */
  readonly stdoutPath?: string;
}

/** A program that has ended. */
export interface ProcessResult {
  readonly ms: number;
  readonly userMs: number;
  readonly systemMs: number;
  readonly faults: number;
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

/** A program that runs. */
export interface RunningProcess {
  readonly pid: number;
  readonly started: number;
  readonly command: ProcessCommand;
  readonly files: Files;
}

/** Standard input, output and error, in memory. */
type Files = readonly [number, number, number];

const PATH = "/usr/sbin:/usr/bin:/sbin:/bin";
const SPAWN_SETSIGDEF = 4;
const SPAWN_SETSIGMASK = 8;
const MFD_CLOEXEC = 1;
const O_WRONLY = 1;

let libcLibrary: ReturnType<typeof openLibc> | undefined;
const libcFunctions = () => libcLibrary ??= openLibc();

function openLibc() {
  return dlopen("libc.so.6", {
    posix_spawnp: { args: ["ptr", "cstring", "ptr", "ptr", "ptr", "ptr"], returns: "i32" },
    posix_spawn_file_actions_init: { args: ["ptr"], returns: "i32" },
    posix_spawn_file_actions_destroy: { args: ["ptr"], returns: "i32" },
    posix_spawn_file_actions_adddup2: { args: ["ptr", "i32", "i32"], returns: "i32" },
    posix_spawn_file_actions_addopen: { args: ["ptr", "i32", "cstring", "i32", "u32"], returns: "i32" },
    posix_spawnattr_init: { args: ["ptr"], returns: "i32" },
    posix_spawnattr_setflags: { args: ["ptr", "i16"], returns: "i32" },
    posix_spawnattr_setsigdefault: { args: ["ptr", "ptr"], returns: "i32" },
    posix_spawnattr_setsigmask: { args: ["ptr", "ptr"], returns: "i32" },
    wait4: { args: ["i32", "ptr", "i32", "ptr"], returns: "i32" },
    memfd_create: { args: ["cstring", "u32"], returns: "i32" },
    pread: { args: ["i32", "ptr", "usize", "i64"], returns: "i64" },
    pwrite: { args: ["i32", "ptr", "usize", "i64"], returns: "i64" },
    close: { args: ["i32"], returns: "i32" },
    __errno_location: { args: [], returns: "ptr" },
  }).symbols;
}

const cString = (text: string): Uint8Array => new TextEncoder().encode(`${text}\0`);

/** A NULL-terminated array of pointers to strings, and what must outlive it. */
function cStringArray(values: readonly string[]) {
  const buffers = values.map(cString);
  return { kept: buffers, array: new BigUint64Array([...buffers.map((bytes) => BigInt(ptr(bytes))), 0n]) };
}

/** Starts a program in the network namespace that the thread is in. The clock runs from here. */
export function startProcess(command: ProcessCommand): RunningProcess {
  const memory = (text = "") => {
    const fd = libcFunctions().memfd_create(Buffer.from("bench\0"), MFD_CLOEXEC);
    if (text !== "") libcFunctions().pwrite(fd, Buffer.from(text), Buffer.byteLength(text), 0);
    return fd;
  };
  const files: Files = [memory(command.stdin), memory(), memory()];
  const argv = cStringArray(command.argv);
  const env = cStringArray(Object.entries({ PATH, ...command.env }).map(([name, value]) => `${name}=${value}`));
  const actions = new Uint8Array(256);
  const attributes = new Uint8Array(512);
  libcFunctions().posix_spawn_file_actions_init(actions);
  files.forEach((fd, place) => libcFunctions().posix_spawn_file_actions_adddup2(actions, fd, place));
  const { stdoutPath } = command;
  if (stdoutPath) {
    libcFunctions().posix_spawn_file_actions_addopen(actions, 1, Buffer.from(`${stdoutPath}\0`), O_WRONLY, 0);
  }
  // The runtime of this script ignores and blocks some signals; a program that an engine starts does not inherit that.
  libcFunctions().posix_spawnattr_init(attributes);
  libcFunctions().posix_spawnattr_setsigdefault(attributes, new Uint8Array(128).fill(255, 0, 8));
  libcFunctions().posix_spawnattr_setsigmask(attributes, new Uint8Array(128));
  libcFunctions().posix_spawnattr_setflags(attributes, SPAWN_SETSIGDEF | SPAWN_SETSIGMASK);
  const pid = new Int32Array(1);
  const program = cString(command.argv[0]);
  const started = performance.now();
  const error = libcFunctions().posix_spawnp(pid, program, actions, attributes, argv.array, env.array);
  libcFunctions().posix_spawn_file_actions_destroy(actions);
  if (error !== 0 || argv.kept.length + env.kept.length === 0) {
    throw new Error(`Cannot start "${command.argv[0]}": error ${error}`);
  }
  return { pid: pid[0], started, command, files };
}

/** Waits for one of `running` and takes it out; the clock stops here. */
export function waitForAny(
  running: Map<number, RunningProcess>,
): { readonly which: RunningProcess; readonly ended: ProcessResult } {
  const status = new Int32Array(1);
  const usage = new BigInt64Array(18);
  for (;;) {
    const pid = libcFunctions().wait4(-1, status, 0, usage);
    const ms = performance.now();
    const which = running.get(pid);
    if (which) {
      running.delete(pid);
      return { which, ended: processResult(which, ms - which.started, status[0], usage) };
    }
    if (pid < 0 && read.i32(libcFunctions().__errno_location() as Pointer, 0) !== 4) {
      throw new Error("There is no child to wait for");
    }
  }
}

function processResult({ files }: RunningProcess, ms: number, status: number, usage: BigInt64Array): ProcessResult {
  const time = (at: number) => Number(usage[at]) * 1e3 + Number(usage[at + 1]) / 1e3;
  const [stdin, stdout, stderr] = files;
  const ended: ProcessResult = {
    ms,
    userMs: time(0),
    systemMs: time(2),
    faults: Number(usage[8]),
    exitCode: (status & 0x7f) === 0 ? status >> 8 & 0xff : 128 + (status & 0x7f),
    stdout: readAllFromFd(stdout),
    stderr: readAllFromFd(stderr),
  };
  for (const fd of [stdin, stdout, stderr]) libcFunctions().close(fd);
  return ended;
}

let room: Uint8Array | undefined;

function readAllFromFd(fd: number): string {
  const bytes = room ??= new Uint8Array(1 << 20);
  return new TextDecoder().decode(bytes.subarray(0, Number(libcFunctions().pread(fd, bytes, bytes.length, 0))));
}

/** Runs a program to its end. */
export function runProcess(command: ProcessCommand): ProcessResult {
  const running = startProcess(command);
  return waitForAny(new Map([[running.pid, running]])).ended;
}

/** Runs a program to its end. @throws {Error} with what it said, if it fails */
export function runSuccessfully(command: ProcessCommand): ProcessResult {
  return requireSuccess(command, runProcess(command));
}

/** What has ended, if it succeeded. @throws {Error} with what it said otherwise */
export function requireSuccess({ argv }: ProcessCommand, ended: ProcessResult): ProcessResult {
  if (ended.exitCode === 0) return ended;
  throw new Error(`"${argv.join(" ")}" ended with ${ended.exitCode}: ${ended.stdout}${ended.stderr}`);
}
