/** Many containers that come at once to a node that has nothing yet: no bridge, no table, no directory. @module */
import { containerState, requireSameState, snapshotNode } from "../harness/node_state.ts";
import { type CommandOutcome, runCommand } from "./run_command.ts";
import {
  addNamespaces,
  countElements,
  listBridges,
  listPorts,
  readReservations,
  readRuleset,
  removeAllState,
  sharedRules,
} from "./inspect.ts";
import { type LockFigures, newLockTrace, upperMedian } from "./lock_trace.ts";
import { execNetwork, runNetwork, type StressContainer, type StressNetwork, type StressVerb } from "./network.ts";

/** How it went in one way. */
export interface ColdStartReport {
  readonly invocation: string;
  readonly rounds: number;
  readonly adds: number;
  /** What was wrong; empty if all is well. */
  readonly problems: readonly string[];
  /** Milliseconds of each ADD. */
  readonly ms: readonly number[];
  readonly locks: readonly LockFigures[];
}

/** How much. */
export interface ColdStartOptions {
  readonly cni: string;
  readonly count: number;
  readonly rounds: number;
  /** Only by this way. */
  readonly invocation?: string | undefined;
  log(line: string): void;
}

/** Every so many-th program is watched. */
const TRACE_EVERY = 20;

/** In these rounds all containers leave at once as well; after the others garbage collection removes them, which is faster. */
const DEL_EVERY = 10;

/** Has `count` containers come and go at once, again and again, on a node that every time knows nothing. */
export async function runColdStarts(
  { cni, count, rounds, invocation, log }: ColdStartOptions,
): Promise<readonly ColdStartReport[]> {
  const containers = Array.from({ length: count }, (_, i) => ({ id: `c${i}`, name: `n${i}`, port: 10_000 + i }));
  addNamespaces(containers.map(({ name }) => name));
  const all: ColdStartReport[] = [];
  const networks = [runNetwork(cni, 1, true), execNetwork(2, true)];
  for (
    const network of networks.filter((candidate) => invocation === undefined || candidate.invocation === invocation)
  ) {
    const trace = newLockTrace(`/run/locks-${network.invocation}`);
    const ms: number[] = [];
    const problems: string[] = [];
    const expected = await measureSingleAdd(network, containers[0]!);
    for (let round = 1; round <= rounds; round++) {
      removeAllState();
      const runForAll = (verb: StressVerb, results: readonly CommandOutcome[] = []) =>
        Promise.all(containers.map((container, i) =>
          runCommand(network, verb, container, {
            result: results[i]?.result,
            trace: i % TRACE_EVERY === round % TRACE_EVERY ? trace : undefined,
          })
        ));
      const startTime = performance.now();
      const added = await runForAll("add");
      const elapsedMs = performance.now() - startTime;
      ms.push(...added.map((candidate) => candidate.ms));
      const roundProblems = problemsOf(network, containers, added, expected);
      const isDel = round % DEL_EVERY === 1;
      const removed = isDel ? await runForAll("del", added) : [await runCommand(network, "gc", undefined)];
      roundProblems.push(...failuresOf(isDel ? "DEL" : "GC", removed), ...leftovers());
      problems.push(...roundProblems.map((problem) => `${network.invocation}, round ${round}: ${problem}`));
      log(
        `${network.invocation}, round ${round}: ${count} ADDs in ${Math.round(elapsedMs)} ms, ${
          roundProblems.length === 0 ? "all well" : roundProblems.slice(0, 3).join("; ")
        }`,
      );
    }
    all.push({ invocation: network.invocation, rounds, adds: rounds * count, problems, ms, locks: trace.figures() });
  }
  return all;
}

/** What a single container has, and what all share. */
interface ExpectedState {
  readonly base: string;
  readonly elements: number;
  readonly bridge: string;
}

async function measureSingleAdd(network: StressNetwork, container: StressContainer): Promise<ExpectedState> {
  removeAllState();
  const added = await runCommand(network, "add", container);
  if (added.status !== "succeeded") throw new Error(`A single ADD failed: ${added.output}`);
  const ruleset = readRuleset();
  const [bridge, ...others] = listBridges();
  if (bridge === undefined || others.length > 0) throw new Error("A single ADD did not make one bridge");
  await runCommand(network, "del", container, { result: added.result });
  return { base: sharedRules(ruleset), elements: countElements(ruleset, network.name).get(container.id) ?? 0, bridge };
}

function problemsOf(
  network: StressNetwork,
  containers: readonly StressContainer[],
  added: readonly CommandOutcome[],
  expected: ExpectedState,
): string[] {
  const ruleset = readRuleset();
  const bridges = listBridges();
  const ports = listPorts(expected.bridge).length;
  const elements = countElements(ruleset, network.name);
  const addresses = added.flatMap(({ result }) => result?.ips.map(({ address }) => address) ?? []);
  const reserved = readReservations(network.name).size;
  const count = containers.length;
  return [
    ...failuresOf("ADD", added),
    ...(bridges.join() === expected.bridge ? [] : [`the bridges are ${bridges.join(", ")}`]),
    ...(ports === count ? [] : [`the bridge has ${ports} ports`]),
    ...(sharedRules(ruleset) === expected.base ? [] : ["the ruleset is not that of a single ADD"]),
    ...(new Set(addresses).size === 2 * count ? [] : [`${new Set(addresses).size} addresses were given`]),
    ...(reserved === 2 * count ? [] : [`${reserved} addresses are reserved`]),
    ...containers.filter(({ id }) => elements.get(id) !== expected.elements).map(({ id }) =>
      `"${id}" has ${elements.get(id) ?? 0} elements, and alone ${expected.elements}`
    ),
  ];
}

function failuresOf(verb: string, all: readonly CommandOutcome[]): string[] {
  return all.filter(({ status }) => status !== "succeeded").map(({ status, output }) => `${verb} ${status}: ${output}`);
}

/** What is left of containers. */
function leftovers(): string[] {
  try {
    requireSameState("Left are", [], containerState(snapshotNode([])).filter((line) => !/^link br\d/.test(line)));
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

/** A line for each way. */
export function formatColdStart({ invocation, rounds, adds, problems, ms }: ColdStartReport): string {
  const sorted = ms.toSorted((a, b) => a - b);
  const p99 = sorted[Math.floor(sorted.length * 0.99)] ?? 0;
  return `${invocation}: ${adds} ADDs in ${rounds} rounds, ${problems.length} problems; an ADD ended after ${
    Math.round(upperMedian(ms))
  } ms (median), ${Math.round(p99)} ms (p99), ${Math.round(sorted.at(-1) ?? 0)} ms (last)`;
}
