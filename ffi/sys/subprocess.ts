/** Communication with a child program, bounded in time and size whatever it and its children do. @module */
import { ignoreErrors } from "./error.ts";
import { sys } from "./libc.ts";
import { areSignalsBlocked, takePendingSignal, takeTerminalSignal, withSignalsUnblocked } from "./signals.ts";
import { type ChildProcess, type ExitStatus, findExitStatus, reap, sendSignal } from "./process.ts";
import { PIPE_BUF, POLLIN, POLLOUT, SIGKILL, SIGTERM } from "./uapi.ts";

const POLLHUP = 16;
const PIPE_SIZE = 64 * 1024;

// Background children may keep the pipes open after the exit.
const GRACE_MS = 100;
// The time between SIGTERM and SIGKILL.
const TERM_GRACE_MS = 250;
// After SIGKILL. A program that waits for a broken device never ends.
const KILL_GRACE_MS = 1000;
// How often to look where there is no pidfd.
const EXIT_POLL_MS = 5;
const SIGNAL_POLL_MS = 50;

export interface SubprocessLimits {
  /** The clock is `performance.now()`; `Infinity` means never. */
  readonly deadline: number;
  /** A program that prints more is ended. */
  readonly maxOutputBytes: number;
  /** The program leads a process group, which is ended as a whole. */
  readonly processGroup: boolean;
}

export interface SubprocessResult {
  /** Absent if the program could not be ended. */
  readonly exitStatus?: ExitStatus;
  readonly output: Uint8Array;
  readonly stopReason?: StopReason;
}

/** A `signal` asks this process to end. */
type StopReason = "time" | "output" | "signal";

interface CommunicationState {
  readonly child: ChildProcess;
  readonly limits: SubprocessLimits;
  readonly buffer: Uint8Array;
  readonly chunks: Uint8Array[];
  outputBytes: number;
  stopReason?: StopReason;
  hasExited: boolean;
  nextDeadline: number;
  signalsSent: number;
}

/** Returns false if the descriptor can be closed. */
type ReadyHandler = () => boolean;

/** @param onStderr gets standard error at once; the bytes are valid during the call only */
export function communicate(
  child: ChildProcess,
  input: Uint8Array,
  onStderr: (bytes: Uint8Array) => void,
  limits: SubprocessLimits,
): SubprocessResult {
  const state: CommunicationState = {
    child,
    limits,
    buffer: new Uint8Array(PIPE_SIZE),
    chunks: [],
    outputBytes: 0,
    hasExited: false,
    nextDeadline: limits.deadline,
    signalsSent: 0,
  };
  const handlers = new Map<number, ReadyHandler>([
    [child.stdin, stdinFeeder(child.stdin, input)],
    [child.stdout, () => readStdout(state)],
    [child.stderr, () => readStderr(state, onStderr)],
  ]);
  if (child.pidfd >= 0) handlers.set(child.pidfd, () => false);
  try {
    while (continueCommunication(state, handlers)) {
      // The condition does all.
    }
  } finally {
    for (const fd of handlers.keys()) sys.close(fd);
    // Group members may have ignored SIGTERM.
    if (state.stopReason && limits.processGroup) sendSignal(child, SIGKILL, true);
  }
  const exitStatus = reap(child);
  return {
    output: concatenateOutput(state),
    ...(exitStatus && { exitStatus }),
    ...(state.stopReason && { stopReason: state.stopReason }),
  };
}

function continueCommunication(state: CommunicationState, handlers: Map<number, ReadyHandler>): boolean {
  // Checked first, so that the pipes are read once more.
  const isLate = performance.now() >= state.nextDeadline;
  if (isLate && !state.hasExited) terminate(state, "time");
  else if (!state.stopReason && takePendingSignal()) terminate(state, "signal");
  const terminalSignal = takeTerminalSignal();
  // A program with a time limit has a process group of its own, which no terminal reaches.
  if (terminalSignal && !state.limits.processGroup) sendSignal(state.child, terminalSignal, false);
  pollOnce(handlers, state);
  if (!state.hasExited && !handlers.has(state.child.pidfd) && findExitStatus(state.child)) {
    state.hasExited = true;
    state.nextDeadline = performance.now() + GRACE_MS;
  }
  const isOutputClosed = !handlers.has(state.child.stdout) && !handlers.has(state.child.stderr);
  return state.hasExited ? !isLate && !isOutputClosed : state.signalsSent <= 2;
}

