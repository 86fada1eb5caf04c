/** Pods of a cluster whose nodes change their network: whether they reach each other, and what is lost meanwhile. @module */
import { familyOf, type Ip, parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { startTraffic } from "../../../testing/steady_traffic.ts";
import { requestTcp, requestUdp, serveTcp, serveUdp } from "../../../testing/traffic.ts";
import { type ProcessResult, requireSuccess, runInBackground } from "../harness/process.ts";
import { REPOSITORY_ROOT } from "../repository.ts";
import type { DocumentedStep } from "./documented_migration.ts";
import { allProcesses } from "./holder.ts";
import { clusterEnv, kubectl, untilTrue } from "./kubectl.ts";
import type { NodePlan } from "./plan.ts";
import { AGNHOST_IMAGE, untilPodRuns } from "./pod_netns.ts";

const PORT = 7000;
/** A route that somebody removes is there again within five seconds. */
const PATIENCE_MS = 10_000;
const ANSWER_MS = 1000;
const STEP_TIMEOUT_MS = 180_000;
const LABEL = { migrated: "yes" };
const [SELECTOR] = Object.entries(LABEL).map(([name, value]) => `--selector=${name}=${value}`);

export class Verdicts {
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

/** Starts them, and waits until they run. */
export async function startMigratedPods(nodes: readonly NodePlan[]): Promise<void> {
  await kubectl(["apply", "-f", "-"], podManifest(nodes));
  await untilPodsRun(nodes.length);
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

export const untilPodsRun = (nodeCount: number): Promise<void> =>
  untilTrue("The start of pods on all nodes", async () => (await readyPods()).length === 2 * nodeCount);

/** A line for each pod of these nodes: its name and its addresses. */
export const listPodAddresses = async (nodes: readonly NodePlan[]): Promise<readonly string[]> =>
  (await readyPods()).filter(({ spec: { nodeName } }) => nodes.some(({ name }) => name === nodeName))
    .map(({ metadata: { name }, status: { podIPs = [] } }) => `${name} ${podIPs.map(({ ip }) => ip).join()}`).sort();

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

/** What the documentation says of a migration on its way. */
export interface MigratedWays {
  areConnected(a: NodePlan, b: NodePlan): boolean;
  /** Whether pods of others see the node in the place of its pods. */
  areMasqueraded(node: NodePlan): boolean;
}

/** Asks from all pods to all of other nodes, by both protocols and families. */
export async function checkPairs(
  verdicts: Verdicts,
  when: string,
  nodes: readonly NodePlan[],
  { areConnected, areMasqueraded }: MigratedWays,
): Promise<void> {
  using resources = new DisposableStack();
  const pods = await openPods(resources, nodes);
  for (const { netns, name } of pods) {
    resources.use(serveTcp(netns, name, PORT));
    resources.use(await serveUdp(netns, name, PORT));
  }
  for (const [i, a] of nodes.entries()) {
    for (const b of nodes.slice(i + 1)) {
      const questions = questionsBetween(pods, a, b, areMasqueraded);
      const between = `pods of ${a.name} and ${b.name}`;
      if (areConnected(a, b)) {
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
  /** The address that the other pod sees. */
  readonly seen: Ip | undefined;
  readonly ask: typeof requestTcp;
}

function questionsBetween(
  pods: readonly OpenPod[],
  a: NodePlan,
  b: NodePlan,
  areMasqueraded: MigratedWays["areMasqueraded"],
): readonly Question[] {
  const questions = (from: OpenPod, to: OpenPod) =>
    to.addresses.flatMap((address) => {
      const own = areMasqueraded(from.node) ? from.node.addresses.map(parseIp) : from.addresses;
      const seen = own.find((each) => familyOf(each) === familyOf(address));
      return [requestTcp, requestUdp].map((ask) => ({ from, to, address, seen, ask }));
    });
  return pods.flatMap((from) =>
    pods.filter((to) => from.node === a && to.node === b || from.node === b && to.node === a)
      .flatMap((to) => questions(from, to))
  );
}

/** Asks again until all is well, or for so long. */
async function findWrongAnswers(questions: readonly Question[], patienceMs: number): Promise<readonly string[]> {
  for (const deadline = performance.now() + patienceMs;;) {
    const wrong = (await Promise.all(questions.map(findWrongAnswer))).filter((each) => each !== undefined);
    if (wrong.length === 0 || performance.now() > deadline) return wrong;
  }
}

async function findWrongAnswer({ from, to, address, seen, ask }: Question): Promise<string | undefined> {
  const answer = await ask(from.netns, address, PORT, ANSWER_MS);
  if (answer === `${to.name} ${seen}`) return undefined;
  const expected = answer === undefined ? "no answer" : `${answer}, expected ${seen}`;
  return `${from.node.name} ${from.name} to ${to.node.name} ${address}: ${expected}`;
}

/** Counts what is lost between pods of some nodes meanwhile. */
export async function checkTraffic(
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

/** @param directory where `.` is a directory with a kustomization */
export async function carryOutStep(
  { command, isOnNode }: DocumentedStep,
  directory: string,
  node = "",
): Promise<void> {
  const line = command.replaceAll("NODE", node);
  console.log(`${isOnNode ? `${node} ` : ""}$ ${line}`);
  const argv = isOnNode
    ? ["on", node, "sh", "-c", line]
    : ["env", "-C", `${REPOSITORY_ROOT}/${directory}`, "sh", "-c", line];
  requireSuccess({ argv }, await run(argv));
}

/** Lines that a script prints on a node. */
export async function linesOnNode(node: string, script: string): Promise<readonly string[]> {
  const argv = ["on", node, "sh", "-c", script];
  return requireSuccess({ argv }, await run(argv)).stdout.split("\n").filter((line) => line !== "");
}

const run = (argv: readonly string[]): Promise<ProcessResult> =>
  runInBackground({ argv, env: clusterEnv(), timeoutMs: STEP_TIMEOUT_MS });

/** What it says after a cross. */
export async function doctorFailures(node: string): Promise<readonly string[]> {
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
