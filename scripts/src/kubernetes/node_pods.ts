/** Pods on all nodes of a cluster, with their network namespaces. @module */
import { type Ip, parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { allProcesses } from "./holder.ts";
import { kubectl, untilTrue } from "./kubectl.ts";
import type { NodePlan } from "./plan.ts";
import { AGNHOST_IMAGE, untilPodRuns } from "./pod_netns.ts";

const LABEL = { "node-pods": "yes" };
const [SELECTOR] = Object.entries(LABEL).map(([name, value]) => `--selector=${name}=${value}`);

/** Labels of the pod on a node that a drain ends. */
export const nodePodLabels = ({ name }: NodePlan): Readonly<Record<string, string>> => ({
  ...LABEL,
  workload: `on-${name}`,
});

/** Starts two pods on each node: one that a drain ends, and one of a DaemonSet, which a drain leaves. */
export async function startNodePods(nodes: readonly NodePlan[]): Promise<void> {
  await kubectl(["apply", "-f", "-"], podManifest(nodes));
  await untilNodePodsRun(nodes.length);
}

function podManifest(nodes: readonly NodePlan[]): string {
  const spec = {
    terminationGracePeriodSeconds: 1,
    // With kubeadm, the first node is for those who ask for it.
    tolerations: [{ key: "node-role.kubernetes.io/control-plane", operator: "Exists" }],
    containers: [{ name: "pause", image: AGNHOST_IMAGE, imagePullPolicy: "Never", args: ["pause"] }],
  };
  const workload = (kind: string, labels: Readonly<Record<string, string>>, podSpec: object) => ({
    apiVersion: "apps/v1",
    kind,
    metadata: { name: labels["workload"] },
    spec: { selector: { matchLabels: labels }, template: { metadata: { labels }, spec: { ...spec, ...podSpec } } },
  });
  const items = [
    ...nodes.map((node) =>
      workload("Deployment", nodePodLabels(node), { nodeSelector: { "kubernetes.io/hostname": node.name } })
    ),
    workload("DaemonSet", { ...LABEL, workload: "everywhere" }, {}),
  ];
  return JSON.stringify({ apiVersion: "v1", kind: "List", items });
}

interface PodObject {
  readonly metadata: {
    readonly name: string;
    readonly deletionTimestamp?: string;
    readonly labels: Readonly<Record<string, string>>;
  };
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

export const untilNodePodsRun = (nodeCount: number): Promise<void> =>
  untilTrue("The start of pods on all nodes", async () => (await readyPods()).length === 2 * nodeCount);

/** A line for each pod of these nodes: its name and its addresses. */
export const listPodAddresses = async (nodes: readonly NodePlan[]): Promise<readonly string[]> =>
  (await readyPods()).filter(({ spec: { nodeName } }) => nodes.some(({ name }) => name === nodeName))
    .map(({ metadata: { name }, status: { podIPs = [] } }) => `${name} ${podIPs.map(({ ip }) => ip).join()}`).sort();

export interface OpenPod {
  readonly name: string;
  readonly workload: string;
  readonly node: NodePlan;
  readonly netns: Netns;
  readonly addresses: readonly Ip[];
}

export async function openNodePods(
  resources: DisposableStack,
  nodes: readonly NodePlan[],
): Promise<readonly OpenPod[]> {
  const pods: OpenPod[] = [];
  for (const { metadata: { name, labels }, spec, status: { podIPs = [] } } of await readyPods()) {
    const node = nodes.find((each) => each.name === spec.nodeName);
    if (!node) continue;
    const netns = resources.use(await untilPodRuns(name, allProcesses));
    pods.push({ name, workload: labels["workload"]!, node, netns, addresses: podIPs.map(({ ip }) => parseIp(ip)) });
  }
  return pods;
}
