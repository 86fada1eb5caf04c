/** Carries out commands of the specification beside others, and lets bad things happen to them. @module */
import type { LockTrace } from "./lock_trace.ts";
import type { Command, Container, Network, Verb } from "./network.ts";

/** What is to be done to a command, and when. */
export interface Mishap {
  readonly kind: "kill" | "stop";
  readonly afterMs: number;
}

/** How a command ended. */
export interface Ended {
  /** `killed` by the mishap; who was `put off` is to try again later, since others did not give up a lock in time; who failed said why. */
  readonly how: "succeeded" | "failed" | "killed" | "put off";
  readonly ms: number;
  /** What the last of its programs said. */
  readonly said: string;
  /** Of ADD that succeeded. */
  readonly result?: Result;
}

/** What ADD answers. */
export interface Result {
  readonly ips: readonly { readonly address: string }[];
}

/** What a command works with. */
export interface Options {
  /** Of GC: who stays. */
  readonly valid?: readonly Container[];
  /** Of DEL and CHECK of an engine. */
  readonly result?: Result | undefined;
  readonly mishap?: Mishap | undefined;
  /** Has the locks of its programs watched. */
  readonly trace?: LockTrace | undefined;
}

/** A program that hangs is a failure; no engine waits for longer. */
const LONGEST_MS = 100_000;
const STOPPED_MS = 50;

/** Carries out a command for a container, or GC for all. */
export async function call(
  network: Network,
  verb: Verb,
  container: Container | undefined,
  { valid = [], result, mishap, trace }: Options = {},
): Promise<Ended> {
  const began = performance.now();
  let last: Program = { exitCode: 0, signal: null, stdout: "", stderr: "" };
  let said = "";
  let answer: unknown = verb === "add" ? undefined : result;
  const fate = { mishap, began };
  for (let part = 0; part < network.parts; part++) {
    const command = network.command(verb, part, container, { result: answer, valid });
    last = await start(trace ? trace.wrap(command) : command, fate);
    if (last.exitCode !== 0) said = `${last.stdout}${last.stderr}`.trim() || `${last.exitCode ?? last.signal}`;
    // Engines end at once when an ADD or a DEL fails, and go on with a GC.
    if (last.exitCode !== 0 && (verb !== "gc" || last.signal === "SIGKILL")) break;
    if (verb === "add") answer = JSON.parse(last.stdout);
  }
  const ms = performance.now() - began;
  const how = last.signal === "SIGKILL" && ms < LONGEST_MS
    ? "killed"
    : said === ""
    ? "succeeded"
    : said.includes('"code": 11,')
    ? "put off"
    : "failed";
  return { how, ms, said, ...(how === "succeeded" && verb === "add" && { result: answer as Result }) };
}

interface Program {
  readonly exitCode: number | null;
  readonly signal: string | number | null;
  readonly stdout: string;
  readonly stderr: string;
}

async function start(
  { argv, env, stdin }: Command,
  { mishap, began }: { readonly mishap: Mishap | undefined; readonly began: number },
): Promise<Program> {
  const child = Bun.spawn([...argv], {
    cwd: "/",
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", ...env },
    stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
    stdout: "pipe",
    stderr: "pipe",
    timeout: LONGEST_MS,
    killSignal: "SIGKILL",
  });
  const timers: Timer[] = [];
  if (mishap) {
    const later = (ms: number, signal: NodeJS.Signals) => timers.push(setTimeout(() => child.kill(signal), ms));
    const afterMs = Math.max(0, mishap.afterMs - (performance.now() - began));
    later(afterMs, mishap.kind === "kill" ? "SIGKILL" : "SIGSTOP");
    if (mishap.kind === "stop") later(afterMs + STOPPED_MS, "SIGCONT");
  }
  const [stdout, stderr] = await Promise.all([child.stdout.text(), child.stderr.text()]);
  await child.exited;
  for (const timer of timers) clearTimeout(timer);
  return { exitCode: child.exitCode, signal: child.signalCode, stdout, stderr };
}
