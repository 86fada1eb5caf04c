/** Storms and random calls through shims, while workers and the server are killed. @module */
import { runShell } from "../harness/process.ts";
import { newRandomSource, type RandomSource } from "../harness/random.ts";
import { type NodeServer, startNodeServer } from "../harness/node_server.ts";
import { newNetworks, runCommand, WARM_INVOCATIONS } from "./run_command.ts";
import { runRandom } from "./random.ts";
import { runStart } from "./start.ts";
import { newContainer } from "../harness/networks.ts";
import { addNamespaces, clearNode, removeNamespaces } from "../harness/node.ts";
import * as inspect from "./inspect.ts";

export interface ServeOptions {
  readonly count: number;
  readonly rounds: number;
  readonly workers: number;
  readonly operations: number;
  readonly seed: number;
  /** With 0, there is one round. */
  readonly minutes: number;
}

const KILL_INTERVAL_MS = 300;
/** Of kills that hit the server instead of a worker. */
const SERVER_SHARE = 0.03;
/** As in scripts/bench. Workers that a kill has just replaced have less than those that have served. */
const MAX_MEGABYTES = 60;

export async function runServe(options: ServeOptions): Promise<readonly string[]> {
  const { count, rounds, workers, operations, seed, minutes } = options;
  const server = await startNodeServer();
  const problems: string[] = [];
  const runRound = async (round: number) => {
    removeNamespaces();
    problems.push(...await runStart(count, rounds, newNetworks(true, WARM_INVOCATIONS)));
    const { served } = server.status();
    if (round === 0 && served < count) problems.push(`The server served ${served} calls only`);
    const kill = () => killContinuously(server, newRandomSource(seed + round));
    const found = await runRandom(workers, operations, seed + round, newNetworks(false, WARM_INVOCATIONS), kill);
    // A soak goes on for long.
    for (const problem of found.slice(0, 20)) console.log(`Round ${round}: ${problem}`);
    problems.push(...found);
    problems.push(...await runFlush());
  };
  await runRound(0);
  if (minutes === 0) return problems;
  const before = await measureUsage(server);
  const endTime = performance.now() + minutes * 60_000;
  for (let round = 1; performance.now() < endTime; round++) await runRound(round);
  const after = await measureUsage(server);
  for (const key of ["megabytes", "descriptors"] as const) {
    console.log(`${key} of the server and its workers: ${before[key]} after the first round, ${after[key]} in the end`);
  }
  if (after.megabytes > MAX_MEGABYTES) problems.push(`The server has more than ${MAX_MEGABYTES} MB`);
  if (after.descriptors > before.descriptors) problems.push("The server's descriptors grew");
  return problems;
}

/** Commits to the ruleset, and kills workers and now and then the server, which is started anew. */
function killContinuously(server: NodeServer, random: RandomSource): AsyncDisposable {
  const commits = inspect.commitContinuously();
  let [isEnding, workers, servers] = [false, 0, 0];
  const loop = async () => {
    while (!isEnding) {
      await Bun.sleep(random.next() * 2 * KILL_INTERVAL_MS);
      const worker = random.next() < SERVER_SHARE ? undefined : random.pick(server.workers());
      if (worker === undefined) servers++;
      else workers++;
      if (worker === undefined) await server.replaceKilled();
      else process.kill(worker, "SIGKILL");
    }
  };
  const killing = loop();
  return {
    async [Symbol.asyncDispose]() {
      isEnding = true;
      await killing;
      await commits[Symbol.asyncDispose]();
      console.log(`killed were ${workers} workers and ${servers} servers`);
    },
  };
}

/** Rules that somebody flushes are no obstacle for DEL, and leave nothing behind. */
async function runFlush(): Promise<readonly string[]> {
  clearNode();
  const containers = Array.from({ length: 10 }, (_, i) => newContainer(`f${i}`, 30_000 + i));
  addNamespaces(containers.map(({ id }) => id));
  const problems: string[] = [];
  for (const network of newNetworks(false, WARM_INVOCATIONS)) {
    for (const verb of ["add", "del"] as const) {
      const outcomes = await Promise.all(containers.map((container) => runCommand(network, verb, container)));
      for (const { status, output } of outcomes) {
        if (status !== "succeeded") problems.push(`${verb} ${status}: ${output}`);
      }
      if (verb === "add") runShell("nft flush ruleset");
    }
  }
  removeNamespaces();
  return [...problems, ...inspect.findLeftovers([], [])];
}

/** Of a server that is idle, and has ended the workers that it does not need. */
async function measureUsage(server: NodeServer) {
  let status = server.status();
  for (; status.workers.length > 2 || status.workers.some(({ state }) => state !== "idle"); status = server.status()) {
    await Bun.sleep(500);
  }
  return { megabytes: Math.round(status.privateBytes / 1e6), descriptors: server.openDescriptors() };
}
