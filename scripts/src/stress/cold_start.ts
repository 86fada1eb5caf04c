/** Many containers that come at once to a node that has nothing yet: no bridge, no table, no directory. @module */
import { type Container, newContainer } from "../harness/container.ts";
import type { Verb } from "../harness/invocation.ts";
import { addNamespaces, clearNode } from "../harness/node.ts";
import { median, percentile } from "../harness/statistics.ts";
import { type CommandOutcome, runCommand } from "./run_command.ts";
import {
  countElements,
  findLeftovers,
  listBridges,
  listPorts,
  readReservations,
  readRuleset,
  sharedRules,
} from "./inspect.ts";
import { type LockFigures, newLockTrace } from "./lock_trace.ts";
import { newNetworks, type StressNetwork } from "./network.ts";

/** How the ADDs by one invocation ended. */
export interface ColdStartReport {
  readonly invocation: string;
  readonly rounds: number;
  readonly adds: number;
  /** What was wrong; empty if nothing was. */
  readonly problems: readonly string[];
  /** Milliseconds of each ADD. */
  readonly ms: readonly number[];
  readonly locks: readonly LockFigures[];
}

/** What is attached, and how often. */
export interface ColdStartOptions {
  readonly cni: string;
  readonly count: number;
  readonly rounds: number;
  /** `run` or `exec`; both if undefined. */
  readonly invocation?: string | undefined;
  log(line: string): void;
}

/** One of so many commands is traced. */
const TRACE_EVERY = 20;

/** In one of so many rounds all containers are removed by DELs at once; in the others by GC, which is faster. */
const DEL_EVERY = 10;

/** Attaches and removes `count` containers at once, `rounds` times, each time on a node without any state. */
export async function runColdStarts(
  { cni, count, rounds, invocation, log }: ColdStartOptions,
): Promise<readonly ColdStartReport[]> {
  const containers = Array.from({ length: count }, (_, i) => newContainer(`c${i}`, 10_000 + i));
  addNamespaces(containers.map(({ id }) => id));
  const all: ColdStartReport[] = [];
  for (const network of newNetworks(cni, true)) {
    const { name } = network.invocation;
    if (invocation !== undefined && name !== invocation) continue;
    const trace = newLockTrace(`/run/locks-${name}`);
    const ms: number[] = [];
    const problems: string[] = [];
    const expected = await measureSingleAdd(network, containers[0]!);
    for (let round = 1; round <= rounds; round++) {
      clearNode();
      const runForAll = (verb: Verb, results: readonly CommandOutcome[] = []) =>
        Promise.all(containers.map((container, i) =>
          runCommand(network, verb, container, {
            result: results[i]?.result,
            trace: i % TRACE_EVERY === round % TRACE_EVERY ? trace : undefined,
          })
        ));
      const startTime = performance.now();
      const added = await runForAll("add");
      const elapsedMs = performance.now() - startTime;
      ms.push(...added.map((outcome) => outcome.ms));
      const roundProblems = problemsOf(network, containers, added, expected);
      const isDel = round % DEL_EVERY === 1;
      const removed = isDel ? await runForAll("del", added) : [await runCommand(network, "gc", undefined)];
      roundProblems.push(...failuresOf(isDel ? "DEL" : "GC", removed), ...findLeftovers([], []));
      problems.push(...roundProblems.map((problem) => `${name}, round ${round}: ${problem}`));
      log(
        `${name}, round ${round}: ${count} ADDs in ${Math.round(elapsedMs)} ms, ${
          roundProblems.length === 0 ? "no problem" : roundProblems.slice(0, 3).join("; ")
        }`,
      );
    }
    all.push({ invocation: name, rounds, adds: rounds * count, problems, ms, locks: trace.figures() });
  }
  return all;
}

/** What a single container has, and what all share. */
interface ExpectedState {
  readonly base: string;
  readonly elements: number;
  readonly bridge: string;
}

async function measureSingleAdd(network: StressNetwork, container: Container): Promise<ExpectedState> {
  clearNode();
  const added = await runCommand(network, "add", container);
  if (added.status !== "succeeded") throw new Error(`A single ADD failed: ${added.output}`);
  const ruleset = readRuleset();
  const [bridge, ...others] = listBridges();
  if (bridge === undefined || others.length > 0) throw new Error("A single ADD did not make one bridge");
  await runCommand(network, "del", container, { result: added.result });
  return {
    base: sharedRules(ruleset),
    elements: countElements(ruleset, network.network.name).get(container.id) ?? 0,
    bridge,
  };
}

function problemsOf(
  network: StressNetwork,
  containers: readonly Container[],
  added: readonly CommandOutcome[],
  expected: ExpectedState,
): string[] {
  const ruleset = readRuleset();
  const bridges = listBridges();
  const ports = listPorts(expected.bridge).length;
  const elements = countElements(ruleset, network.network.name);
  const addresses = added.flatMap(({ result }) => result?.ips.map(({ address }) => address) ?? []);
  const reserved = readReservations(network.network.name).size;
  const count = containers.length;
  return [
    ...failuresOf("ADD", added),
    ...(bridges.join() === expected.bridge ? [] : [`the bridges are ${bridges.join(", ")}`]),
    ...(ports === count ? [] : [`the bridge has ${ports} ports`]),
    ...(sharedRules(ruleset) === expected.base ? [] : ["the ruleset is not that of a single ADD"]),
    ...(new Set(addresses).size === 2 * count ? [] : [`${new Set(addresses).size} addresses were assigned`]),
    ...(reserved === 2 * count ? [] : [`${reserved} addresses are reserved`]),
    ...containers.filter(({ id }) => elements.get(id) !== expected.elements).map(({ id }) =>
      `"${id}" has ${elements.get(id) ?? 0} elements, and alone ${expected.elements}`
    ),
  ];
}

function failuresOf(verb: string, all: readonly CommandOutcome[]): string[] {
  return all.filter(({ status }) => status !== "succeeded").map(({ status, output }) => `${verb} ${status}: ${output}`);
}

/** A line for each invocation. */
export function formatColdStart({ invocation, rounds, adds, problems, ms }: ColdStartReport): string {
  return `${invocation}: ${adds} ADDs in ${rounds} rounds, ${problems.length} problems; an ADD ended after ${
    Math.round(median(ms))
  } ms (median), ${Math.round(percentile(ms, 0.99))} ms (p99), ${Math.round(Math.max(...ms))} ms (last)`;
}
