/** Many containers that come at once to a node that has nothing yet: no bridge, no table, no directory. @module */
import { ofContainers, requireSame, tracesOf } from "../harness/node_state.ts";
import { call, type Ended } from "./run_command.ts";
import {
  addNamespaces,
  baseOf,
  countElements,
  forget,
  listBridges,
  listPorts,
  readReservations,
  readRuleset,
} from "./inspect.ts";
import { type LockFigures, median, newLockTrace } from "./lock_trace.ts";
import { byExec, byRun, type Container, type Network, type Verb } from "./network.ts";

/** How it went in one way. */
export interface StartFigures {
  readonly way: string;
  readonly rounds: number;
  readonly adds: number;
  /** What was wrong; empty if all is well. */
  readonly problems: readonly string[];
  /** Milliseconds of each ADD. */
  readonly ms: readonly number[];
  readonly locks: readonly LockFigures[];
}

/** How much. */
export interface StartOptions {
  readonly cni: string;
  readonly count: number;
  readonly rounds: number;
  /** Only by this way. */
  readonly way?: string | undefined;
  tell(line: string): void;
}

/** Every so many-th program is watched. */
const TRACED = 20;

/** In these rounds all containers leave at once as well; after the others garbage collection removes them, which is faster. */
const DEL_EVERY = 10;

/** Has `count` containers come and go at once, again and again, on a node that every time knows nothing. */
export async function tryStarts({ cni, count, rounds, way, tell }: StartOptions): Promise<readonly StartFigures[]> {
  const containers = Array.from({ length: count }, (_, i) => ({ id: `c${i}`, name: `n${i}`, port: 10_000 + i }));
  addNamespaces(containers.map(({ name }) => name));
  const all: StartFigures[] = [];
  const networks = [byRun(cni, 1, true), byExec(2, true)];
  for (const network of networks.filter((each) => way === undefined || each.way === way)) {
    const trace = newLockTrace(`/run/locks-${network.way}`);
    const ms: number[] = [];
    const problems: string[] = [];
    const expected = await single(network, containers[0]!);
    for (let round = 1; round <= rounds; round++) {
      forget();
      const storm = (verb: Verb, results: readonly Ended[] = []) =>
        Promise.all(containers.map((container, i) =>
          call(network, verb, container, {
            result: results[i]?.result,
            trace: i % TRACED === round % TRACED ? trace : undefined,
          })
        ));
      const began = performance.now();
      const added = await storm("add");
      const took = performance.now() - began;
      ms.push(...added.map((each) => each.ms));
      const found = problemsOf(network, containers, added, expected);
      const isDel = round % DEL_EVERY === 1;
      const removed = isDel ? await storm("del", added) : [await call(network, "gc", undefined)];
      found.push(...failuresOf(isDel ? "DEL" : "GC", removed), ...leftovers());
      problems.push(...found.map((problem) => `${network.way}, round ${round}: ${problem}`));
      tell(
        `${network.way}, round ${round}: ${count} ADDs in ${Math.round(took)} ms, ${
          found.length === 0 ? "all well" : found.slice(0, 3).join("; ")
        }`,
      );
    }
    all.push({ way: network.way, rounds, adds: rounds * count, problems, ms, locks: trace.figures() });
  }
  return all;
}

/** What a single container has, and what all share. */
interface Expected {
  readonly base: string;
  readonly elements: number;
  readonly bridge: string;
}

async function single(network: Network, container: Container): Promise<Expected> {
  forget();
  const added = await call(network, "add", container);
  if (added.how !== "succeeded") throw new Error(`A single ADD failed: ${added.said}`);
  const ruleset = readRuleset();
  const [bridge, ...others] = listBridges();
  if (bridge === undefined || others.length > 0) throw new Error("A single ADD did not make one bridge");
  await call(network, "del", container, { result: added.result });
  return { base: baseOf(ruleset), elements: countElements(ruleset, network.name).get(container.id) ?? 0, bridge };
}

function problemsOf(
  network: Network,
  containers: readonly Container[],
  added: readonly Ended[],
  expected: Expected,
): string[] {
  const ruleset = readRuleset();
  const bridges = listBridges();
  const ports = listPorts(expected.bridge).length;
  const elements = countElements(ruleset, network.name);
  const given = added.flatMap(({ result }) => result?.ips.map(({ address }) => address) ?? []);
  const reserved = readReservations(network.name).size;
  const count = containers.length;
  return [
    ...failuresOf("ADD", added),
    ...(bridges.join() === expected.bridge ? [] : [`the bridges are ${bridges.join(", ")}`]),
    ...(ports === count ? [] : [`the bridge has ${ports} ports`]),
    ...(baseOf(ruleset) === expected.base ? [] : ["the ruleset is not that of a single ADD"]),
    ...(new Set(given).size === 2 * count ? [] : [`${new Set(given).size} addresses were given`]),
    ...(reserved === 2 * count ? [] : [`${reserved} addresses are reserved`]),
    ...containers.filter(({ id }) => elements.get(id) !== expected.elements).map(({ id }) =>
      `"${id}" has ${elements.get(id) ?? 0} elements, and alone ${expected.elements}`
    ),
  ];
}

function failuresOf(verb: string, all: readonly Ended[]): string[] {
  return all.filter(({ how }) => how !== "succeeded").map(({ how, said }) => `${verb} ${how}: ${said}`);
}

/** What is left of containers. */
function leftovers(): string[] {
  try {
    requireSame("Left are", [], ofContainers(tracesOf([])).filter((line) => !/^link br\d/.test(line)));
    return [];
  } catch (error) {
    return [(error as Error).message];
  }
}

/** A line for each way. */
export function formatStart({ way, rounds, adds, problems, ms }: StartFigures): string {
  const sorted = ms.toSorted((a, b) => a - b);
  const p99 = sorted[Math.floor(sorted.length * 0.99)] ?? 0;
  return `${way}: ${adds} ADDs in ${rounds} rounds, ${problems.length} problems; an ADD ended after ${
    Math.round(median(ms))
  } ms (median), ${Math.round(p99)} ms (p99), ${Math.round(sorted.at(-1) ?? 0)} ms (last)`;
}
