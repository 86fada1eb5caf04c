/** A worker of the server: it serves one call at a time, as a process of its own would. @module */
import { enterNetns } from "../ffi/netns/netns.ts";
import { type Descriptor, openFile, openReadWrite } from "../ffi/sys/file.ts";
import { ignoreErrors } from "../ffi/sys/error.ts";
import { sys } from "../ffi/sys/libc.ts";
import { awaitReadable } from "../ffi/sys/poll.ts";
import { setProcessName } from "../ffi/sys/process_name.ts";
import { setCaller } from "../ffi/sys/caller.ts";
import { blockForGood, discardSignal, resetSignals, terminationSignalName } from "../ffi/sys/signals.ts";
import { SIGHUP, SIGINT, SIGTERM, SIGUSR2 } from "../ffi/sys/uapi.ts";
import { fstat } from "../ffi/sys/stat.ts";
import { signalOnInput } from "../ffi/sys/signal_on_input.ts";
import { openConnectionQueue } from "../ffi/sys/connection_queue.ts";
import { isListening, listenOn } from "../ffi/sys/unix_socket.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { COMMAND_NAME } from "../program/installed_file.ts";
import type { ProgramStart } from "../program/start.ts";
import { findWorkingDirectory } from "../program/working_directory.ts";
import { lockAttachment } from "./attachment_lock.ts";
import { type ShimCall, takeCall } from "./call.ts";
import { logCall, openLog } from "./call_log.ts";
import { namespacesOf } from "./caller.ts";
import { privateBytes } from "./memory.ts";
import { warmUp } from "./warm_up.ts";
import { type CallReport, sendReport } from "./reports.ts";
import type { WorkerOptions } from "./worker_options.ts";
import {
  BUSY,
  ENDING,
  IDLE,
  newWorkerRecord,
  readWorkerRecords,
  type WorkerRecord,
  writeWorkerRecord,
} from "./worker_table.ts";

const LISTENER = 3;
const TABLE = 4;
const NOTIFIER = 5;
const REPORTS = 6;

// linux/prctl.h
const PR_SET_PDEATHSIG = 1;

/** @returns the exit status */
type RunProgram = (start: ProgramStart) => Promise<number>;

/** SIGTERM ends it, but never interrupts a call. */
export async function serveCalls(options: WorkerOptions, runProgram: RunProgram): Promise<number> {
  // Before any thread starts: threads inherit it. A terminal's signals go to the server.
  blockForGood([SIGHUP, SIGINT, SIGTERM, SIGUSR2]);
  setProcessName("cni-worker");
  sys.prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
  if (sys.getppid() !== options.serverPid) return 0;
  await loadPlugins();
  using locks = openReadWrite(options.lockPath);
  if (options.warmUp) await warmUp(options.warmUp, (connection) => serveForWarmUp(connection, locks.fd, runProgram));
  using context = openWorkerContext(locks.fd);
  const record = newWorkerRecord(process.pid);
  if (!isListening(LISTENER)) listenOn(LISTENER);
  using queue = openConnectionQueue(LISTENER, SIGTERM);
  setState(record, IDLE, options);
  notify();
  const warmBytes = privateBytes(process.pid);
  while (!isUsedUp(record, options)) {
    if (record.served % options.limits.callsPerCheck === 0) collectGarbage(warmBytes);
    const connection = queue.accept();
    setState(record, BUSY, options);
    if (readWorkerRecords(TABLE, options.slots).every(({ pid, state }) => pid === 0 || state !== IDLE)) {
      notify();
    }
    const call = takeCall(connection, context.namespaces);
    if (typeof call === "string") record[call]++;
    else {
      const cpuBefore = cpuMs();
      // Who has an answer finds it counted.
      record.served++;
      await serveCall(call, context, runProgram, (status, ms, code) => {
        logCall(context.log, options.logFormat, call, status, ms);
        if (options.hasMetrics) sendReport(REPORTS, callReport(call, code, ms, cpuMs() - cpuBefore));
      });
    }
    setState(record, IDLE, options);
  }
  return 0;
}

async function serveForWarmUp(connection: Descriptor, locks: number, runProgram: RunProgram): Promise<void> {
  using context = openWorkerContext(locks);
  const call = takeCall(connection, context.namespaces);
  if (typeof call === "string") throw new Error(`Cannot warm up: ${call}`);
  await serveCall(call, context, runProgram);
}

/** The JavaScript engine lets a heap grow for long; a full collection takes 10 ms. */
function collectGarbage(warmBytes: number): void {
  const ALLOWED_GROWTH = 1.1;
  if (privateBytes(process.pid) > warmBytes * ALLOWED_GROWTH) Bun.gc(true);
}

