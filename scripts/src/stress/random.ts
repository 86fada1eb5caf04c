/** Many workers that have containers come and go at random, while programs are killed and stopped, beside rules of others. @module */
import { sh } from "../harness/node.ts";
import { ofContainers, tracesOf } from "../harness/node_state.ts";
import { call } from "./run_command.ts";
import { describeForeign, findTouched, FOREIGN_LINKS, keepBusy, plantForeign } from "./foreign_state.ts";
import { addNamespaces, countElements, forget, ownTables, readReservations, readRuleset } from "./inspect.ts";
import { newLockTrace } from "./lock_trace.ts";
import { addressesOf, type Model, newModel, type Subject } from "./model.ts";
import { byExec, byRun, type Network } from "./network.ts";
import { newPrng, type Prng } from "../harness/prng.ts";
import { newGate, open, operate, type Shared, work } from "./worker.ts";

/** How much. */
export interface RandomOptions {
  readonly cni: string;
  readonly workers: number;
  /** Of each worker. */
  readonly operations: number;
  readonly seed: number;
  tell(line: string): void;
}

/** What came of it. */
export interface RandomFigures extends Pick<Shared, "tally" | "trace"> {
  readonly seconds: number;
  /** How often something was looked at that must never be otherwise. */
  readonly looked: number;
  /** What was wrong; empty if all is well. */
  readonly problems: readonly string[];
}

const LOOK_EVERY_MS = 2000;
/** Namespaces that are looked into each time. */
const SAMPLE = 6;

/** Does everything, once. */
export async function tryRandom({ cni, workers, operations, seed, tell }: RandomOptions): Promise<RandomFigures> {
  forget();
  const networks = [byRun(cni, 1), byExec(2)];
  const model = newModel(networks, workers);
  addNamespaces(model.subjects.map(({ name }) => name));
  plantForeign(networks.map(({ name }) => name));
  const foreign = describeForeign();
  const elements = new Map<Network, number>();
  for (const network of networks) elements.set(network, await elementsOfOne(model, network));
  const gates = new Map(networks.map((network) => [network, network.way === "run" ? open : newGate()]));
  const tally = { counts: new Map<string, number>(), stops: 0, longestMs: 0 };
  const shared = { model, tally, trace: newLockTrace("/run/locks"), usual: new Map(), gates, tell };
  const began = performance.now();
  {
    await using _busy = keepBusy();
    using _looking = lookNowAndThen(model, elements, foreign, newPrng(seed), tell);
    const own = (worker: number) => model.subjects.filter((_, i) => i % workers === worker);
    await Promise.all(
      Array.from({ length: workers }, (_, i) => work(shared, own(i), newPrng(seed + 1 + i), operations)),
    );
  }
  const seconds = (performance.now() - began) / 1000;
  look(model, elements, foreign, model.subjects);
  await removeAll(model, networks);
  model.violations.push(...leftovers(model, foreign));
  return { tally, trace: shared.trace, seconds, looked: model.looked, problems: model.violations };
}

/** How many elements a container has. */
async function elementsOfOne(model: Model, network: Network): Promise<number> {
  const subject = model.subjects.find((each) => each.network === network)!;
  await operate(model, subject, "add", {});
  const count = countElements(readRuleset(), network.name).get(subject.id) ?? 0;
  await operate(model, subject, "del", {});
  if (count === 0) throw new Error(`A single container of ${network.name} has no elements`);
  return count;
}

