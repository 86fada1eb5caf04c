/**
 * Signals that ask this process to end, held back while ending at once would leave something half done.
 *
 * @see sigprocmask(2), sigpending(2)
 * @module
 */
import { sys } from "./libc.ts";

// asm-generic/signal.h
const HELD: Readonly<Record<number, string>> = { 1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM" };
const SIG_BLOCK = 0;
export const SIG_UNBLOCK = 1;
export const SIG_SETMASK = 2;
const SIG_DFL = 0;
const SIG_IGN = 1;
/** sigset_t: one bit for each signal, from 1. */
const SET_WORDS = 32;
/** Words that struct sigaction has room in: { void (*sa_handler)(int); … } of 152 bytes. */
const ACTION_WORDS = 64;

/** The signals that ask to end. */
export const heldSignals = (): number[] => Object.keys(HELD).map(Number);

let held = false;
let told = false;

/**
 * Has signals that ask to end wait until {@linkcode letSignalsThrough}; whoever works meanwhile asks {@linkcode takeHeldSignal} now and then.
 *
 * Threads that are there already are not told: for a process that has none.
 */
export function holdSignals(): void {
  held = true;
  told = false;
  sys.sigprocmask(SIG_BLOCK, setOf(heldSignals()), null);
}

/**
 * Calls what may wait for ever, before there is anything that would be left half done: meanwhile signals do as they always do.
 */
export function interruptibly<T>(call: () => T): T {
  if (!held) return call();
  letSignalsThrough();
  try {
    return call();
  } finally {
    holdSignals();
  }
}

/** Ends the process if it was asked to meanwhile; else signals do as they always do. */
export function letSignalsThrough(): void {
  if (!held) return;
  held = false;
  sys.sigprocmask(SIG_UNBLOCK, setOf(heldSignals()), null);
}

/**
 * Has {@linkcode takeHeldSignal} tell of none any more: for whoever undoes what was done, which must not be given up in its turn, whatever it
 * is undone for and however often somebody asks. Programs that are called meanwhile have their time limits all the same, and one that hangs
 * gets what a terminal sends.
 */
export function stopListening(): void {
  told = true;
}

/** True while signals wait. */
export function areSignalsHeld(): boolean {
  return held;
}

/** True while {@linkcode takeHeldSignal} could tell of one. */
export function isListening(): boolean {
  return held && !told;
}

/**
 * The name of a signal that waits: `SIGTERM`; `undefined` if none does. Tells of it once: what is undone because of it must not be given up
 * in its turn.
 */
export function takeHeldSignal(): string | undefined {
  if (!isListening()) return undefined;
  const pending = new Uint32Array(SET_WORDS);
  sys.sigpending(pending);
  for (const [number, name] of Object.entries(HELD)) {
    if (pending[0]! >> (Number(number) - 1) & 1 && !isIgnored(Number(number))) {
      told = true;
      return name;
    }
  }
  return undefined;
}

/** As nohup(1) has it: while it is held back, such a signal waits like any other. */
const isIgnored = (signal: number): boolean => handlerOf(signal) === SIG_IGN;

/** Whether a signal does what it does where nobody asked for anything else. */
export const isDefault = (signal: number): boolean => handlerOf(signal) === SIG_DFL;

function handlerOf(signal: number): number {
  const action = newAction(0);
  sys.sigaction(signal, null, action);
  return action[0]! + action[1]! * 2 ** 32;
}

/** A struct sigaction: what the function at the address of `handler` is called for. */
export function newAction(handler: number): Uint32Array {
  const action = new Uint32Array(ACTION_WORDS);
  action[0] = handler;
  action[1] = Math.floor(handler / 2 ** 32);
  return action;
}

/** A sigset_t with these. */
export function setOf(signals: readonly number[]): Uint32Array {
  const set = new Uint32Array(SET_WORDS);
  for (const signal of signals) set[0]! |= 1 << (signal - 1);
  return set;
}
