/** Runs what no usual test run has, before a release is made. @module */
import { appendFileSync, closeSync, mkdirSync, openSync, readFileSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { verdictLine } from "../check/main.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

/** Together they take some hours. */
const LANES = [
  "scripts/test --all",
  "scripts/test --server",
  "scripts/test --arm64",
  "env CNI_RANDOM_CLUSTERS=10000 CNI_FIRST_PACKETS=1000 CNI_KILLS_S=600 scripts/test policy",
  "env CNI_KILLS_S=600 scripts/test serve/cluster_test",
  "env CNI_POLICY_PODS=150000 scripts/bench policy-scale",
  "scripts/bench policy-latency",
  "scripts/bench cluster",
  "scripts/faults",
  "scripts/stress",
  "scripts/leases",
  "scripts/names",
  "scripts/names faults",
  "scripts/kubernetes --name release --segments 2 test conformance",
  "scripts/kubernetes --name release --proxy iptables --bridge-nf 0 test conformance",
  "scripts/kubernetes --name release --families 64 --segments 2 test conformance",
  "scripts/kubernetes --name release --families 4 test conformance",
  "scripts/kubernetes --name release --families 4 --proxy iptables --bridge-nf 0 test conformance",
  "scripts/kubernetes --name release --families 6 --segments 2 test conformance",
  "scripts/kubernetes --name release --families 6 --segments 2 --proxy iptables --bridge-nf 0 test conformance",
  "scripts/kubernetes --name release --network deploy/ranges --routes test conformance",
  "scripts/kubernetes --name release test network",
  "scripts/kubernetes --name release --bridge-nf 0 test network",
  "scripts/kubernetes --name release --segments 2 test policy",
  "scripts/kubernetes --name release --proxy iptables --bridge-nf 0 test policy",
  "scripts/kubernetes --name release --families 4 test policy",
  "scripts/kubernetes --name release --families 4 --proxy iptables test policy",
  "scripts/kubernetes --name release --families 6 test policy",
  "scripts/kubernetes --name release --families 6 --proxy iptables test policy",
  "scripts/kubernetes --name release migrate flannel",
  "scripts/kubernetes --name release migrate ranges",
  "scripts/kubernetes --name release kubeadm",
  "scripts/kubernetes --name release faults 60",
];

/** From the checkout on: a place knows that by another path. */
const shown = (path: string): string => relative(REPOSITORY_ROOT, path);

/** The file of the verdicts. They are there as soon as their lanes have ended, also if a later one fails. */
export const TESTS = "TESTS";

/** @returns a line for each lane, with the last line of its output @throws {Error} if one fails, naming the file of the verdicts */
export function runLanes(lanes: readonly string[] = LANES, directory = join(REPOSITORY_ROOT, "dist/lanes")): string {
  mkdirSync(directory, { recursive: true });
  const verdicts = join(directory, TESTS);
  writeFileSync(verdicts, "");
  for (const lane of lanes) {
    const { isGood, verdict } = runLane(lane, join(directory, `${lane.replace(/\W+/g, "_")}.log`));
    appendFileSync(verdicts, `${lane}: ${verdict}\n`);
    if (!isGood) throw new Error(`Cannot make a release: "${lane}" failed; ${shown(verdicts)} says what has run`);
  }
  return readFileSync(verdicts, "utf8");
}

function runLane(lane: string, log: string) {
  const started = performance.now();
  const output = openSync(log, "w");
  const { success } = Bun.spawnSync(lane.split(" "), {
    cwd: REPOSITORY_ROOT,
    stdin: "ignore",
    stdout: output,
    stderr: output,
  });
  closeSync(output);
  const last = readFileSync(log, "utf8").trimEnd().split("\n").at(-1)!;
  // Some skip what this machine cannot do, which is no failure elsewhere.
  const isEmpty = /^0 passed, /.test(last);
  const isGood = success && !isEmpty;
  const verdict = isGood ? last : `FAILED${isEmpty ? ", it tested nothing" : ""}, see ${shown(log)}`;
  console.log(verdictLine(lane, verdict, started));
  return { isGood, verdict };
}
