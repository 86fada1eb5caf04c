/** Many pods at once on one node: with this network, with flannel and the Go plugins, and without any network. @module */
import { openNetns } from "../../../ffi/netns/netns.ts";
import { ipShow } from "../../../testing/netns.ts";
import { markdownTable } from "../harness/markdown.ts";
import { median } from "../harness/statistics.ts";
import { comparedCluster, type InCluster } from "./compare.ts";
import { clusterProcesses, runsProgram } from "./holder.ts";
import { AGNHOST_IMAGE } from "./pod_netns.ts";

const SIDES = {
  cni: { program: "cni", hostNetwork: false },
  "flannel, Go plugins": { program: "flannel", hostNetwork: false },
  "host network": { program: "cni", hostNetwork: true },
} as const;

const LABEL = "measured=at-once";
/** Longer than any run took. */
const TIMEOUT = "--timeout=300s";
const ASK_PAUSE_MS = 50;

/** Prints medians of runs that take turns, in two clusters of one node. */
export async function measurePodsAtOnce(count: number, runs: number, inCluster: InCluster): Promise<void> {
  const times = new Map(Object.keys(SIDES).map((side) => [side, [] as PodTimes[]]));
  for (let run = 0; run < runs; run++) {
    const sides = Object.entries(SIDES);
    for (const [side, { program, hostNetwork }] of run % 2 === 0 ? sides : sides.toReversed()) {
      times.get(side)!.push(await timePods(inCluster, comparedCluster(program), count, hostNetwork));
    }
  }
  const seconds = (values: readonly PodTimes[], which: keyof PodTimes): string => {
    const all = values.map((value) => value[which] / 1000);
    return `${median(all).toFixed(1)} (${Math.min(...all).toFixed(1)} to ${Math.max(...all).toFixed(1)})`;
  };
  const rows = [...times].map(([side, values]) => [side, seconds(values, "ready"), seconds(values, "gone")]);
  console.log(markdownTable([`${count} pods, ${runs} runs`, "all Ready (s)", "pods and links gone (s)"], rows));
}

/** In milliseconds from the request to the API. */
interface PodTimes {
  readonly ready: number;
  readonly gone: number;
}

async function timePods(inCluster: InCluster, cluster: string, count: number, hostNetwork: boolean): Promise<PodTimes> {
  const pods = Array.from({ length: count }, (_, i) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `at-once-${i}`, labels: Object.fromEntries([LABEL.split("=")]) },
    spec: {
      hostNetwork,
      nodeName: "node1",
      terminationGracePeriodSeconds: 1,
      containers: [{ name: "pause", image: AGNHOST_IMAGE, imagePullPolicy: "Never", args: ["pause"] }],
    },
  }));
  const node = nodeNamespace(cluster);
  const [ofPods, links] = [`--selector=${LABEL}`, countLinks(node)];
  const list = JSON.stringify({ apiVersion: "v1", kind: "List", items: pods });
  const started = performance.now();
  inCluster(cluster, "sh", "-c", `kubectl apply -f - <<'END' >/dev/null\n${list}\nEND`);
  inCluster(cluster, "kubectl", "wait", "--for=condition=Ready", "pod", ofPods, TIMEOUT);
  const ready = performance.now() - started;
  const deleted = performance.now();
  inCluster(cluster, "kubectl", "delete", "pod", ofPods, TIMEOUT);
  while (countLinks(node) > links) await Bun.sleep(ASK_PAUSE_MS);
  return { ready, gone: performance.now() - deleted };
}

function nodeNamespace(cluster: string): string {
  const kubelet = clusterProcesses(cluster).find((pid) => runsProgram(pid, "kubelet"));
  if (kubelet === undefined) throw new Error(`No kubelet runs in ${cluster}`);
  return `/proc/${kubelet}/ns/net`;
}

function countLinks(path: string): number {
  using netns = openNetns(path);
  return ipShow(netns, "link").length;
}
