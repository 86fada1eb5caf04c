/** Runs programs by posix_spawn(3) and wait4(2): `Bun.spawnSync` would add its own time to figures, and counts no page faults. @module */
import { dlopen } from "bun:ffi";
import { closeSync, existsSync, readFileSync, writeSync } from "node:fs";
import { constants } from "node:os";
import { cStringArray, sys } from "../../../ffi/sys/libc.ts";
import { O_CLOEXEC, POLLIN, SYS_pidfd_open } from "../../../ffi/sys/uapi.ts";

export interface ProcessCommand {
  readonly argv: readonly string[];
  /** The program gets these and PATH. */
  readonly env?: Readonly<Record<string, string>>;
  readonly stdin?: string;
  /** Whether its standard streams are pipes, as those of an engine, which reads to their ends. Else they are in memory. */
  readonly hasPipes?: boolean;
  /** The program is killed when it takes longer. */
  readonly timeoutMs?: number;
}

export interface ProcessResult {
  readonly ms: number;
  readonly exitCode: number | null;
  /** `SIGKILL`; `null` if it exited by itself. */
  readonly signal: string | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface MeasuredProcess extends ProcessResult {
  readonly faults: number;
}

export interface RunningProcess {
  readonly pid: number;
  readonly startTime: number;
  readonly command: ProcessCommand;
  /** Standard input, output and error: in memory, or our ends of pipes. */
  readonly files: readonly number[];
}

const PATH = "/usr/sbin:/usr/bin:/sbin:/bin";
const SPAWN_SETSIGDEF = 4;
const SPAWN_SETSIGMASK = 8;
const MFD_CLOEXEC = 1;

/** Functions that the product's table lacks. */
const { posix_spawnp, posix_spawnattr_setsigmask, wait4, memfd_create } = dlopen("libc.so.6", {
  posix_spawnp: { args: ["ptr", "cstring", "ptr", "ptr", "ptr", "ptr"], returns: "i32" },
  posix_spawnattr_setsigmask: { args: ["ptr", "ptr"], returns: "i32" },
  wait4: { args: ["i32", "ptr", "i32", "ptr"], returns: "i32" },
  memfd_create: { args: ["cstring", "u32"], returns: "i32" },
}).symbols;

const cString = (text: string): Uint8Array => new TextEncoder().encode(`${text}\0`);

/** Starts a program in the network namespace that the thread is in. The clock runs from here. */
export function startProcess(command: ProcessCommand): RunningProcess {
  const { files, itsFiles } = command.hasPipes ? openPipes(command.stdin ?? "") : openMemory(command.stdin ?? "");
  const argv = cStringArray(command.argv);
  const env = cStringArray(Object.entries({ PATH, ...command.env }).map(([name, value]) => `${name}=${value}`));
  const actions = new Uint8Array(256);
  const attributes = new Uint8Array(512);
  sys.posix_spawn_file_actions_init(actions);
  itsFiles.forEach((fd, target) => sys.posix_spawn_file_actions_adddup2(actions, fd, target));
  // The runtime of this script ignores and blocks some signals; an engine's programs do not inherit that.
  sys.posix_spawnattr_init(attributes);
  sys.posix_spawnattr_setsigdefault(attributes, new Uint8Array(128).fill(255, 0, 8));
  posix_spawnattr_setsigmask(attributes, new Uint8Array(128));
  sys.posix_spawnattr_setflags(attributes, SPAWN_SETSIGDEF | SPAWN_SETSIGMASK);
  const pid = new Int32Array(1);
  const program = cString(command.argv[0]!);
  const startTime = performance.now();
  const error = posix_spawnp(pid, program, actions, attributes, argv, env);
  sys.posix_spawn_file_actions_destroy(actions);
  if (error !== 0) throw new Error(`Cannot start "${command.argv[0]}": error ${error}`);
  if (command.hasPipes) { for (const fd of itsFiles.slice(1)) closeSync(fd); }
  return { pid: pid[0]!, startTime, command, files };
}

interface OpenedFiles extends Pick<RunningProcess, "files"> {
  /** The program has these ends. */
  readonly itsFiles: readonly number[];
}

function openMemory(stdin: string): OpenedFiles {
  const files = [0, 1, 2].map(() => memfd_create(cString("stdio"), MFD_CLOEXEC));
  if (stdin) writeSync(files[0]!, stdin, 0);
  return { files, itsFiles: files };
}

/** Each holds 64 KiB, so that nobody waits for a reader. */
function openPipes(stdin: string): OpenedFiles {
  const pipes = [0, 1, 2].map(() => {
    const ends = new Int32Array(2);
    sys.pipe2(ends, O_CLOEXEC);
    return { reader: ends[0]!, writer: ends[1]! };
  });
  const [input, output, errors] = pipes as [typeof pipes[0], typeof pipes[0], typeof pipes[0]];
  if (stdin) writeSync(input.writer, stdin);
  closeSync(input.writer);
  return {
    files: [input.reader, output.reader, errors.reader],
    itsFiles: [input.reader, output.writer, errors.writer],
  };
}

/** Waits for one of `running` and takes it out; the clock stops here. */
export function waitForAny(running: Map<number, RunningProcess>) {
  const status = new Int32Array(1);
  const usage = new BigInt64Array(18);
  // Of a single one by its pid: the runtime awaits its own children itself.
  const [only, ...others] = running.keys();
  for (;;) {
    const pid = wait4(others.length === 0 ? only! : -1, status, 0, usage);
    const endTime = performance.now();
    const which = running.get(pid);
    if (which) {
      running.delete(pid);
      return { which, ended: processResult(which, endTime - which.startTime, status[0], Number(usage[8])) };
    }
    if (pid < 0 && !existsSync(`/proc/${only}`)) throw new Error("There is no child to wait for");
  }
}

export const waitFor = (running: RunningProcess): MeasuredProcess =>
  waitForAny(new Map([[running.pid, running]])).ended;

function processResult({ files }: RunningProcess, ms: number, status: number, faults: number): MeasuredProcess {
  const signal = status & 0x7f;
  const [stdout, stderr] = files.slice(1).map((fd) => readFileSync(`/proc/self/fd/${fd}`, "utf8"));
  for (const fd of files) closeSync(fd);
  return {
    ms,
    faults,
    exitCode: signal === 0 ? status >> 8 & 0xff : null,
    signal: Object.entries(constants.signals).find(([, number]) => number === signal)?.[0] ?? null,
    stdout,
    stderr,
  };
}

export function runProcess(command: ProcessCommand): MeasuredProcess {
  const running = startProcess(command);
  const { pid } = running;
  if (command.timeoutMs !== undefined) {
    const pidfd = sys.syscall(SYS_pidfd_open, pid, null, 0, 0);
    if (sys.poll(new Int32Array([pidfd, POLLIN]), 1, command.timeoutMs) === 0) process.kill(pid, "SIGKILL");
    closeSync(pidfd);
  }
  // An engine reads to the end of the output before it waits for the program.
  if (command.hasPipes) { for (const fd of running.files.slice(1)) sys.poll(new Int32Array([fd, 0]), 1, -1); }
  return waitFor(running);
}

/** Runs a program to its end, or kills it after half a minute. */
export const runLimited = (command: ProcessCommand): MeasuredProcess => runProcess({ timeoutMs: 30_000, ...command });

export function runSuccessfully(command: ProcessCommand): MeasuredProcess {
  return requireSuccess(command, runProcess(command));
}

export function requireSuccess<T extends ProcessResult>({ argv }: ProcessCommand, ended: T): T {
  if (ended.exitCode === 0) return ended;
  throw new Error(`"${argv.join(" ")}" ended with ${ended.exitCode ?? ended.signal}: ${ended.stdout}${ended.stderr}`);
}

/** Runs a shell script up to the first command that fails; gives its output. @throws {Error} with its output, if it fails */
export function runShell(script: string): string {
  return runSuccessfully({ argv: ["sh", "-ec", script], timeoutMs: 30_000 }).stdout;
}

/** Runs a program in a directory; it prints this. @throws {Error} if it fails */
export function runIn(cwd: string, ...argv: readonly string[]): string {
  // With this environment, in which a proxy may be named.
  const env = process.env as Record<string, string>;
  return runSuccessfully({ argv: ["env", "-C", cwd, ...argv], env }).stdout;
}

/** Runs a program beside others. @param onStart is called with the process, to send it signals */
export async function runInBackground(
  { argv, env, stdin, timeoutMs }: ProcessCommand,
  onStart?: (child: Bun.Subprocess) => void,
): Promise<ProcessResult> {
  const startTime = performance.now();
  const child = Bun.spawn([...argv], {
    env: { PATH, ...env },
    stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
    stdout: "pipe",
    stderr: "pipe",
    timeout: timeoutMs,
    killSignal: "SIGKILL",
  });
  onStart?.(child);
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  await child.exited;
  const ms = performance.now() - startTime;
  return { ms, exitCode: child.exitCode, signal: child.signalCode as string | null, stdout, stderr };
}
