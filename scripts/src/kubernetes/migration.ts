/** A cluster that leaves flannel a node at a time, by the documentation's commands, while pods of its nodes talk. @module */
import { familyOf, type Ip, parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { startTraffic } from "../../../testing/steady_traffic.ts";
import { requestTcp, requestUdp, serveTcp, serveUdp } from "../../../testing/traffic.ts";
import { type ProcessResult, requireSuccess, runInBackground } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import { type DocumentedStep, readMigration } from "./documented_migration.ts";
import { stopFlannel } from "./flannel.ts";
import { allProcesses } from "./holder.ts";
import { clusterEnv, kubectl, untilTrue } from "./kubectl.ts";
import { type NodePlan, planCluster } from "./plan.ts";
import { AGNHOST_IMAGE, untilPodRuns } from "./pod_netns.ts";

/** Two nodes on one segment, and one behind the router. */
export const MIGRATED_CLUSTER = { nodes: 3, segments: 2, families: "46", network: "flannel" } as const;

/** No DaemonSet but a program of each node is flannel here. */
const END_OF_FLANNEL = "kubectl -n kube-flannel delete daemonset kube-flannel-ds";
const FLANNEL_FILE = "10-flannel.conflist";
const PORT = 7000;
/** A route that somebody removes is there again within five seconds. */
const PATIENCE_MS = 10_000;
const ANSWER_MS = 1000;
const STEP_TIMEOUT_MS = 180_000;
const LABEL = { migrated: "yes" };
const [SELECTOR] = Object.entries(LABEL).map(([name, value]) => `--selector=${name}=${value}`);

/** Runs among the processes of a cluster with flannel. @returns the exit status */
export async function migrateFromFlannel(): Promise<number> {
  const { once, eachNode } = readMigration();
  const { nodes } = planCluster(MIGRATED_CLUSTER.nodes, MIGRATED_CLUSTER.segments, MIGRATED_CLUSTER.families);
  const verdicts = new Verdicts();
  const taken = new Set<string>();
  await kubectl(["apply", "-f", "-"], podManifest(nodes));
  await untilPodsRun(nodes.length);
  await checkPairs(verdicts, "with flannel", nodes, taken);
  await checkTraffic(verdicts, `while "${once.at(-1)!.command}" and those before it run`, nodes, async () => {
    for (const step of once) await carryOut(step);
  });
  for (const { name } of nodes) {
    const failures = await doctorFailures(name);
    const isNamed = failures.some((failure) => failure.includes(FLANNEL_FILE));
    verdicts.add(`cni doctor on ${name} names ${FLANNEL_FILE}`, isNamed ? [] : [`It said: ${failures.join("; ")}`]);
  }
  for (const node of nodes) {
    const untouched = nodes.filter((each) => each !== node);
    await checkTraffic(verdicts, `while ${node.name} is taken`, untouched, async () => {
      for (const step of eachNode) await carryOut(step, node.name);
      await untilPodsRun(nodes.length);
    });
    taken.add(node.name);
    await checkPairs(verdicts, `after ${[...taken].join(", ")}`, nodes, taken);
    verdicts.add(`${node.name} has no link, route or file of flannel`, await listRemains(node.name));
  }
  for (const { name } of nodes) {
    verdicts.add(`cni doctor on ${name} finds no failure`, await doctorFailures(name));
  }
  return verdicts.sumUp();
}

class Verdicts {
  #passed = 0;
  #failed = 0;

  add(title: string, problems: readonly string[]): void {
    if (problems.length === 0) this.#passed++;
    else this.#failed++;
    console.log([`${problems.length === 0 ? "passed" : "failed"}: ${title}`, ...problems].join("\n  "));
  }

  /** @returns the exit status */
  sumUp(): number {
    console.log(`${this.#passed} passed, ${this.#failed} failed, 0 skipped`);
    return this.#failed === 0 ? 0 : 1;
  }
}

/** Each node has a pod that a drain ends, and one of a DaemonSet, which a drain leaves. */
function podManifest(nodes: readonly NodePlan[]): string {
  const spec = {
    terminationGracePeriodSeconds: 1,
    containers: [{ name: "pause", image: AGNHOST_IMAGE, imagePullPolicy: "Never", args: ["pause"] }],
  };
  const workload = (kind: string, name: string, podSpec: object) => {
    const labels = { ...LABEL, workload: name };
    return {
      apiVersion: "apps/v1",
      kind,
      metadata: { name },
      spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { ...spec, ...podSpec } } },
    };
  };
  const items = [
    ...nodes.map(({ name }) =>
      workload("Deployment", `on-${name}`, { nodeSelector: { "kubernetes.io/hostname": name } })
    ),
    workload("DaemonSet", "everywhere", {}),
  ];
  return JSON.stringify({ apiVersion: "v1", kind: "List", items });
}