function lookNowAndThen(
  model: Model,
  elements: ReadonlyMap<Network, number>,
  foreign: string,
  prng: Prng,
  tell: (line: string) => void,
): Disposable {
  const timer = setInterval(() => {
    const sample = Array.from({ length: SAMPLE }, () => prng.pick(model.subjects.map((each) => [1, each] as const)));
    const before = model.violations.length;
    look(model, elements, foreign, sample);
    for (const violation of model.violations.slice(before)) tell(violation);
  }, LOOK_EVERY_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}

/** Looks whether everybody who lives has what is its own, some of them in their namespaces, and whether nobody touched what is others'. */
function look(
  model: Model,
  elements: ReadonlyMap<Network, number>,
  foreign: string,
  sample: readonly Subject[],
): void {
  // Nothing is begun and no end is noticed meanwhile; but who is just leaving has no claim.
  const living = model.subjects.filter(({ state, busy }) => state === "attached" && busy !== "del");
  const ruleset = readRuleset();
  const add = (violation: string) => void model.violations.push(violation);
  for (const [network, count] of elements) {
    const reserved = readReservations(network.name);
    const counts = countElements(ruleset, network.name);
    for (const subject of living.filter((each) => each.network === network)) {
      model.looked += 2;
      for (const address of addressesOf(subject)) {
        const owner = reserved.get(address);
        if (owner !== subject.id) add(`${address} of "${subject.id}" is reserved for ${owner ?? "nobody"}`);
      }
      const found = counts.get(subject.id) ?? 0;
      if (found !== count) add(`"${subject.id}" has ${found} of ${count} elements`);
    }
  }
  for (const subject of new Set(sample)) {
    if (!living.includes(subject)) continue;
    model.looked++;
    const shown = sh(`ip -n ${subject.name} -br addr show dev eth0 2>&1 || :`);
    for (const address of addressesOf(subject)) {
      if (!shown.includes(` ${address}/`)) add(`"${subject.id}" has not ${address}, but ${shown.trim()}`);
    }
  }
  model.looked++;
  const touched = findTouched(foreign, ruleset);
  if (touched !== undefined) add(touched);
}

/** Half of those who live leave by DEL, all at once, and what was killed under an engine; all others are collected. */
async function removeAll(model: Model, networks: readonly Network[]): Promise<void> {
  const leaving = model.subjects.filter(({ state, network }, i) =>
    state !== "detached" && (i % 2 === 0 || (state === "unknown" && network.way === "exec"))
  );
  await Promise.all(leaving.map((subject) => operate(model, subject, "del", {})));
  for (const network of networks) {
    const ended = await call(network, "gc", undefined);
    if (ended.how !== "succeeded") model.violations.push(`The last gc of ${network.name} ${ended.how}: ${ended.said}`);
  }
}

function leftovers({ subjects }: Model, foreign: string): string[] {
  const ruleset = readRuleset();
  const found: string[] = [];
  if (/elements = |chain \S+-\S+ /.test(ownTables(ruleset))) {
    found.push(`Left in the ruleset: ${ownTables(ruleset)}`);
  }
  if (/CNI-FORWARD/.test(ruleset)) found.push("Left of the firewall: chain CNI-FORWARD");
  const touched = findTouched(foreign, ruleset);
  if (touched !== undefined) found.push(touched);
  const links = [...sh("ip -o link").matchAll(/^\d+: ([^:@]+)/gm)].map(([, name]) => name!);
  const strange = links.filter((name) => !FOREIGN_LINKS.includes(name) && !/^br\d$/.test(name));
  if (strange.length > 0) found.push(`Left are links ${strange.join(", ")}`);
  const files = ofContainers(tracesOf([])).filter((line) => line.startsWith("file ") && !line.includes("/foreign/"));
  if (files.length > 0) found.push(`Left are ${files.join(", ")}`);
  for (const { name } of subjects) {
    const inside = sh(`ip -n ${name} -br link`).trim().split("\n").map((line) => line.split(/[ @]/)[0]);
    if (inside.join() !== "lo") found.push(`Left in namespace ${name} are ${inside.join(", ")}`);
  }
  return found;
}

/** What was done, and how it ended. */
export function formatRandom({ tally, seconds, looked, problems }: RandomFigures): string {
  const counts = [...tally.counts].sort();
  const sum = (pattern: RegExp) =>
    counts.filter(([key]) => pattern.test(key)).reduce((all, [, count]) => all + count, 0);
  return [
    ...counts.map(([key, count]) => `${key.padEnd(16)} ${String(count).padStart(7)}`),
    `longest operation ${Math.round(tally.longestMs)} ms; ${(sum(/./) / seconds).toFixed(0)} operations per second`,
    `${sum(/./)} operations, ${sum(/killed/)} killed, ${
      sum(/put off/)
    } put off, ${tally.stops} stopped for a while, ${looked} times looked, ${problems.length} problems`,
  ].join("\n");
}
