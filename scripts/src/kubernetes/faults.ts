/** Faults of a cluster, while pods of all nodes talk the whole time: what is lost, and until when it is mended. @module */
import { startTraffic, type SteadyTraffic } from "../../../testing/steady_traffic.ts";
import { verdictLine } from "../check/main.ts";
import { markdownTable } from "../harness/markdown.ts";
import { readAccess } from "./api_access.ts";
import { type ClusterFault, listFaults, MEND_MS } from "./fault_cases.ts";
import {
  addForeignState,
  clusterState,
  endTrafficPods,
  type FaultNode,
  findNode,
  foreignState,
  nodeShape,
  startTrafficPods,
} from "./fault_nodes.ts";
import { kubectl } from "./kubectl.ts";
import { planCluster } from "./plan.ts";

const NETWORK = "testdata/kubernetes/network-unavailable";
const LOOK_PAUSE_MS = 100;
/** Of 1,200 packets a second, between three pods in both families. On a busy machine, some leave late. */
const LEAST_RATE = 600;

interface FaultRow {
  readonly what: string;
  readonly packets: number;
  readonly lost: number;
  readonly longestGapMs: number;
  readonly mendedMs?: number;
  readonly problems: readonly string[];
}

/** What it differs in from others. The network comes later, to see what it leaves. */
export const FAULT_CLUSTER = { nodes: 3, segments: 2, families: "46", network: "none" } as const;

/** Runs among the processes of {@linkcode FAULT_CLUSTER}. @returns the exit status */
export async function runFaults(killSeconds: number): Promise<number> {
  using resources = new DisposableStack();
  const plan = planCluster(FAULT_CLUSTER.nodes, FAULT_CLUSTER.segments, FAULT_CLUSTER.families);
  const nodes = plan.nodes.map((node) => resources.use(findNode(plan, node)));
  await Promise.all(nodes.map(addForeignState));
  const [foreign, shapes] = await Promise.all([askEach(nodes, foreignState), askEach(nodes, nodeShape)]);
  await applyNetwork();
  const ends = await startTrafficPods(nodes);
  for (const end of ends) resources.use(end);
  const rows: FaultRow[] = [];
  {
    using traffic = await startTraffic(ends);
    for (const fault of listFaults({ nodes, ...readAccess() }, killSeconds)) {
      rows.push(await told(() => judge(fault, nodes, traffic)));
    }
  }
  rows.push(await told(() => judgeRemoval(nodes, shapes, foreign)));
  console.log(
    markdownTable(["fault", "packets", "lost", "longest gap (ms)", "mended (ms)", "verdict"], rows.map(cells)),
  );
  const failed = rows.filter(({ problems }) => problems.length > 0).length;
  console.log(`${rows.length - failed} passed, ${failed} failed, 0 skipped`);
  return failed === 0 ? 0 : 1;
}

async function told(work: () => Promise<FaultRow>): Promise<FaultRow> {
  const started = performance.now();
  const row = await work();
  console.log(verdictLine(row.what, verdictOf(row), started));
  for (const problem of row.problems) console.log(`  ${problem}`);
  return row;
}

const verdictOf = ({ problems }: FaultRow): string => problems.length === 0 ? "passed" : "FAILED";

const cells = (row: FaultRow): readonly string[] => [
  row.what,
  `${row.packets}`,
  `${row.lost}`,
  `${row.longestGapMs}`,
  row.mendedMs === undefined ? "" : `${row.mendedMs}`,
  verdictOf(row),
];

const askEach = <T>(nodes: readonly FaultNode[], ask: (node: FaultNode) => Promise<T>): Promise<readonly T[]> =>
  Promise.all(nodes.map(ask));

