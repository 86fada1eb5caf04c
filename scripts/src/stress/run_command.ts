/** Carries out commands of the specification beside others, and lets bad things happen to them. @module */
import type { LockTrace } from "./lock_trace.ts";
import type { StressCommand, StressContainer, StressNetwork, StressVerb } from "./network.ts";

/** What is to be done to a command, and when. */
export interface SignalFault {
  readonly kind: "kill" | "stop";
  readonly afterMs: number;
}

/** How a command ended. */
export interface CommandOutcome {
  /** `killed` by the fault; who was `put off` is to try again later, since others did not give up a lock in time; who failed said why. */
  readonly status: "succeeded" | "failed" | "killed" | "put off";
  readonly ms: number;
  /** What the last of its programs said. */
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
  /** Of GC: who stays. */
  readonly valid?: readonly StressContainer[];
  /** Of DEL and CHECK of an engine. */
  readonly result?: AddResult | undefined;
  readonly fault?: SignalFault | undefined;
  /** Has the locks of its programs watched. */
  readonly trace?: LockTrace | undefined;
}

/** A program that hangs is a failure; no engine waits for longer. */
const TIMEOUT_MS = 100_000;
const STOP_DURATION_MS = 50;

/** Carries out a command for a container, or GC for all. */
export async function runCommand(
  network: StressNetwork,
  verb: StressVerb,
  container: StressContainer | undefined,
  { valid = [], result, fault, trace }: CommandOptions = {},
): Promise<CommandOutcome> {
  const startTime = performance.now();
  let last: ProgramResult = { exitCode: 0, signal: null, stdout: "", stderr: "" };
  let output = "";
  let chainResult: unknown = verb === "add" ? undefined : result;
  const timing = { fault: fault, began: startTime };
  for (let index = 0; index < network.programCount; index++) {
    const command = network.command(verb, index, container, { result: chainResult, valid });
    last = await startProgram(trace ? trace.wrap(command) : command, timing);
    if (last.exitCode !== 0) output = `${last.stdout}${last.stderr}`.trim() || `${last.exitCode ?? last.signal}`;
    // Engines end at once when an ADD or a DEL fails, and go on with a GC.
    if (last.exitCode !== 0 && (verb !== "gc" || last.signal === "SIGKILL")) break;
    if (verb === "add") chainResult = JSON.parse(last.stdout);
  }
  const ms = performance.now() - startTime;
  const status = last.signal === "SIGKILL" && ms < TIMEOUT_MS
    ? "killed"
    : output === ""
    ? "succeeded"
    : output.includes('"code": 11,')
    ? "put off"
    : "failed";
  return { status, ms, output, ...(status === "succeeded" && verb === "add" && { result: chainResult as AddResult }) };
}

interface ProgramResult {
  readonly exitCode: number | null;
  readonly signal: string | number | null;
  readonly stdout: string;
  readonly stderr: string;
}

async function startProgram(
  { argv, env, stdin }: StressCommand,
  { fault: fault, began: startTime }: { readonly fault: SignalFault | undefined; readonly began: number },
): Promise<ProgramResult> {
  const child = Bun.spawn([...argv], {
    cwd: "/",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", ...env },
    stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
    stdout: "pipe",
    stderr: "pipe",
    timeout: TIMEOUT_MS,
    killSignal: "SIGKILL",
  });
  const timers: Timer[] = [];
  if (fault) {
    const signalAfter = (ms: number, signal: NodeJS.Signals) => timers.push(setTimeout(() => child.kill(signal), ms));
    const afterMs = Math.max(0, fault.afterMs - (performance.now() - startTime));
    signalAfter(afterMs, fault.kind === "kill" ? "SIGKILL" : "SIGSTOP");
    if (fault.kind === "stop") signalAfter(afterMs + STOP_DURATION_MS, "SIGCONT");
  }
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  await child.exited;
  for (const timer of timers) clearTimeout(timer);
  return { exitCode: child.exitCode, signal: child.signalCode, stdout, stderr };
}
