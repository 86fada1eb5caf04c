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
const SIG_UNBLOCK = 1;
const SIG_IGN = 1;
/** sigset_t: one bit for each signal, from 1. */
const SET_WORDS = 32;

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
  sys.sigprocmask(SIG_BLOCK, heldSet(), null);
}

/** Ends the process if it was asked to meanwhile; else signals do as they always do. */
export function letSignalsThrough(): void {
  if (!held) return;
  held = false;
  sys.sigprocmask(SIG_UNBLOCK, heldSet(), null);
}

/** True while signals wait. */
export function areSignalsHeld(): boolean {
  return held;
}

/**
 * The name of a signal that waits: `SIGTERM`; `undefined` if none does. Tells of it once: what is undone because of it must not be given up
 * in its turn.
 */
export function takeHeldSignal(): string | undefined {
  if (!held || told) return undefined;
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
function isIgnored(signal: number): boolean {
  // struct sigaction { void (*sa_handler)(int); … } of 152 bytes
  const action = new Uint32Array(64);
  sys.sigaction(signal, null, action);
  return action[0] === SIG_IGN && action[1] === 0;
}

function heldSet(): Uint32Array {
  const set = new Uint32Array(SET_WORDS);
  for (const signal of Object.keys(HELD)) set[0]! |= 1 << (Number(signal) - 1);
  return set;
}
