/** Many workers that attach and detach containers at random, while programs are killed and stopped, beside rules of others. @module */
import { addNamespaces, clearNode } from "../harness/node.ts";
import { readRuleset } from "../harness/node_state.ts";
import { runShell } from "../harness/process.ts";
import { newRandomSource, type RandomSource } from "../harness/random.ts";
import * as inspect from "./inspect.ts";
import { newNetworks, runCommand, type StressNetwork } from "./run_command.ts";
import { addressesOf, type Model, newModel, runOnContainer, runWorker, type TrackedContainer } from "./worker.ts";

const CHECK_INTERVAL_MS = 2000;
const SAMPLE_SIZE = 6;

interface Invariants {
  readonly model: Model;
  readonly elements: ReadonlyMap<StressNetwork, number>;
  readonly foreign: string;
}

export async function runRandom(
  workers: number,
  operations: number,
  seed: number,
  networks = newNetworks(),
  disturb: () => AsyncDisposable = inspect.commitContinuously,
): Promise<readonly string[]> {
  clearNode();
  const model = newModel(networks, workers);
  const namespaces = model.containers.map(({ id }) => id);
  addNamespaces(namespaces);
  inspect.addForeignState(networks.map(({ network }) => network.name));
  const before = inspect.readContainerState(namespaces);
  const elements = new Map<StressNetwork, number>();
  const invariants = { model, elements, foreign: inspect.snapshotForeign() };
  for (const network of networks) elements.set(network, await elementsPerContainer(model, network));
  const startTime = performance.now();
  {
    await using _disturbed = disturb();
    using _checks = checkPeriodically(invariants, newRandomSource(seed));
    await Promise.all(Array.from({ length: workers }, (_, worker) => {
      const containers = model.containers.filter((_, i) => i % workers === worker);
      return runWorker(model, containers, newRandomSource(seed + 1 + worker), operations);
    }));
  }
  const perSecond = 1000 * model.counts.operations / (performance.now() - startTime);
  checkInvariants(invariants, model.containers);
  await removeAll(model, networks);
  model.violations.push(
    ...inspect.findLeftovers(before, namespaces),
    ...inspect.findForeignChange(invariants.foreign, readRuleset()),
  );
  const counts = Object.entries(model.counts).map(([what, count]) => `${count} ${what}`).join(", ");
  console.log(`${perSecond.toFixed(0)} operations per second`);
  console.log(`${counts}, ${model.checks} checks, ${model.violations.length} problems`);
  return model.violations;
}

async function elementsPerContainer(model: Model, network: StressNetwork): Promise<number> {
  const container = model.containers.find((candidate) => candidate.network === network)!;
  await runOnContainer(model, container, "add");
  const count = inspect.countElements(readRuleset(), network.network.name).get(container.id) ?? 0;
  await runOnContainer(model, container, "del");
  if (count === 0) throw new Error(`A single container of ${network.network.name} has no elements`);
  return count;
}

function checkPeriodically(invariants: Invariants, random: RandomSource): Disposable {
  const { containers } = invariants.model;
  const timer = setInterval(
    () => checkInvariants(invariants, Array.from({ length: SAMPLE_SIZE }, () => random.pick(containers))),
    CHECK_INTERVAL_MS,
  );
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** Checks that attached containers have what is theirs, a sample in their namespaces too, and that the state of others is as it was. */
function checkInvariants({ model, elements, foreign }: Invariants, sample: readonly TrackedContainer[]): void {
  // No command begins or ends meanwhile; a container whose DEL is running has no claim.
  const attached = model.containers.filter(({ state, runningVerb }) => state === "attached" && runningVerb !== "del");
  const ruleset = readRuleset();
  const addViolation = (violation: string) => void model.violations.push(violation);
  for (const [network, count] of elements) {
    const reserved = inspect.readReservations(network.network.name);
    const counts = inspect.countElements(ruleset, network.network.name);
    for (const container of attached.filter((candidate) => candidate.network === network)) {
      model.checks += 2;
      for (const address of addressesOf(container)) {
        const owner = reserved.get(address);
        if (owner !== container.id) addViolation(`${address} of "${container.id}" is reserved for ${owner ?? "none"}`);
      }
      const found = counts.get(container.id) ?? 0;
      if (found === count) continue;
      const lines = ruleset.split("\n").filter((line) => line.includes(` ${container.id} eth0`));
      addViolation(`"${container.id}" has ${found} of ${count} elements:\n${lines.join("\n")}`);
    }
  }
  for (const container of new Set(sample)) {
    if (!attached.includes(container)) continue;
    model.checks++;
    const shown = runShell(`ip -n ${container.id} -br addr show dev eth0 2>&1 || :`);
    for (const address of addressesOf(container)) {
      if (!shown.includes(` ${address}/`)) addViolation(`"${container.id}" has not ${address}, but ${shown.trim()}`);
    }
  }
  model.checks++;
  inspect.findForeignChange(foreign, ruleset).forEach(addViolation);
}

/** DELs at once remove half of the containers, and those whose program was killed under an engine; GC removes the others. */
async function removeAll(model: Model, networks: readonly StressNetwork[]): Promise<void> {
  const leaving = model.containers.filter(({ state, network }, i) =>
    state !== "detached" && (i % 2 === 0 || (state === "unknown" && network.invocation.name === "exec"))
  );
  await Promise.all(leaving.map((container) => runOnContainer(model, container, "del")));
  for (const network of networks) {
    const { status, output } = await runCommand(network, "gc");
    if (status !== "succeeded") model.violations.push(`The last gc of ${network.network.name} ${status}: ${output}`);
  }
}
