/** The expected state of every container, and workers that attach and detach containers at random. @module */
import type { Verb } from "../harness/invocation.ts";
import { type Container, newContainer } from "../harness/networks.ts";
import type { RandomSource } from "../harness/random.ts";
import {
  type AddResult,
  type CommandOutcome,
  runCommand,
  type SignalFault,
  type StressNetwork,
} from "./run_command.ts";

export interface TrackedContainer extends Container {
  readonly network: StressNetwork;
  /** `attached` from a successful ADD to the start of DEL; `detached` after DEL or a GC that ran alone; else `unknown`, as after a kill. */
  state: "detached" | "attached" | "unknown";
  runningVerb: Verb | undefined;
  generation: number;
  /** The answer of ADD, kept when a DEL is killed. */
  result: AddResult | undefined;
}

/** All containers, what was done to them, and what was found wrong. */
export type Model = ReturnType<typeof newModel>;

export function newModel(networks: readonly StressNetwork[], workers: number) {
  const containers = networks.flatMap((network, n) =>
    Array.from({ length: workers }, (_, i): TrackedContainer => ({
      ...newContainer(`${network.invocation.name}-${i}`, 10_000 + n * 10_000 + i),
      network,
      state: "detached",
      runningVerb: undefined,
      generation: 0,
      result: undefined,
    }))
  );
  return {
    containers,
    violations: [] as string[],
    addressOwners: new Map<string, TrackedContainer>(),
    checks: 0,
    /** Of an engine alone: our own runtime keeps ADDs and a GC apart itself. */
    gates: new Map(networks.filter(({ invocation }) => invocation.name === "exec").map((key) => [key, newGcGate()])),
    /** Moving average of milliseconds, by invocation and verb. */
    typicalMs: new Map<string, number>(),
    counts: { operations: 0, killed: 0, "to try again": 0, "stopped for a while": 0 },
  };
}

export function recordAdd(model: Model, container: TrackedContainer, result: AddResult): void {
  container.state = "attached";
  container.result = result;
  for (const address of addressesOf(container)) {
    model.checks++;
    const owner = model.addressOwners.get(address);
    if (owner) model.violations.push(`${address} was given to "${container.id}", and "${owner.id}" has it`);
    model.addressOwners.set(address, container);
  }
}

/** A DEL begins: from here on others may get its addresses. */
export function beginDel(model: Model, container: TrackedContainer): void {
  for (const address of addressesOf(container)) {
    if (model.addressOwners.get(address) === container) model.addressOwners.delete(address);
  }
  container.state = "unknown";
}

export function recordDel(container: TrackedContainer): void {
  container.state = "detached";
  container.result = undefined;
}

/** The addresses, without the length of the prefix. */
export const addressesOf = ({ result }: TrackedContainer): string[] =>
  result?.ips.map(({ address }) => address.split("/")[0]!) ?? [];

const KILL_PROBABILITY = 0.15;
const STOP_PROBABILITY = 0.02;
/** A caller whose worker was killed is told before, counted from a time at which most calls are over. */
const SERVER_DEATH_LIMIT_MS = 5000;
const MOST_CALLS = 4;

export async function runWorker(
  model: Model,
  containers: readonly TrackedContainer[],
  random: RandomSource,
  operations: number,
): Promise<void> {
  const { counts, typicalMs } = model;
  for (let i = 0; i < operations; i++) {
    const container = random.pick(containers);
    const verb = chooseVerb(container, random);
    const key = `${container.network.invocation.name} ${verb}`;
    const usualMs = typicalMs.get(key) ?? 50;
    const fault = chooseFault(random, usualMs);
    const { status, ms, output } = await runOperation(model, container, verb, fault);
    if (output.includes("The server ended") && ms > MOST_CALLS * usualMs + SERVER_DEATH_LIMIT_MS) {
      model.violations.push(`${verb} of "${container.id}" took ${Math.round(ms)} ms: ${output}`);
    }
    if (status === "succeeded" && !fault) typicalMs.set(key, usualMs * 0.9 + ms * 0.1);
    counts.operations++;
    if (status === "killed") counts.killed++;
    if (status === "try again") counts["to try again"]++;
    if (fault?.kind === "stop") counts["stopped for a while"]++;
  }
}

