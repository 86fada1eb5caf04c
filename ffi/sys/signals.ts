/** Blocks signals that ask this process to end, so that it does not stop half done. @module */
import { findCaller } from "./caller.ts";
import { putPointer, sys } from "./libc.ts";
import { SIGHUP, SIGINT } from "./uapi.ts";

// asm-generic/signal.h
const TERMINATION_SIGNALS: Readonly<Record<number, string>> = { 1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM" };
const SIG_BLOCK = 0;
export const SIG_UNBLOCK = 1;
export const SIG_SETMASK = 2;
const SIG_DFL = 0;
const SIG_IGN = 1;
// sigset_t: one bit for each signal, from 1.
const SIGSET_WORDS = 32;
// More than struct sigaction, of 152 bytes.
const SIGACTION_WORDS = 64;

let blocked = false;
let reported = false;

export function resetSignals(): void {
  blocked = false;
  reported = false;
}

export const terminationSignals = (): number[] =>
  findCaller() ? [findCaller()!.signal] : Object.keys(TERMINATION_SIGNALS).map(Number);

export const terminationSignalName = (signal: number): string => TERMINATION_SIGNALS[signal] ?? `signal ${signal}`;

export function interruptedBy<T>(signals: readonly number[], call: () => T): T {
  const set = newSigset(signals);
  sys.sigprocmask(SIG_UNBLOCK, set, null);
  try {
    return call();
  } finally {
    sys.sigprocmask(SIG_BLOCK, set, null);
  }
}

export function discardSignal(signal: number): void {
  sys.sigaction(signal, newSigaction(SIG_IGN), null);
  sys.sigaction(signal, newSigaction(SIG_DFL), null);
}

/** Blocks signals for this process and threads and programs that it starts later. */
export function blockForGood(signals: readonly number[]): void {
  sys.sigprocmask(SIG_BLOCK, newSigset(signals), null);
}

/**
 * Blocks termination signals; {@linkcode takePendingSignal} reports them. Only for a process without other threads,
 * which would receive them.
 */
export function blockSignals(): void {
  blocked = true;
  reported = false;
  blockForGood(terminationSignals());
}

/** Needed where a call may wait forever. */
export function withSignalsUnblocked<T>(call: () => T): T {
  return blocked || findCaller() ? interruptedBy(terminationSignals(), call) : call();
}

/** A pending signal ends the process. */
export function unblockSignals(): void {
  if (!blocked || findCaller()) return;
  blocked = false;
  sys.sigprocmask(SIG_UNBLOCK, newSigset(terminationSignals()), null);
}

/**
 * Makes {@linkcode takePendingSignal} report none, so that an undo completes. Called programs keep their time limits.
 */
export function stopReportingSignals(): void {
  reported = true;
}

export function areSignalsBlocked(): boolean {
  return blocked;
}

export function isReportingSignals(): boolean {
  return blocked && !reported;
}

/** A pending signal: `SIGTERM`. Reported once: the undo that follows must complete. */
export function takePendingSignal(): string | undefined {
  if (!isReportingSignals()) return undefined;
  const name = findPendingSignal();
  reported = name !== undefined;
  return name;
}

/**
 * A terminal's signal to the process group of a worker's caller. An undo does not report it, and the programs that the
 * worker starts are not in that group.
 */
export function takeTerminalSignal(): number | undefined {
  const name = blocked && reported ? findCaller()?.readSignal() : undefined;
  return [SIGHUP, SIGINT].find((signal) => TERMINATION_SIGNALS[signal] === name);
}

function findPendingSignal(): string | undefined {
  const caller = findCaller();
  if (caller) return caller.readSignal();
  const pending = new Uint32Array(SIGSET_WORDS);
  sys.sigpending(pending);
  for (const [number, name] of Object.entries(TERMINATION_SIGNALS)) {
    if (pending[0]! >> (Number(number) - 1) & 1 && !isIgnored(Number(number))) return name;
  }
  return undefined;
}

/** Set by nohup(1), for example. A blocked signal is pending even if ignored. */
export const isIgnored = (signal: number): boolean => signalHandler(signal) === SIG_IGN;

export const hasDefaultHandler = (signal: number): boolean => signalHandler(signal) === SIG_DFL;

function signalHandler(signal: number): number {
  const action = newSigaction(0);
  sys.sigaction(signal, null, action);
  return action[0]! + action[1]! * 2 ** 32;
}

export function newSigaction(handler: number): Uint32Array {
  const action = new Uint32Array(SIGACTION_WORDS);
  putPointer(action, 0, handler);
  return action;
}

export function newSigset(signals: readonly number[]): Uint32Array {
  const set = new Uint32Array(SIGSET_WORDS);
  for (const signal of signals) set[(signal - 1) >> 5]! |= 1 << ((signal - 1) & 31);
  return set;
}