interface PodObject {
  readonly metadata: { readonly name: string; readonly deletionTimestamp?: string };
  readonly spec: { readonly nodeName?: string };
  readonly status: {
    readonly podIPs?: readonly { readonly ip: string }[];
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
  };
}

async function readyPods(): Promise<readonly PodObject[]> {
  const { items } = JSON.parse(await kubectl(["get", "pods", SELECTOR!, "-o", "json"])) as {
    readonly items: readonly PodObject[];
  };
  return items.filter(({ metadata, status: { conditions = [] } }) =>
    metadata.deletionTimestamp === undefined &&
    conditions.some(({ type, status }) => type === "Ready" && status === "True")
  );
}

const untilPodsRun = (nodeCount: number): Promise<void> =>
  untilTrue("The start of pods on all nodes", async () => (await readyPods()).length === 2 * nodeCount);

interface OpenPod {
  readonly name: string;
  readonly node: NodePlan;
  readonly netns: Netns;
  readonly addresses: readonly Ip[];
}

async function openPods(resources: DisposableStack, nodes: readonly NodePlan[]): Promise<readonly OpenPod[]> {
  const pods: OpenPod[] = [];
  for (const { metadata: { name }, spec, status: { podIPs = [] } } of await readyPods()) {
    const node = nodes.find((each) => each.name === spec.nodeName);
    if (!node) continue;
    const netns = resources.use(await untilPodRuns(name, allProcesses));
    pods.push({ name, node, netns, addresses: podIPs.map(({ ip }) => parseIp(ip)) });
  }
  return pods;
}

/** Of nodes, pods of these reach each other: as docs/kubernetes.md says, tunnels of two programs do not meet. */
const areConnected = (a: NodePlan, b: NodePlan, taken: ReadonlySet<string>): boolean =>
  a.segment === b.segment || taken.has(a.name) === taken.has(b.name);

/** Asks from all pods to all of other nodes, by both protocols and families. */
async function checkPairs(
  verdicts: Verdicts,
  when: string,
  nodes: readonly NodePlan[],
  taken: ReadonlySet<string>,
): Promise<void> {
  using resources = new DisposableStack();
  const pods = await openPods(resources, nodes);
  for (const { netns, name } of pods) {
    resources.use(serveTcp(netns, name, PORT));
    resources.use(await serveUdp(netns, name, PORT));
  }
  for (const [i, a] of nodes.entries()) {
    for (const b of nodes.slice(i + 1)) {
      const questions = questionsBetween(pods, a, b);
      const between = `pods of ${a.name} and ${b.name}`;
      if (areConnected(a, b, taken)) {
        const started = performance.now();
        const wrong = await findWrongAnswers(questions, PATIENCE_MS);
        const ms = Math.round(performance.now() - started);
        verdicts.add(`${when}: ${between} reach each other (${questions.length} ways, ${ms} ms)`, wrong);
      } else {
        const answered = questions.length - (await findWrongAnswers(questions, 0)).length;
        const problem = `${answered} of ${questions.length} ways work: the documentation promises less`;
        verdicts.add(`${when}: ${between} do not reach each other yet`, answered === 0 ? [] : [problem]);
      }
    }
  }
}

/** A way from one pod to another. */
interface Question {
  readonly from: OpenPod;
  readonly to: OpenPod;
  readonly address: Ip;
  readonly ask: typeof requestTcp;
}

const questionsBetween = (pods: readonly OpenPod[], a: NodePlan, b: NodePlan): readonly Question[] =>
  pods.flatMap((from) =>
    pods.filter((to) => from.node === a && to.node === b || from.node === b && to.node === a)
      .flatMap((to) =>
        to.addresses.flatMap((address) => [requestTcp, requestUdp].map((ask) => ({ from, to, address, ask })))
      )
  );