function chooseVerb({ state, network }: TrackedContainer, random: RandomSource): Verb {
  // An engine never attaches twice, and our own runtime refuses it.
  const again = network.invocation.name === "run" ? 0.1 : 0;
  const weights = {
    detached: { add: 0.9, del: 0.07, check: 0, gc: 0.03 },
    attached: { add: again, del: 0.5, check: 0.4, gc: 0.03 },
    // The call of a killed shim goes on for a while, and only a DEL waits for it.
    unknown: { add: network.isServed ? 0 : 0.2, del: 0.7, check: 0, gc: 0.1 },
  }[state];
  return random.pickWeighted(Object.entries(weights).map(([verb, weight]) => [weight, verb as Verb] as const));
}

function chooseFault(random: RandomSource, typicalMs: number): SignalFault | undefined {
  const afterMs = random.next() * 1.2 * typicalMs;
  return random.pickWeighted<SignalFault | undefined>([
    [KILL_PROBABILITY, { kind: "kill", afterMs }],
    [STOP_PROBABILITY, { kind: "stop", afterMs }],
    [1 - KILL_PROBABILITY - STOP_PROBABILITY, undefined],
  ]);
}

function runOperation(model: Model, container: TrackedContainer, verb: Verb, fault: SignalFault | undefined) {
  const gate = model.gates.get(container.network);
  const work = () =>
    verb === "gc" ? runGc(model, container.network, fault) : runOnContainer(model, container, verb, fault);
  if (!gate || verb !== "gc" && verb !== "add") return work();
  return verb === "gc" ? gate.exclusive(work) : gate.shared(work);
}

export async function runOnContainer(model: Model, container: TrackedContainer, verb: Verb, fault?: SignalFault) {
  const { state: before, result } = container;
  container.runningVerb = verb;
  container.generation++;
  if (verb === "del") beginDel(model, container);
  const outcome = await runCommand(container.network, verb, container, { fault, result });
  container.runningVerb = undefined;
  model.checks++;
  const expected = verb === "add" ? { attached: "failed", detached: "succeeded", unknown: "" }[before] : "succeeded";
  const hasEnded = outcome.status === "succeeded" || outcome.status === "failed";
  if (hasEnded && expected !== "" && outcome.status !== expected) {
    model.violations.push(`${verb} of "${container.id}", which was ${before}, ${outcome.status}: ${outcome.output}`);
  }
  // An ADD that is refused, and a CHECK, change nothing, wherever they are killed.
  if (verb === "add" && before !== "attached") {
    if (outcome.result) recordAdd(model, container, outcome.result);
    else container.state = "unknown";
  } else if (verb === "del" && outcome.status === "succeeded") recordDel(container);
  return outcome;
}

/** Runs a GC that keeps all containers that it must keep. */
async function runGc(model: Model, network: StressNetwork, fault: SignalFault | undefined): Promise<CommandOutcome> {
  const all = model.containers.filter((container) => container.network === network);
  const mustSurvive = ({ state, runningVerb }: TrackedContainer) => state === "attached" || runningVerb === "add";
  const idle = all.filter(({ runningVerb }) => runningVerb === undefined)
    .map((container) => ({ container, generation: container.generation }));
  const valid = all.filter(mustSurvive).map(({ id }) => id);
  const outcome = await runCommand(network, "gc", undefined, { fault, valid });
  model.checks++;
  const unchanged = idle.filter(({ container, generation }) => container.generation === generation)
    .map(({ container }) => container);
  // Our own runtime may not know those that must survive yet: their ADDs run. Then it does not detach others that live.
  const isRefused = /names no remembered attachment/.test(outcome.output) && !unchanged.some(mustSurvive);
  if (outcome.status === "failed" && !isRefused) {
    model.violations.push(`gc of ${network.network.name} failed: ${outcome.output}`);
  }
  // Only our own runtime records what it calls, and so knows of plugins that were killed.
  if (outcome.status !== "succeeded" || network.invocation.name !== "run") return outcome;
  for (const container of unchanged) if (!mustSurvive(container)) recordDel(container);
  return outcome;
}

/** Keeps ADDs and a GC apart: an engine's list of valid attachments is wrong as soon as another ADD begins. */
export function newGcGate() {
  let turn: Promise<unknown> | undefined;
  const running = new Set<Promise<unknown>>();
  return {
    async shared<T>(work: () => Promise<T>): Promise<T> {
      while (turn) await turn;
      const working = work();
      running.add(working);
      return await working.finally(() => running.delete(working));
    },
    exclusive<T>(work: () => Promise<T>): Promise<T> {
      const working = Promise.resolve(turn).then(() => Promise.allSettled(running)).then(work);
      const end = turn = working.catch(() => {}).finally(() => {
        if (turn === end) turn = undefined;
      });
      return working;
    },
  };
}
