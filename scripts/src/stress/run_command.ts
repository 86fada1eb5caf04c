/** Carries out commands of the specification while others run, and sends signals to their programs. @module */
import { execInvocation, type Invocation, runInvocation, type Verb } from "../harness/invocation.ts";
import { bridgePlugin, type Container, hostLocal, type Network, newChain } from "../harness/networks.ts";
import { NODE_SHIM_DIRECTORY } from "../harness/node_server.ts";
import { type ProcessCommand, runInBackground } from "../harness/process.ts";

export interface StressNetwork {
  readonly invocation: Invocation;
  readonly network: Network;
  /** Whether its calls go through shims. */
  readonly isServed: boolean;
}

export const COLD_INVOCATIONS: readonly Invocation[] = [runInvocation("/run"), execInvocation()];
export const WARM_INVOCATIONS: readonly Invocation[] = [
  runInvocation("/run", [], `${NODE_SHIM_DIRECTORY}/cni`),
  execInvocation(NODE_SHIM_DIRECTORY),
];

/** A network for each invocation. Of each family it has 125 addresses, or many more if it is large. */
export const newNetworks = (isLarge = false, invocations = COLD_INVOCATIONS): readonly StressNetwork[] =>
  invocations.map((invocation, i) => {
    const number = i + 1;
    const [ipv4, ipv6] = [`10.${number}.0.0`, `fd00:${number}::`];
    const ipam = isLarge
      ? hostLocal({ subnet: `${ipv4}/20` }, { subnet: `${ipv6}/64` })
      : hostLocal({ subnet: `${ipv4}/25` }, { subnet: `${ipv6}/121`, rangeEnd: `${ipv6}7e` });
    return {
      invocation,
      isServed: invocations === WARM_INVOCATIONS,
      network: newChain(`${invocation.name}${number}`, bridgePlugin(`br${number}`, ipam)),
    };
  });

export interface SignalFault {
  readonly kind: "kill" | "stop";
  readonly afterMs: number;
}

export interface CommandOutcome {
  /** `killed` by the fault; `try again` with the specification's code 11, since others did not release a lock in time. */
  readonly status: "succeeded" | "failed" | "killed" | "try again";
  readonly ms: number;
  /** Of the last program that failed; empty if none did. */
  readonly output: string;
  readonly result?: AddResult;
}

export interface AddResult {
  readonly ips: readonly { readonly address: string }[];
}

/** A program that hangs is a failure. */
const TIMEOUT_MS = 100_000;
const STOP_DURATION_MS = 50;
/** A worker that was killed between its answer and its end leaves no error object, but a shim's message. */
const MAY_TRY_AGAIN = /"code": ?11,|The server ended during this call/;

/** Carries out a command for a container, or GC for all. @param options of GC: the ids that stay; of DEL and CHECK: what ADD answered */
export async function runCommand(
  { invocation, network }: StressNetwork,
  verb: Verb,
  container?: Container,
  { valid = [], result, fault }: { valid?: readonly string[]; result?: AddResult; fault?: SignalFault } = {},
): Promise<CommandOutcome> {
  const startTime = performance.now();
  const programs = invocation.command(network, verb, { container, valid: container ? undefined : valid, result });
  let output = "";
  let step = programs.next();
  while (!step.done) {
    const ended = await runProgram(step.value, startTime, fault);
    if (ended.exitCode !== 0) output = `${ended.stdout}${ended.stderr}`.trim() || `${ended.exitCode ?? ended.signal}`;
    step = ended.signal === "SIGKILL" ? programs.return(ended) : programs.next(ended);
  }
  const { signal, stdout } = step.value;
  const ms = performance.now() - startTime;
  if (signal === "SIGKILL" && ms < TIMEOUT_MS) return { status: "killed", ms, output };
  if (output !== "") return { status: MAY_TRY_AGAIN.test(output) ? "try again" : "failed", ms, output };
  return { status: "succeeded", ms, output, ...verb === "add" && { result: JSON.parse(stdout) } };
}

async function runProgram(command: ProcessCommand, startTime: number, fault?: SignalFault) {
  const timers: Timer[] = [];
  const ended = await runInBackground({ ...command, timeoutMs: TIMEOUT_MS }, (child) => {
    if (!fault) return;
    const ms = Math.max(0, fault.afterMs - (performance.now() - startTime));
    timers.push(setTimeout(() => child.kill(fault.kind === "kill" ? "SIGKILL" : "SIGSTOP"), ms));
    if (fault.kind === "stop") timers.push(setTimeout(() => child.kill("SIGCONT"), ms + STOP_DURATION_MS));
  });
  timers.forEach((timer) => clearTimeout(timer));
  return ended;
}
