/** Carries out commands of the specification while others run, and sends signals to their programs. @module */
import type { Container } from "../harness/container.ts";
import type { Verb } from "../harness/invocation.ts";
import { type ProcessCommand, type ProcessResult, runInBackground } from "../harness/process.ts";
import type { LockTrace } from "./lock_trace.ts";
import type { StressNetwork } from "./network.ts";

/** A signal to a command, and when. */
export interface SignalFault {
  readonly kind: "kill" | "stop";
  readonly afterMs: number;
}

/** How a command ended. */
export interface CommandOutcome {
  /** `killed` by the fault; `try again` with the specification's code 11, since others did not release a lock in time. */
  readonly status: "succeeded" | "failed" | "killed" | "try again";
  readonly ms: number;
  /** Of the last program that failed; empty if none did. */
  readonly output: string;
  /** Of ADD that succeeded. */
  readonly result?: AddResult;
}

/** What ADD answers. */
export interface AddResult {
  readonly ips: readonly { readonly address: string }[];
}

/** What a command works with. */
export interface CommandOptions {
  /** Of GC: the ids of containers that stay. */
  readonly valid?: readonly string[];
  /** Of DEL and CHECK: what ADD answered. */
  readonly result?: AddResult | undefined;
  readonly fault?: SignalFault | undefined;
  /** Traces the locks of its programs. */
  readonly trace?: LockTrace | undefined;
}

/** A program that hangs is a failure. */
const TIMEOUT_MS = 100_000;
const STOP_DURATION_MS = 50;

/** Carries out a command for a container, or GC for all. */
export async function runCommand(
  { invocation, network }: StressNetwork,
  verb: Verb,
  container: Container | undefined,
  { valid = [], result, fault, trace }: CommandOptions = {},
): Promise<CommandOutcome> {
  const startTime = performance.now();
  const programs = invocation.command(network, verb, { container, valid: container ? undefined : valid, result });
  let output = "";
  let step = programs.next();
  while (!step.done) {
    const ended = await runProgram(trace ? trace.wrap(step.value) : step.value, startTime, fault);
    if (ended.exitCode !== 0) output = `${ended.stdout}${ended.stderr}`.trim() || `${ended.exitCode ?? ended.signal}`;
    step = ended.signal === "SIGKILL" ? programs.return(ended) : programs.next(ended);
  }
  const { signal, stdout } = step.value;
  const ms = performance.now() - startTime;
  const status = signal === "SIGKILL" && ms < TIMEOUT_MS
    ? "killed"
    : output === ""
    ? "succeeded"
    : output.includes('"code": 11,')
    ? "try again"
    : "failed";
  return { status, ms, output, ...(status === "succeeded" && verb === "add" && { result: JSON.parse(stdout) }) };
}

async function runProgram(command: ProcessCommand, startTime: number, fault?: SignalFault): Promise<ProcessResult> {
  using signals = new DisposableStack();
  return await runInBackground({ ...command, timeoutMs: TIMEOUT_MS }, (child) => {
    if (!fault) return;
    const afterMs = Math.max(0, fault.afterMs - (performance.now() - startTime));
    signals.use(scheduleSignals(child, { ...fault, afterMs }));
  });
}

function scheduleSignals(child: Bun.Subprocess, { kind, afterMs }: SignalFault): Disposable {
  const signalAfter = (ms: number, signal: NodeJS.Signals) => setTimeout(() => child.kill(signal), ms);
  const timers = [signalAfter(afterMs, kind === "kill" ? "SIGKILL" : "SIGSTOP")];
  if (kind === "stop") timers.push(signalAfter(afterMs + STOP_DURATION_MS, "SIGCONT"));
  return { [Symbol.dispose]: () => timers.forEach((timer) => clearTimeout(timer)) };
}