/** Asks again until all is well, or for so long. */
async function findWrongAnswers(questions: readonly Question[], patienceMs: number): Promise<readonly string[]> {
  for (const deadline = performance.now() + patienceMs;;) {
    const wrong = (await Promise.all(questions.map(findWrongAnswer))).filter((each) => each !== undefined);
    if (wrong.length === 0 || performance.now() > deadline) return wrong;
  }
}

/** The other pod sees the address of this one. */
async function findWrongAnswer({ from, to, address, ask }: Question): Promise<string | undefined> {
  const own = from.addresses.find((each) => familyOf(each) === familyOf(address));
  const answer = await ask(from.netns, address, PORT, ANSWER_MS);
  if (answer === `${to.name} ${own}`) return undefined;
  return `${from.node.name} ${own} to ${to.node.name} ${address}: ${answer ?? "no answer"}`;
}

/** Counts what is lost between pods of some nodes meanwhile. */
async function checkTraffic(
  verdicts: Verdicts,
  when: string,
  nodes: readonly NodePlan[],
  act: () => Promise<void>,
): Promise<void> {
  using resources = new DisposableStack();
  const pods = await openPods(resources, nodes);
  const ends = nodes.map((node) => ({ ...pods.find((pod) => pod.node === node)!, name: node.name }));
  using traffic = await startTraffic(ends);
  const since = performance.now();
  await act();
  const losses = await traffic.losses(since);
  const seconds = ((performance.now() - since) / 1000).toFixed(1);
  verdicts.add(
    `${when}, pods of ${nodes.map(({ name }) => name).join(" and ")} lose nothing: ` +
      `${traffic.sent} packets, ${seconds} s`,
    losses.map(({ flow, count, first, last }) => `${flow}: ${count} lost, from ${first} to ${last} ms`),
  );
}

async function carryOut({ command, isOnNode }: DocumentedStep, node = ""): Promise<void> {
  const line = command.replaceAll("NODE", node);
  console.log(`${isOnNode ? `${node} ` : ""}$ ${line}`);
  if (line === END_OF_FLANNEL) {
    const { nodes, segments, families } = MIGRATED_CLUSTER;
    await stopFlannel(planCluster(nodes, segments, families).nodes.map(({ name }) => name));
    return;
  }
  // `.` is a directory with a kustomization.
  const argv = isOnNode ? ["on", node, "sh", "-c", line] : ["env", "-C", `${REPOSITORY_ROOT}/deploy`, "sh", "-c", line];
  requireSuccess({ argv }, await run(argv));
}

const run = (argv: readonly string[]): Promise<ProcessResult> =>
  runInBackground({ argv, env: clusterEnv(), timeoutMs: STEP_TIMEOUT_MS });

/** What it says after a cross. */
async function doctorFailures(node: string): Promise<readonly string[]> {
  const { stdout, stderr } = await run(["on", node, "/opt/cni/bin/cni", "doctor", "--json"]);
  if (!stdout.startsWith("{")) return [`It ended early: ${stdout}${stderr}`];
  const { networks } = JSON.parse(stdout) as {
    readonly networks: readonly {
      readonly network: string;
      readonly findings: readonly { readonly severity: string; readonly what: string }[];
    }[];
  };
  return networks.flatMap(({ network, findings }) =>
    findings.filter(({ severity }) => severity === "broken").map(({ what }) => `${network}: ${what}`)
  );
}

/** What flannel has left on a node. Routes of pods have no gateway. */
async function listRemains(node: string): Promise<readonly string[]> {
  const { podRanges } = planCluster(1, 1, MIGRATED_CLUSTER.families);
  const script = [
    "ip -o link | grep -E ': (cni0|flannel[^:]*):' || :",
    ...podRanges.split(",").map((range) =>
      `ip -N ${range.includes(":") ? "-6" : "-4"} route show root ${range} | grep via | grep -v 'proto 67' || :`
    ),
    "ls /etc/cni/net.d/*flannel* 2>/dev/null || :",
  ].join("\n");
  const argv = ["on", node, "sh", "-c", script];
  return requireSuccess({ argv }, await run(argv)).stdout.split("\n").filter((line) => line !== "");
}
