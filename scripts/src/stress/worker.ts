/** A worker, which attaches and detaches containers at random. @module */
import { type CommandOptions, type CommandOutcome, runCommand, type SignalFault } from "./run_command.ts";
import type { LockTrace } from "./lock_trace.ts";
import { beginDel, type Model, mustSurviveGc, recordAdd, recordDel, type TrackedContainer } from "./model.ts";
import type { Verb } from "../harness/invocation.ts";
import type { RandomSource } from "../harness/random.ts";
import type { StressNetwork } from "./network.ts";

/** How many operations there were. */
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
  /** Moving average of milliseconds, by invocation and verb. */
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
  random: RandomSource,
  operations: number,
): Promise<void> {
  for (let i = 0; i < operations; i++) {
    const container = random.pick(containers);
    const verb = chooseVerb(container, random);
    const key = `${container.network.invocation.name} ${verb}`;
    const typicalMs = shared.typicalMs.get(key) ?? 50;
    const fault = chooseFault(random, typicalMs);
    const trace = !fault && random.chance(TRACE_PROBABILITY) ? shared.trace : undefined;
    const outcome = await runOperation(shared, container, verb, { fault, trace });
    if (outcome.status === "succeeded" && !fault) shared.typicalMs.set(key, typicalMs * 0.9 + outcome.ms * 0.1);
    countOutcome(shared.tally, verb, outcome, fault);
    if (outcome.output !== "") shared.log(`${verb} of "${container.id}", ${outcome.status}: ${outcome.output}`);
  }
}

function chooseVerb({ state, network }: TrackedContainer, random: RandomSource): Verb {
  // An engine never attaches twice, and our own runtime refuses it.
  const again = network.invocation.name === "run" ? 0.1 : 0;
  const weights = {
    detached: { add: 0.9, del: 0.07, check: 0, gc: 0.03 },
    attached: { add: again, del: 0.5, check: 0.4, gc: 0.03 },
    unknown: { add: 0.2, del: 0.7, check: 0, gc: 0.1 },
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

function countOutcome(
  tally: OperationCounts,
  verb: Verb,
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
  verb: Verb,
  options: CommandOptions,
): Promise<CommandOutcome> {
  const { model, gates } = shared;
  if (verb === "gc") return runGc(shared, container.network, options);
  const runOne = () => runOnContainer(model, container, verb, options);
  return verb === "add" ? gates.get(container.network)!.shared(runOne) : runOne();
}

/** Runs a command for one container, and checks how it ends. */
export async function runOnContainer(
  model: Model,
  container: TrackedContainer,
  verb: Verb,
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

/** Runs a GC that keeps all containers that it must keep. */
function runGc(
  { model, gates }: SharedState,
  network: StressNetwork,
  options: CommandOptions,
): Promise<CommandOutcome> {
  return gates.get(network)!.exclusive(async () => {
    const all = model.containers.filter((container) => container.network === network);
    const valid = all.filter(mustSurviveGc);
    const garbage = all.filter((container) => !mustSurviveGc(container) && container.runningVerb === undefined)
      .map((container) => ({ container, generation: container.generation }));
    const outcome = await runCommand(network, "gc", undefined, { ...options, valid: valid.map(({ id }) => id) });
    model.checks++;
    if (outcome.status === "failed") model.violations.push(`gc of ${network.network.name} failed: ${outcome.output}`);
    for (const { container, generation } of garbage) {
      // Only our own runtime records what it calls, and so knows of plugins that were killed.
      if (outcome.status === "succeeded" && container.generation === generation && network.invocation.name === "run") {
        recordDel(container);
      }
    }
    return outcome;
  });
}

/** Keeps ADDs and a GC apart. */
export interface GcGate {
  shared<T>(work: () => Promise<T>): Promise<T>;
  exclusive<T>(work: () => Promise<T>): Promise<T>;
}

/** Does nothing: our own runtime keeps them apart itself. */
export const openGate: GcGate = { shared: (work) => work(), exclusive: (work) => work() };

/** For an engine, whose list of valid attachments would be wrong otherwise by the time that it is read. */
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