async function judge(
  { what, touches, changesRoutes, carryOut }: ClusterFault,
  nodes: readonly FaultNode[],
  traffic: SteadyTraffic,
): Promise<FaultRow> {
  const problems: string[] = [];
  const before = await askEach(nodes, clusterState);
  const started = performance.now(), sentBefore = traffic.sent;
  let mendedMs: number | undefined;
  try {
    const since = await carryOut();
    if (touches) mendedMs = await traffic.recovery(since);
    if (mendedMs !== undefined && mendedMs >= MEND_MS) problems.push("It was not mended in time");
    if (!changesRoutes && !await becomes(nodes, clusterState, before)) {
      problems.push("Routes or rules are not as before");
    }
  } catch (error) {
    problems.push((error as Error).message);
  }
  const packets = traffic.sent - sentBefore, seconds = (performance.now() - started) / 1000;
  if (packets < LEAST_RATE * seconds) problems.push(`Only ${packets} packets left in ${seconds.toFixed(1)} s`);
  const losses = await traffic.losses(started);
  for (const { flow, from, to, count, first, last } of losses) {
    if (touches?.some((name) => [from, to].includes(name))) continue;
    problems.push(`${flow}: ${count} lost from ${first} to ${last} ms`);
  }
  return {
    what,
    packets,
    lost: losses.reduce((sum, { count }) => sum + count, 0),
    longestGapMs: Math.max(0, ...losses.map(({ longestGapMs }) => longestGapMs)),
    ...mendedMs !== undefined && { mendedMs },
    problems,
  };
}

async function judgeRemoval(
  nodes: readonly FaultNode[],
  shapes: readonly (readonly string[])[],
  foreign: readonly string[],
): Promise<FaultRow> {
  const problems: string[] = [];
  try {
    if (!Bun.deepEquals(await askEach(nodes, foreignState), foreign)) {
      problems.push("The faults changed what is others'");
    }
    await removeNetwork();
    if (!Bun.deepEquals(await askEach(nodes, foreignState), foreign)) {
      problems.push("The removal changed what is others'");
    }
  } catch (error) {
    problems.push((error as Error).message);
  }
  for (const [i, after] of (await askEach(nodes, nodeShape)).entries()) {
    const before = shapes[i]!, { name } = nodes[i]!.plan;
    problems.push(...after.filter((line) => !before.includes(line)).map((line) => `${name} has ${line}`));
    problems.push(...before.filter((line) => !after.includes(line)).map((line) => `${name} lacks ${line}`));
  }
  return { what: "the network is removed, and nothing else", packets: 0, lost: 0, longestGapMs: 0, problems };
}

/** @returns whether it is so soon */
async function becomes<T>(
  nodes: readonly FaultNode[],
  ask: (node: FaultNode) => Promise<T>,
  expected: readonly T[],
): Promise<boolean> {
  for (const deadline = performance.now() + MEND_MS; performance.now() < deadline;) {
    if (Bun.deepEquals(await askEach(nodes, ask), expected)) return true;
    await Bun.sleep(LOOK_PAUSE_MS);
  }
  return false;
}

async function applyNetwork(): Promise<void> {
  await kubectl(["apply", "-k", NETWORK]);
  await kubectl(["wait", "--for=condition=Ready", "node", "--all", "--timeout=120s"]);
  await kubectl(["wait", "--for=condition=NetworkUnavailable=false", "node", "--all", "--timeout=30s"]);
  await kubectl(["-n", "kube-system", "rollout", "status", "daemonset/cni", "--timeout=120s"]);
}

/** It does what the documentation says. */
async function removeNetwork(): Promise<void> {
  const inSystem = (...words: readonly string[]) => kubectl(["-n", "kube-system", ...words]);
  await endTrafficPods();
  await inSystem("delete", "deployment", "coredns", "--cascade=foreground");
  await kubectl(["delete", "-k", NETWORK, "--cascade=foreground"]);
  await inSystem("delete", "configmap", "-l", "app.kubernetes.io/name=cni");
  await kubectl(["apply", "-k", "deploy/uninstall"]);
  await inSystem("rollout", "status", "daemonset/cni-uninstall", "--timeout=120s");
  await kubectl(["delete", "-k", "deploy/uninstall"]);
}
