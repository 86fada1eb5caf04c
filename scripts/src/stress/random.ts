/** Many workers that attach and detach containers at random, while programs are killed and stopped, beside rules of others. @module */
import { addNamespaces, clearNode } from "../harness/node.ts";
import { runShell } from "../harness/process.ts";
import { newRandomSource, type RandomSource } from "../harness/random.ts";
import { runCommand } from "./run_command.ts";
import { addForeignState, commitContinuously, findForeignChange, snapshotForeign } from "./foreign_state.ts";
import { countElements, findLeftovers, readContainerState, readReservations, readRuleset } from "./inspect.ts";
import { newLockTrace } from "./lock_trace.ts";
import { type Model, newModel, resultAddresses, type TrackedContainer } from "./model.ts";
import { newNetworks, type StressNetwork } from "./network.ts";
import { newGcGate, openGate, runOnContainer, runWorker, type SharedState } from "./worker.ts";

/** How much. */
export interface RandomOptions {
  readonly cni: string;
  readonly workers: number;
  /** Of each worker. */
  readonly operations: number;
  readonly seed: number;
  log(line: string): void;
}

/** What was done, and what was found wrong. */
export interface RandomReport extends Pick<SharedState, "tally" | "trace"> {
  readonly seconds: number;
  /** How many checks were made. */
  readonly checks: number;
  /** What was wrong; empty if nothing was. */
  readonly problems: readonly string[];
}

const CHECK_INTERVAL_MS = 2000;
/** Namespaces that are checked each time. */
const SAMPLE_SIZE = 6;

/** Runs all workers to their end. */
export async function runRandom({ cni, workers, operations, seed, log }: RandomOptions): Promise<RandomReport> {
  clearNode();
  const networks = newNetworks(cni);
  const model = newModel(networks, workers);
  const namespaces = model.containers.map(({ id }) => id);
  addNamespaces(namespaces);
  addForeignState(networks.map(({ network }) => network.name));
  const foreign = snapshotForeign();
  const before = readContainerState(namespaces);
  const elements = new Map<StressNetwork, number>();
  for (const network of networks) elements.set(network, await elementsPerContainer(model, network));
  const gates = new Map(
    networks.map((network) => [network, network.invocation.name === "run" ? openGate : newGcGate()]),
  );
  const tally = { counts: new Map<string, number>(), stops: 0, longestMs: 0 };
  const shared = { model, tally, trace: newLockTrace("/run/locks"), typicalMs: new Map(), gates, log };
  const startTime = performance.now();
  {
    await using _busy = commitContinuously();
    using _checks = checkPeriodically(model, elements, foreign, newRandomSource(seed), log);
    const containersOf = (worker: number) => model.containers.filter((_, i) => i % workers === worker);
    await Promise.all(
      Array.from(
        { length: workers },
        (_, i) => runWorker(shared, containersOf(i), newRandomSource(seed + 1 + i), operations),
      ),
    );
  }
  const seconds = (performance.now() - startTime) / 1000;
  checkInvariants(model, elements, foreign, model.containers);
  await removeAll(model, networks);
  model.violations.push(...findLeftovers(before, namespaces), ...findForeignChange(foreign, readRuleset()));
  return { tally, trace: shared.trace, seconds, checks: model.checks, problems: model.violations };
}

/** How many elements a container has. */
async function elementsPerContainer(model: Model, network: StressNetwork): Promise<number> {
  const container = model.containers.find((candidate) => candidate.network === network)!;
  await runOnContainer(model, container, "add", {});
  const count = countElements(readRuleset(), network.network.name).get(container.id) ?? 0;
  await runOnContainer(model, container, "del", {});
  if (count === 0) throw new Error(`A single container of ${network.network.name} has no elements`);
  return count;
}

function checkPeriodically(
  model: Model,
  elements: ReadonlyMap<StressNetwork, number>,
  foreign: string,
  random: RandomSource,
  log: (line: string) => void,
): Disposable {
  const timer = setInterval(() => {
    const sample = Array.from({ length: SAMPLE_SIZE }, () => random.pick(model.containers));
    const before = model.violations.length;
    checkInvariants(model, elements, foreign, sample);
    for (const violation of model.violations.slice(before)) log(violation);
  }, CHECK_INTERVAL_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** Checks that attached containers have what is theirs, some of them in their namespaces, and that the state of others is as it was. */
function checkInvariants(
  model: Model,
  elements: ReadonlyMap<StressNetwork, number>,
  foreign: string,
  sample: readonly TrackedContainer[],
): void {
  // No command begins or ends meanwhile; a container whose DEL is running has no claim.
  const attached = model.containers.filter(({ state, runningVerb }) => state === "attached" && runningVerb !== "del");
  const ruleset = readRuleset();
  const addViolation = (violation: string) => void model.violations.push(violation);
  for (const [network, count] of elements) {
    const reserved = readReservations(network.network.name);
    const counts = countElements(ruleset, network.network.name);
    for (const container of attached.filter((candidate) => candidate.network === network)) {
      model.checks += 2;
      for (const address of resultAddresses(container)) {
        const owner = reserved.get(address);
        if (owner !== container.id) {
          addViolation(`${address} of "${container.id}" is reserved for ${owner ?? "none"}`);
        }
      }
      const found = counts.get(container.id) ?? 0;
      if (found !== count) addViolation(`"${container.id}" has ${found} of ${count} elements`);
    }
  }
  for (const container of new Set(sample)) {
    if (!attached.includes(container)) continue;
    model.checks++;
    const shown = runShell(`ip -n ${container.id} -br addr show dev eth0 2>&1 || :`);
    for (const address of resultAddresses(container)) {
      if (!shown.includes(` ${address}/`)) addViolation(`"${container.id}" has not ${address}, but ${shown.trim()}`);
    }
  }
  model.checks++;
  for (const change of findForeignChange(foreign, ruleset)) addViolation(change);
}

/** Half of the attached containers are removed by DEL at once, and those whose program was killed under an engine; GC removes the others. */
async function removeAll(model: Model, networks: readonly StressNetwork[]): Promise<void> {
  const leaving = model.containers.filter(({ state, network }, i) =>
    state !== "detached" && (i % 2 === 0 || (state === "unknown" && network.invocation.name === "exec"))
  );
  await Promise.all(leaving.map((container) => runOnContainer(model, container, "del", {})));
  for (const network of networks) {
    const outcome = await runCommand(network, "gc", undefined);
    if (outcome.status !== "succeeded") {
      model.violations.push(`The last gc of ${network.network.name} ${outcome.status}: ${outcome.output}`);
    }
  }
}

/** What was done, and how it ended. */
export function formatRandom({ tally, seconds, checks, problems }: RandomReport): string {
  const counts = [...tally.counts].sort();
  const sum = (pattern: RegExp) =>
    counts.filter(([key]) => pattern.test(key)).reduce((all, [, count]) => all + count, 0);
  return [
    ...counts.map(([key, count]) => `${key.padEnd(16)} ${String(count).padStart(7)}`),
    `longest operation ${Math.round(tally.longestMs)} ms; ${(sum(/./) / seconds).toFixed(0)} operations per second`,
    `${sum(/./)} operations, ${sum(/killed/)} killed, ${sum(/try again/)} to try again, ` +
    `${tally.stops} stopped for a while, ${checks} checks, ${problems.length} problems`,
  ].join("\n");
}
