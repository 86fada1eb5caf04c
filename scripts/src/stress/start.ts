/** Many containers that come at once to a node that has nothing yet: no bridge, no table, no directory. @module */
import type { Verb } from "../harness/invocation.ts";
import { type Container, newContainer } from "../harness/networks.ts";
import { addNamespaces, clearNode } from "../harness/node.ts";
import { readRuleset } from "../harness/node_state.ts";
import { median, percentile } from "../harness/statistics.ts";
import * as inspect from "./inspect.ts";
import { type CommandOutcome, newNetworks, runCommand, type StressNetwork } from "./run_command.ts";

/** In one of so many rounds all containers are removed by DELs at once; in the others by GC, which is faster. */
const DEL_EVERY = 10;

export async function runStart(
  count: number,
  rounds: number,
  networks = newNetworks(true),
): Promise<readonly string[]> {
  const containers = Array.from({ length: count }, (_, i) => newContainer(`c${i}`, 10_000 + i));
  addNamespaces(containers.map(({ id }) => id));
  const allProblems: string[] = [];
  for (const network of networks) {
    const { name } = network.invocation;
    const times: number[] = [];
    const problems: string[] = [];
    const expected = await measureSingleAdd(network, containers[0]!);
    for (let round = 1; round <= rounds; round++) {
      clearNode();
      const runForAll = (verb: Verb, results: readonly CommandOutcome[] = []) =>
        Promise.all(containers.map((container, i) => runCommand(network, verb, container, results[i])));
      const added = await runForAll("add");
      times.push(...added.map(({ ms }) => ms));
      const isDel = round % DEL_EVERY === 1;
      const found = problemsOf(network, containers, added, expected);
      const removed = isDel ? await runForAll("del", added) : [await runCommand(network, "gc")];
      found.push(...failuresOf(isDel ? "DEL" : "GC", removed), ...inspect.findLeftovers([], []));
      problems.push(...found.map((problem) => `${name}, round ${round}: ${problem}`));
    }
    const [middle, late] = [median(times), percentile(times, 0.99)].map(Math.round);
    const speed = `an ADD ended after ${middle} ms (median), ${late} ms (p99)`;
    console.log(`${name}: ${rounds * count} ADDs in ${rounds} rounds, ${problems.length} problems; ${speed}`);
    allProblems.push(...problems);
  }
  return allProblems;
}

type ExpectedState = Awaited<ReturnType<typeof measureSingleAdd>>;

async function measureSingleAdd(network: StressNetwork, container: Container) {
  clearNode();
  const { status, output, result } = await runCommand(network, "add", container);
  if (status !== "succeeded") throw new Error(`A single ADD failed: ${output}`);
  const ruleset = readRuleset();
  const bridges = inspect.listLinkNames("type bridge");
  if (bridges.length !== 1) throw new Error("A single ADD did not make one bridge");
  await runCommand(network, "del", container, { result });
  const elements = inspect.countElements(ruleset, network.network.name).get(container.id) ?? 0;
  return { rules: inspect.sharedRules(ruleset), elements, bridge: bridges[0]! };
}

function problemsOf(
  { network: { name } }: StressNetwork,
  containers: readonly Container[],
  added: readonly CommandOutcome[],
  { rules, elements, bridge }: ExpectedState,
): string[] {
  const ruleset = readRuleset();
  const addresses = added.flatMap(({ result }) => result?.ips.map(({ address }) => address) ?? []);
  const counts = inspect.countElements(ruleset, name);
  const figures: readonly (readonly [what: string, found: unknown, expected: unknown])[] = [
    ["the bridges are", inspect.listLinkNames("type bridge").join(), bridge],
    ["ports of the bridge:", inspect.listLinkNames(`master ${bridge}`).length, containers.length],
    ["the ruleset is that of a single ADD:", inspect.sharedRules(ruleset) === rules, true],
    ["addresses that were assigned:", new Set(addresses).size, 2 * containers.length],
    ["addresses that are reserved:", inspect.readReservations(name).size, 2 * containers.length],
    ...containers.map(({ id }) => [`elements of "${id}":`, counts.get(id) ?? 0, elements] as const),
  ];
  return [
    ...failuresOf("ADD", added),
    ...figures.filter(([, found, expected]) => found !== expected)
      .map(([what, found, expected]) => `${what} ${found}, expected ${expected}`),
  ];
}

const failuresOf = (verb: string, all: readonly CommandOutcome[]): string[] =>
  all.filter(({ status }) => status !== "succeeded").map(({ status, output }) => `${verb} ${status}: ${output}`);
