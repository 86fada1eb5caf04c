/** A signal interrupts system calls without a time limit. @module */
import { noopFunctionAddress, sys } from "./libc.ts";
import {
  hasDefaultHandler,
  isReportingSignals,
  newSigaction,
  newSigset,
  SIG_SETMASK,
  SIG_UNBLOCK,
  terminationSignals,
} from "./signals.ts";

// asm/unistd_64.h and asm-generic/unistd.h
const arm = process.arch === "arm64";
const SYS_gettid = arm ? 178 : 186;
const SYS_timer_create = arm ? 107 : 222;
const SYS_timer_settime = arm ? 110 : 223;
const SYS_timer_delete = arm ? 111 : 226;
const CLOCK_MONOTONIC = 1;
const SIGEV_THREAD_ID = 4;
const SIGALRM = 14;
// The flags follow the handler and 128 bytes of signals in glibc's and musl's struct sigaction.
const FLAGS_INDEX = 34;
const SA_RESETHAND = 0x8000_0000;
// A signal may come just before the call.
const REPEAT_MS = 20;

export interface TimeLimit extends Disposable {
  isTerminationRequested(): boolean;
}

/**
 * Interrupts this thread's waiting calls (`EINTR`) from `timeoutMs` on, and when a blocked termination signal comes.
 * That signal is blocked and pending again after the scope.
 *
 * @throws {SystemError} where there are no timers
 */
export function interruptAfter(timeoutMs: number): TimeLimit {
  const signals = [SIGALRM, ...(isReportingSignals() ? terminationSignals().filter(hasDefaultHandler) : [])];
  const timer = newTimer();
  const previousActions = signals.map((signal) => installNoopHandler(signal));
  const mask = newSigset([]);
  sys.sigprocmask(SIG_UNBLOCK, newSigset(signals), mask);
  const wasDelivered = (signal: number) => signal !== SIGALRM && hasDefaultHandler(signal);
  startTimer(timer, timeoutMs);
  return {
    isTerminationRequested: () => signals.some(wasDelivered),
    [Symbol.dispose]() {
      sys.syscall(SYS_timer_delete, timer, null, 0, 0);
      sys.sigprocmask(SIG_SETMASK, mask, null);
      const delivered = signals.filter(wasDelivered);
      signals.forEach((signal, i) => sys.sigaction(signal, previousActions[i]!, null));
      // Pending again, for this thread: others of the runtime may not block it.
      for (const signal of delivered) sys.raise(signal);
    },
  };
}

/** SA_RESETHAND later shows whether a termination signal came. @returns the previous action */
function installNoopHandler(signal: number): Uint32Array {
  const previousAction = newSigaction(0);
  const action = newSigaction(noopFunctionAddress());
  action[FLAGS_INDEX] = signal === SIGALRM ? 0 : SA_RESETHAND;
  sys.sigaction(signal, action, previousAction);
  return previousAction;
}

function newTimer(): number {
  // struct sigevent of 64 bytes: { u64 value; i32 signo, notify, thread_id; … }
  const event = new Int32Array(16);
  event.set([SIGALRM, SIGEV_THREAD_ID, sys.syscall(SYS_gettid, 0, null, 0, 0)], 2);
  const timer = new Int32Array(1);
  sys.syscall(SYS_timer_create, CLOCK_MONOTONIC, event, timer, 0);
  return timer[0]!;
}

function startTimer(timer: number, timeoutMs: number): void {
  // struct itimerspec { struct timespec it_interval; struct timespec it_value; }; zero would disarm it.
  const nanoseconds = BigInt(Math.max(1, Math.ceil(timeoutMs))) * 1_000_000n;
  const spec = new BigInt64Array([
    0n,
    BigInt(REPEAT_MS) * 1_000_000n,
    nanoseconds / 1_000_000_000n,
    nanoseconds % 1_000_000_000n,
  ]);
  sys.syscall(SYS_timer_settime, timer, null, spec, 0);
}