/** Sends SIGTERM, then SIGKILL; the third time, it gives up. */
function terminate(state: CommunicationState, reason: StopReason): void {
  const { child, limits } = state;
  state.stopReason ??= reason;
  const [signal, graceMs] = state.signalsSent === 0 ? [SIGTERM, TERM_GRACE_MS] : [SIGKILL, KILL_GRACE_MS];
  state.nextDeadline = performance.now() + graceMs;
  state.signalsSent++;
  sendSignal(child, signal, limits.processGroup);
}

function pollOnce(handlers: Map<number, ReadyHandler>, { child, nextDeadline, hasExited }: CommunicationState): void {
  // struct pollfd { int fd; short events; short revents; }
  const pollfds = new Int32Array(handlers.size * 2);
  let index = 0;
  for (const fd of handlers.keys()) {
    pollfds[index++] = fd;
    pollfds[index++] = fd === child.stdin ? POLLOUT : POLLIN;
  }
  const remainingMs = Math.max(0, Math.min(nextDeadline - performance.now(), 2 ** 30));
  const exitPollMs = child.pidfd < 0 && !hasExited ? EXIT_POLL_MS : Infinity;
  const signalPollMs = areSignalsBlocked() ? SIGNAL_POLL_MS : Infinity;
  const timeoutMs = Math.ceil(Math.min(remainingMs, exitPollMs, signalPollMs));
  const poll = () => sys.poll(pollfds, handlers.size, timeoutMs);
  // Where nothing is to be undone, a signal ends this process, also if it serves the caller of another.
  if (areSignalsBlocked()) poll();
  else withSignalsUnblocked(poll);
  for (index = 0; index < pollfds.length; index += 2) {
    const fd = pollfds[index]!;
    const revents = pollfds[index + 1]! >> 16;
    // POLLHUP alone: all writers closed it, and everything was read.
    if (revents === 0 || revents !== POLLHUP && handlers.get(fd)!()) continue;
    handlers.delete(fd);
    sys.close(fd);
  }
}

/** A program need not read its input. */
function stdinFeeder(fd: number, input: Uint8Array): ReadyHandler {
  let rest = input;
  return () => {
    if (rest.length > 0) {
      const written = ignoreErrors(["EPIPE"], () => sys.write(fd, rest, Math.min(rest.length, PIPE_BUF)));
      rest = rest.subarray(written ?? rest.length);
    }
    return rest.length > 0;
  };
}

function readStdout(state: CommunicationState): boolean {
  const chunk = readChunk(state, state.child.stdout).slice();
  if (chunk.length === 0) return false;
  if (state.outputBytes + chunk.length > state.limits.maxOutputBytes) {
    terminate(state, "output");
    return false;
  }
  state.outputBytes += chunk.length;
  state.chunks.push(chunk);
  return true;
}

function readStderr(state: CommunicationState, onStderr: (bytes: Uint8Array) => void): boolean {
  const chunk = readChunk(state, state.child.stderr);
  if (chunk.length > 0) onStderr(chunk);
  return chunk.length > 0;
}

function readChunk({ buffer }: CommunicationState, fd: number): Uint8Array {
  return buffer.subarray(0, sys.read(fd, buffer, buffer.length));
}

function concatenateOutput({ chunks, outputBytes }: CommunicationState): Uint8Array {
  if (chunks.length === 1) return chunks[0]!;
  const output = new Uint8Array(outputBytes);
  let offset = 0;
  for (const chunk of chunks) {
    output.set(chunk, offset);
    offset += chunk.length;
  }
  return output;
}