/** Another worker takes the place of this, while all others are warm. */
function isUsedUp(record: WorkerRecord, options: WorkerOptions): boolean {
  const { pid, served } = record;
  const { slots, limits } = options;
  if (served === 0 || served % limits.callsPerCheck !== 0) return false;
  if (served < limits.maxCalls && privateBytes(pid) <= limits.maxWorkerBytes) return false;
  // Said first: two workers that end at once would leave none.
  setState(record, ENDING, options);
  const others = readWorkerRecords(TABLE, slots).filter((other) => other.pid !== 0 && other.pid !== pid);
  const isReplaceable = others.length > 0 && others.every(({ state }) => state === IDLE || state === BUSY);
  if (!isReplaceable) setState(record, IDLE, options);
  return isReplaceable;
}

function setState(record: WorkerRecord, state: number, { slot }: WorkerOptions): void {
  record.state = state;
  record.since = performance.timeOrigin + performance.now();
  writeWorkerRecord(TABLE, slot, record);
}

/** The server starts another worker then, if no worker is idle for long. */
function notify(): void {
  // The supervisor reads enough of a full pipe.
  ignoreErrors(["EAGAIN"], () => sys.write(NOTIFIER, Uint8Array.of(1), 1));
}

function cpuMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

function callReport({ programName, argv, env }: ShimCall, code: number, ms: number, busyMs: number): CallReport {
  return {
    program: programName,
    command: programName === COMMAND_NAME ? argv.slice(0, 2).join(" ") : env.CNI_COMMAND ?? "",
    code,
    seconds: ms / 1000,
    waitSeconds: Math.max(0, ms - busyMs) / 1000,
  };
}

/** A worker returns to these after a call. */
interface WorkerContext extends Disposable {
  /** Descriptors of the root directory, the server's network namespace and /dev/null. */
  readonly root: number;
  readonly netns: number;
  readonly nullDevice: number;
  /** A file whose bytes are locks of attachments. Other servers at this socket use it too. */
  readonly locks: number;
  readonly log: number;
  readonly netnsIdentity: string;
  readonly namespaces: string;
}

function openWorkerContext(locks: number): WorkerContext {
  const files = [...["/", "/proc/thread-self/ns/net", "/dev/null"].map(openFile), openLog()];
  const [root, netns, nullDevice, log] = files.map(({ fd }) => fd) as [number, number, number, number];
  return {
    root,
    netns,
    nullDevice,
    locks,
    log,
    netnsIdentity: fstat(netns).identity,
    namespaces: namespacesOf("self"),
    [Symbol.dispose]: () => files.forEach((file) => file[Symbol.dispose]()),
  };
}

/** Serves a call in the place of the process that was called: nothing of it stays. */
async function serveCall(
  call: ShimCall,
  context: WorkerContext,
  runProgram: RunProgram,
  log?: (status: number, ms: number, code: number) => void,
): Promise<void> {
  const startedAt = performance.now();
  const { stdin, stdout, stderr, workingDirectory, netns } = call.descriptors;
  [stdin, stdout, stderr].forEach((fd, number) => sys.dup2(fd, number));
  sys.fchdir(workingDirectory);
  sys.umask(call.umask);
  const isElsewhere = fstat(netns).identity !== context.netnsIdentity;
  if (isElsewhere) enterNetns(netns);
  resetSignals();
  setCaller({
    signal: SIGUSR2,
    announceOutput: call.announceOutput,
    awaitWritable: call.awaitWritable,
    readSignal: () => readSignalName(call),
  });
  signalOnInput(call.connection, SIGUSR2);
  // Earlier input raised no signal. Only this thread: others of the runtime may not block the signal.
  if (awaitReadable(call.connection, 0)) sys.raise(SIGUSR2);
  const lock = lockAttachment(call, context.locks);
  let code = 0;
  const status = await runProgram({
    ...call,
    onFailure: (failure) => code = failure,
    findWorkingDirectory,
    findParentPid: () => call.parentPid,
  });
  // First: the answer is written. The shim reads this when the connection closes, also if this worker fails before.
  call.end(status);
  // The reader of the caller's output waits for its end. What fails from here on belongs in the server's log.
  [context.nullDevice, context.log, context.log].forEach((fd, number) => sys.dup2(fd, number));
  if (isElsewhere) enterNetns(context.netns);
  sys.fchdir(context.root);
  lock?.[Symbol.dispose]();
  // The shim ends with the connection. Then the next call for the attachment may come.
  call[Symbol.dispose]();
  discardSignal(SIGUSR2);
  setCaller(undefined);
  log?.(status, performance.now() - startedAt, code);
}

/** A caller that is gone counts like one that is told to end. */
function readSignalName(call: ShimCall): string | undefined {
  const signal = call.readSignal();
  if (signal === 0) return "its caller, which is gone";
  return signal === undefined ? undefined : terminationSignalName(signal);
}
