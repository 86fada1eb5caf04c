/**
 * What is said between this process and a program it has started, until that has ended: bounded in time and in size, whatever the
 * program and those it starts do.
 *
 * @see poll(2)
 * @module
 */
import { unless } from "./error.ts";
import { sys } from "./libc.ts";
import { areSignalsHeld, takeHeldSignal } from "./signals.ts";
import { type Child, type End, findEnd, reap, sendSignal, SIGKILL, SIGTERM } from "./process.ts";

const POLLIN = 1;
const POLLOUT = 4;
const POLLHUP = 16;
/** What fits into a pipe that poll(2) calls writable, so that writing it does not wait. */
const PIPE_BUF = 4096;
/** What a pipe holds at most. */
const PIPE_SIZE = 64 * 1024;

/** How long others may hold the pipes open after the program itself has ended: background children do so for ever. */
const PATIENCE_MS = 100;
/** Between asking a program to end and ending it. */
const FAREWELL_MS = 250;
/** How long an ended program may take to be gone: one that waits in the kernel for a broken device never is. */
const BURIAL_MS = 1000;
/** How often to look for the end of a program where the kernel cannot tell of it. */
const LOOK_MS = 5;
/** How often to look for a signal that is held back. */
const SIGNAL_LOOK_MS = 50;

/** Bounds of a dialogue. */
export interface Bounds {
  /** When the program is ended, by the clock of `performance.now()`; `Infinity` for never. */
  readonly deadline: number;
  /** How many bytes the program may print; it is ended if there are more. */
  readonly mostOutput: number;
  /** Whether the program was started in a group of its own, which then is ended as a whole. */
  readonly group: boolean;
}

/** What came of a dialogue. */
export interface Outcome {
  /** Absent if the program cannot be ended. */
  readonly end?: End;
  /** What it printed. */
  readonly output: Uint8Array;
  /** Why it was ended, if it did not end by itself. */
  readonly stopped?: Reason;
}

/** It took too long, printed too much, or this process is asked to end. */
type Reason = "time" | "output" | "signal";

interface State {
  readonly child: Child;
  readonly bounds: Bounds;
  /** What is read goes here first. */
  readonly buffer: Uint8Array;
  readonly parts: Uint8Array[];
  size: number;
  stopped?: Reason;
  ended: boolean;
  /** When something is to be done if nothing happens before. */
  alarm: number;
  /** Signals that the program was sent. */
  signals: number;
}

/** What is done when a descriptor is ready; false when it is of no more use. */
type Watch = () => boolean;

/**
 * Gives a program its input and hears what it has to say, until it has ended.
 *
 * @param hear takes what it writes to standard error, at once; the bytes are valid for this call only
 * @throws {SystemError}
 */
export function converse(child: Child, input: Uint8Array, hear: (bytes: Uint8Array) => void, bounds: Bounds): Outcome {
  const state: State = {
    child,
    bounds,
    buffer: new Uint8Array(PIPE_SIZE),
    parts: [],
    size: 0,
    ended: false,
    alarm: bounds.deadline,
    signals: 0,
  };
  const watches = new Map<number, Watch>([
    [child.stdin, feeder(child.stdin, input)],
    [child.stdout, () => collect(state)],
    [child.stderr, () => listen(state, hear)],
  ]);
  if (child.end >= 0) watches.set(child.end, () => false);
  try {
    while (goOn(state, watches)) {
      // everything happens in there
    }
  } finally {
    for (const fd of watches.keys()) sys.close(fd);
    // Those of the group that did not heed the first signal.
    if (state.stopped && bounds.group) sendSignal(child, SIGKILL, true);
  }
  const end = reap(child);
  return { output: joined(state), ...(end && { end }), ...(state.stopped && { stopped: state.stopped }) };
}

/** Waits for something to happen and deals with it; false when nothing more is to be waited for. */
function goOn(state: State, watches: Map<number, Watch>): boolean {
  // Looked at before, so that what is in the pipes by then is still read.
  const late = performance.now() >= state.alarm;
  if (late && !state.ended) stop(state, "time");
  else if (!state.stopped && takeHeldSignal()) stop(state, "signal");
  awaitNext(watches, state);
  if (!state.ended && !watches.has(state.child.end) && findEnd(state.child)) {
    state.ended = true;
    state.alarm = performance.now() + PATIENCE_MS;
  }
  const silent = !watches.has(state.child.stdout) && !watches.has(state.child.stderr);
  return state.ended ? !late && !silent : state.signals <= 2;
}

/** Asks the program to end; the second time it is not asked, and the third time it is given up. */
function stop(state: State, why: Reason): void {
  const { child, bounds } = state;
  state.stopped ??= why;
  const [signal, time] = state.signals === 0 ? [SIGTERM, FAREWELL_MS] : [SIGKILL, BURIAL_MS];
  state.alarm = performance.now() + time;
  state.signals++;
  sendSignal(child, signal, bounds.group);
}

function awaitNext(watches: Map<number, Watch>, { child, alarm, ended }: State): void {
  // struct pollfd { int fd; short events; short revents; }
  const polled = new Int32Array(watches.size * 2);
  let at = 0;
  for (const fd of watches.keys()) {
    polled[at++] = fd;
    polled[at++] = fd === child.stdin ? POLLOUT : POLLIN;
  }
  const left = Math.max(0, Math.min(alarm - performance.now(), 2 ** 30));
  const blind = child.end < 0 && !ended;
  const look = blind ? LOOK_MS : areSignalsHeld() ? SIGNAL_LOOK_MS : Infinity;
  sys.poll(polled, watches.size, Math.ceil(Math.min(left, look)));
  for (at = 0; at < polled.length; at += 2) {
    const fd = polled[at]!;
    const found = polled[at + 1]! >> 16;
    // Nothing but POLLHUP: all that had it open have closed it, and everything was read.
    if (found === 0 || found !== POLLHUP && watches.get(fd)!()) continue;
    watches.delete(fd);
    sys.close(fd);
  }
}

/** Writes a piece at a time. That the program does not read it is its own affair. */
function feeder(fd: number, input: Uint8Array): Watch {
  let rest = input;
  return () => {
    if (rest.length > 0) {
      const written = unless(["EPIPE"], () => sys.write(fd, rest, Math.min(rest.length, PIPE_BUF)));
      rest = rest.subarray(written ?? rest.length);
    }
    return rest.length > 0;
  };
}

function collect(state: State): boolean {
  const part = readSome(state, state.child.stdout).slice();
  if (part.length === 0) return false;
  if (state.size + part.length > state.bounds.mostOutput) {
    stop(state, "output");
    return false;
  }
  state.size += part.length;
  state.parts.push(part);
  return true;
}

function listen(state: State, hear: (bytes: Uint8Array) => void): boolean {
  const part = readSome(state, state.child.stderr);
  if (part.length > 0) hear(part);
  return part.length > 0;
}

/** Valid until something else is read. */
function readSome({ buffer }: State, fd: number): Uint8Array {
  return buffer.subarray(0, sys.read(fd, buffer, buffer.length));
}

function joined({ parts, size }: State): Uint8Array {
  if (parts.length === 1) return parts[0]!;
  const all = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
