/**
 * Signals that ask this process to end, held back while ending at once would leave something half done.
 *
 * @see sigprocmask(2), sigpending(2)
 * @module
 */
import { sys } from "./libc.ts";

// asm-generic/signal.h
const TERMINATION_SIGNALS: Readonly<Record<number, string>> = { 1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM" };
const SIG_BLOCK = 0;
export const SIG_UNBLOCK = 1;
export const SIG_SETMASK = 2;
const SIG_DFL = 0;
const SIG_IGN = 1;
/** sigset_t: one bit for each signal, from 1. */
const SIGSET_WORDS = 32;
/** Words that struct sigaction has room in: { void (*sa_handler)(int); … } of 152 bytes. */
const SIGACTION_WORDS = 64;

/** The signals that ask to end. */
export const terminationSignals = (): number[] => Object.keys(TERMINATION_SIGNALS).map(Number);

let blocked = false;
let reported = false;

/**
 * Has signals that ask to end wait until {@linkcode unblockSignals}; whoever works meanwhile asks {@linkcode takePendingSignal} now and then.
 *
 * Threads that are there already are not told: for a process that has none.
 */
export function blockSignals(): void {
  blocked = true;
  reported = false;
  sys.sigprocmask(SIG_BLOCK, newSigset(terminationSignals()), null);
}

/**
 * Calls what may wait for ever, before there is anything that would be left half done: meanwhile signals do as they always do.
 */
export function withSignalsUnblocked<T>(call: () => T): T {
  if (!blocked) return call();
  unblockSignals();
  try {
    return call();
  } finally {
    blockSignals();
  }
}

/** Ends the process if it was asked to meanwhile; else signals do as they always do. */
export function unblockSignals(): void {
  if (!blocked) return;
  blocked = false;
  sys.sigprocmask(SIG_UNBLOCK, newSigset(terminationSignals()), null);
}

/**
 * Has {@linkcode takePendingSignal} tell of none any more: for whoever undoes what was done, which must not be given up in its turn, whatever it
 * is undone for and however often somebody asks. Programs that are called meanwhile have their time limits all the same, and one that hangs
 * gets what a terminal sends.
 */
export function stopReportingSignals(): void {
  reported = true;
}

/** True while signals wait. */
export function areSignalsBlocked(): boolean {
  return blocked;
}

/** True while {@linkcode takePendingSignal} could tell of one. */
export function isReportingSignals(): boolean {
  return blocked && !reported;
}

/**
 * The name of a signal that waits: `SIGTERM`; `undefined` if none does. Tells of it once: what is undone because of it must not be given up
 * in its turn.
 */
export function takePendingSignal(): string | undefined {
  if (!isReportingSignals()) return undefined;
  const pending = new Uint32Array(SIGSET_WORDS);
  sys.sigpending(pending);
  for (const [number, name] of Object.entries(TERMINATION_SIGNALS)) {
    if (pending[0]! >> (Number(number) - 1) & 1 && !isIgnored(Number(number))) {
      reported = true;
      return name;
    }
  }
  return undefined;
}

/** As nohup(1) has it: while it is held back, such a signal waits like any other. */
const isIgnored = (signal: number): boolean => signalHandler(signal) === SIG_IGN;

/** Whether a signal does what it does where nobody asked for anything else. */
export const hasDefaultHandler = (signal: number): boolean => signalHandler(signal) === SIG_DFL;

function signalHandler(signal: number): number {
  const action = newSigaction(0);
  sys.sigaction(signal, null, action);
  return action[0]! + action[1]! * 2 ** 32;
}

/** A struct sigaction: what the function at the address of `handler` is called for. */
export function newSigaction(handler: number): Uint32Array {
  const action = new Uint32Array(SIGACTION_WORDS);
  action[0] = handler;
  action[1] = Math.floor(handler / 2 ** 32);
  return action;
}

/** A sigset_t with these. */
export function newSigset(signals: readonly number[]): Uint32Array {
  const set = new Uint32Array(SIGSET_WORDS);
  for (const signal of signals) set[0]! |= 1 << (signal - 1);
  return set;
}
