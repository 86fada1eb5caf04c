/** Somebody who has containers come and go at random. @module */
import { type CommandOptions, type CommandOutcome, runCommand, type SignalFault } from "./run_command.ts";
import type { LockTrace } from "./lock_trace.ts";
import { beginDel, type Model, mustSurviveGc, recordAdd, recordDel, type TrackedContainer } from "./model.ts";
import type { StressNetwork, StressVerb } from "./network.ts";
import type { Prng } from "../harness/prng.ts";

/** What was done. */
export interface OperationCounts {
  /** By `add succeeded`, `del killed`, … */
  readonly counts: Map<string, number>;
  stops: number;
  longestMs: number;
}

/** What all workers share. */
export interface SharedState {
  readonly model: Model;
  readonly tally: OperationCounts;
  readonly trace: LockTrace;
  /** Usual milliseconds, by way and verb. */
  readonly typicalMs: Map<string, number>;
  readonly gates: ReadonlyMap<StressNetwork, GcGate>;
  log(line: string): void;
}

const KILL_PROBABILITY = 0.15;
const STOP_PROBABILITY = 0.02;
const TRACE_PROBABILITY = 0.02;

/** Carries out so many operations, one after another. */
export async function runWorker(
  shared: SharedState,
  containers: readonly TrackedContainer[],
  prng: Prng,
  operations: number,
): Promise<void> {
  for (let i = 0; i < operations; i++) {
    const container = prng.pick(containers.map((each) => [1, each] as const));
    const verb = chooseVerb(container, prng);
    const key = `${container.network.invocation} ${verb}`;
    const typicalMs = shared.typicalMs.get(key) ?? 50;
    const fault = chooseFault(prng, typicalMs);
    const trace = !fault && prng.chance(TRACE_PROBABILITY) ? shared.trace : undefined;
    const outcome = await runOperation(shared, container, verb, { fault, trace });
    if (outcome.status === "succeeded" && !fault) shared.typicalMs.set(key, typicalMs * 0.9 + outcome.ms * 0.1);
    countOutcome(shared.tally, verb, outcome, fault);
    if (outcome.output !== "") shared.log(`${verb} of "${container.id}", ${outcome.status}: ${outcome.output}`);
  }
}

function chooseVerb({ state, network }: TrackedContainer, prng: Prng): StressVerb {
  // Who is attached must not be attached again: an engine never asks for that, and our own runtime refuses it.
  const again = network.invocation === "run" ? 0.1 : 0;
  const weights = {
    detached: { add: 0.9, del: 0.07, check: 0, gc: 0.03 },
    attached: { add: again, del: 0.5, check: 0.4, gc: 0.03 },
    unknown: { add: 0.2, del: 0.7, check: 0, gc: 0.1 },
  }[state];
  return prng.pick(Object.entries(weights).map(([verb, weight]) => [weight, verb as StressVerb] as const));
}

function chooseFault(prng: Prng, typicalMs: number): SignalFault | undefined {
  const afterMs = prng.next() * 1.2 * typicalMs;
  return prng.pick<SignalFault | undefined>([
    [KILL_PROBABILITY, { kind: "kill", afterMs }],
    [STOP_PROBABILITY, { kind: "stop", afterMs }],
    [1 - KILL_PROBABILITY - STOP_PROBABILITY, undefined],
  ]);
}

function countOutcome(
  tally: OperationCounts,
  verb: StressVerb,
  { status, ms }: CommandOutcome,
  fault: SignalFault | undefined,
): void {
  tally.counts.set(`${verb} ${status}`, (tally.counts.get(`${verb} ${status}`) ?? 0) + 1);
  if (fault?.kind === "stop") tally.stops++;
  tally.longestMs = Math.max(tally.longestMs, ms);
}

function runOperation(
  shared: SharedState,
  container: TrackedContainer,
  verb: StressVerb,
  options: CommandOptions,
): Promise<CommandOutcome> {
  const { model, gates } = shared;
  if (verb === "gc") return runGc(shared, container.network, options);
  const runOne = () => runOnContainer(model, container, verb, options);
  return verb === "add" ? gates.get(container.network)!.shared(runOne) : runOne();
}

/** Does something to one container, and sees that it ends as it must. */
export async function runOnContainer(
  model: Model,
  container: TrackedContainer,
  verb: StressVerb,
  options: CommandOptions,
): Promise<CommandOutcome> {
  const before = container.state;
  container.runningVerb = verb;
  container.generation++;
  if (verb === "del") beginDel(model, container);
  const { result } = container;
  const outcome = await runCommand(container.network, verb, container, { ...options, result });
  container.runningVerb = undefined;
  model.checks++;
  const expected = verb !== "add"
    ? "succeeded"
    : before === "attached"
    ? "failed"
    : before === "detached"
    ? "succeeded"
    : "";
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

/** Has a network cleaned of whom nobody knows. */
function runGc(
  { model, gates }: SharedState,
  network: StressNetwork,
  options: CommandOptions,
): Promise<CommandOutcome> {
  return gates.get(network)!.exclusive(async () => {
    const all = model.containers.filter((container) => container.network === network);
    const valid = all.filter(mustSurviveGc);
    const garbage = all.filter((container) => !mustSurviveGc(container) && container.runningVerb === undefined).map((
      container,
    ) => ({
      each: container,
      generation: container.generation,
    }));
    const outcome = await runCommand(network, "gc", undefined, { ...options, valid });
    model.checks++;
    if (outcome.status === "failed") model.violations.push(`gc of ${network.name} failed: ${outcome.output}`);
    for (const { each: container, generation } of garbage) {
      // What a plugin that was killed has made is nowhere written down, but where our own runtime called it.
      if (outcome.status === "succeeded" && container.generation === generation && network.invocation === "run") {
        recordDel(container);
      }
    }
    return outcome;
  });
}

/** Who may work at a time. */
export interface GcGate {
  shared<T>(work: () => Promise<T>): Promise<T>;
  exclusive<T>(work: () => Promise<T>): Promise<T>;
}

/** Our own runtime sees to it that nothing is attached while garbage is collected. */
export const openGate: GcGate = { shared: (work) => work(), exclusive: (work) => work() };

/** An engine that calls plugins has to see to it itself, or its list of the living would be wrong by the time that it is read. */
export function newGcGate(): GcGate {
  let last: Promise<unknown> | undefined;
  const running = new Set<Promise<unknown>>();
  return {
    async shared(work) {
      while (last) await last;
      const working = work();
      running.add(working);
      try {
        return await working;
      } finally {
        running.delete(working);
      }
    },
    async exclusive(work) {
      const before = last;
      const turn = Promise.resolve(before).then(() => Promise.allSettled(running)).then(work);
      const end = last = turn.catch(() => {});
      try {
        return await turn;
      } finally {
        if (last === end) last = undefined;
      }
    },
  };
}
