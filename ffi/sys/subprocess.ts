/**
 * What is said between this process and a program it has started, until that has ended: bounded in time and in size, whatever the
 * program and those it starts do.
 *
 * @see poll(2)
 * @module
 */
import { ignoreErrors } from "./error.ts";
import { sys } from "./libc.ts";
import { areSignalsBlocked, takePendingSignal } from "./signals.ts";
import { type ChildProcess, type ExitStatus, findExitStatus, reap, sendSignal, SIGKILL, SIGTERM } from "./process.ts";
import { POLLIN, POLLOUT } from "./uapi.ts";

const POLLHUP = 16;
/** What fits into a pipe that poll(2) calls writable, so that writing it does not wait. */
const PIPE_BUF = 4096;
/** What a pipe holds at most. */
const PIPE_SIZE = 64 * 1024;

/** How long others may hold the pipes open after the program itself has ended: background children do so for ever. */
const GRACE_MS = 100;
/** Between asking a program to end and ending it. */
const TERM_GRACE_MS = 250;
/** How long an ended program may take to be gone: one that waits in the kernel for a broken device never is. */
const KILL_GRACE_MS = 1000;
/** How often to look for the end of a program where the kernel cannot tell of it. */
const EXIT_POLL_MS = 5;
/** How often to look for a signal that is held back. */
const SIGNAL_POLL_MS = 50;

/** Bounds of a dialogue. */
export interface SubprocessLimits {
  /** When the program is ended, by the clock of `performance.now()`; `Infinity` for never. */
  readonly deadline: number;
  /** How many bytes the program may print; it is ended if there are more. */
  readonly maxOutputBytes: number;
  /** Whether the program was started in a group of its own, which then is ended as a whole. */
  readonly processGroup: boolean;
}

/** What came of a dialogue. */
export interface SubprocessResult {
  /** Absent if the program cannot be ended. */
  readonly exitStatus?: ExitStatus;
  /** What it printed. */
  readonly output: Uint8Array;
  /** Why it was ended, if it did not end by itself. */
  readonly stopReason?: StopReason;
}

/** It took too long, printed too much, or this process is asked to end. */
type StopReason = "time" | "output" | "signal";

interface CommunicationState {
  readonly child: ChildProcess;
  readonly limits: SubprocessLimits;
  /** What is read goes here first. */
  readonly buffer: Uint8Array;
  readonly chunks: Uint8Array[];
  outputBytes: number;
  stopReason?: StopReason;
  hasExited: boolean;
  /** When something is to be done if nothing happens before. */
  nextDeadline: number;
  /** Signals that the program was sent. */
  signalsSent: number;
}

/** What is done when a descriptor is ready; false when it is of no more use. */
type ReadyHandler = () => boolean;

/**
 * Gives a program its input and hears what it has to say, until it has ended.
 *
 * @param onStderr takes what it writes to standard error, at once; the bytes are valid for this call only
 * @throws {SystemError}
 */
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
      // everything happens in there
    }
  } finally {
    for (const fd of handlers.keys()) sys.close(fd);
    // Those of the group that did not heed the first signal.
    if (state.stopReason && limits.processGroup) sendSignal(child, SIGKILL, true);
  }
  const exitStatus = reap(child);
  return {
    output: concatenateOutput(state),
    ...(exitStatus && { exitStatus }),
    ...(state.stopReason && { stopReason: state.stopReason }),
  };
}

/** Waits for something to happen and deals with it; false when nothing more is to be waited for. */
function continueCommunication(state: CommunicationState, handlers: Map<number, ReadyHandler>): boolean {
  // Looked at before, so that what is in the pipes by then is still read.
  const isLate = performance.now() >= state.nextDeadline;
  if (isLate && !state.hasExited) terminate(state, "time");
  else if (!state.stopReason && takePendingSignal()) terminate(state, "signal");
  pollOnce(handlers, state);
  if (!state.hasExited && !handlers.has(state.child.pidfd) && findExitStatus(state.child)) {
    state.hasExited = true;
    state.nextDeadline = performance.now() + GRACE_MS;
  }
  const isOutputClosed = !handlers.has(state.child.stdout) && !handlers.has(state.child.stderr);
  return state.hasExited ? !isLate && !isOutputClosed : state.signalsSent <= 2;
}

/** Asks the program to end; the second time it is not asked, and the third time it is given up. */
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
  const lacksPidfd = child.pidfd < 0 && !hasExited;
  const intervalMs = lacksPidfd ? EXIT_POLL_MS : areSignalsBlocked() ? SIGNAL_POLL_MS : Infinity;
  sys.poll(pollfds, handlers.size, Math.ceil(Math.min(remainingMs, intervalMs)));
  for (index = 0; index < pollfds.length; index += 2) {
    const fd = pollfds[index]!;
    const revents = pollfds[index + 1]! >> 16;
    // Nothing but POLLHUP: all that had it open have closed it, and everything was read.
    if (revents === 0 || revents !== POLLHUP && handlers.get(fd)!()) continue;
    handlers.delete(fd);
    sys.close(fd);
  }
}

/** Writes a piece at a time. That the program does not read it is its own affair. */
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

/** Valid until something else is read. */
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
