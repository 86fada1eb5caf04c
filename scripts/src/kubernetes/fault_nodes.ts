/** Nodes of a cluster of which something is to fail, seen from among its processes. @module */
import { closeSync, openSync, readlinkSync } from "node:fs";
import { ROUTE_PROTOCOL } from "../../../cluster/network/settings.ts";
import { parseIp } from "../../../ffi/address.ts";
import { type Netns, openNetns } from "../../../ffi/netns/netns.ts";
import { until } from "../../../testing/netns.ts";
import type { TrafficEnd } from "../../../testing/steady_traffic.ts";
import { partCommand } from "../../../server/part_definitions.ts";
import { allProcesses, readProc } from "./holder.ts";
import { inCluster } from "./directory.ts";
import { clusterEnv, kubectl, runMeanwhile } from "./kubectl.ts";
import { keepAgain, stopKeeping } from "./nodes.ts";
import type { ClusterPlan, NodePlan, RouterAddress } from "./plan.ts";
import { AGNHOST_IMAGE, untilPodRuns } from "./pod_netns.ts";

/** Each is known by the words that it was started with. */
const PROGRAMS = {
  server: ([program, command, ...options]) =>
    isAt(program, "cni") && command === "serve" && options.includes("--replace"),
  part: ([program]) => program === partCommand("cluster"),
  kubelet: ([program]) => isAt(program, "kubelet"),
  "kube-apiserver": ([program]) => isAt(program, "kube-apiserver"),
  etcd: ([program]) => isAt(program, "etcd"),
} satisfies Record<string, (words: readonly string[]) => boolean>;
export type NodeProgram = keyof typeof PROGRAMS;

const POD_LABEL = "faults=traffic";
/** The routing protocol number of another program. */
const FOREIGN_PROTOCOL = 88;
const FOREIGN_RANGES = ["10.99.0.0/16", "fd99::/32"];

export interface FaultNode extends Disposable {
  readonly plan: NodePlan;
  /** Of its segment, of each family. */
  readonly router: readonly RouterAddress[];
  readonly netns: Netns;
  run(script: string): Promise<string>;
  pidOf(program: NodeProgram): number | undefined;
  /** What it was started with. */
  commandOf(program: NodeProgram): readonly string[];
  /** @returns the process that got it, if there was one */
  signal(program: NodeProgram, signal: "SIGKILL" | "SIGSTOP" | "SIGCONT"): number | undefined;
}

export function findNode({ segments }: ClusterPlan, plan: NodePlan): FaultNode {
  const { name } = plan;
  const first = allProcesses().find((pid) => isFirstProcess(wordsOf(pid), name));
  if (first === undefined) throw new Error(`There is no ${name}`);
  const namespace = namespaceOf(first);
  const netns = openNetns(`/proc/${first}/ns/net`);
  const pidOf = (program: NodeProgram) =>
    allProcesses().find((pid) => PROGRAMS[program](wordsOf(pid)) && namespaceOf(pid) === namespace);
  return {
    plan,
    router: segments[plan.segment - 1]!.router,
    netns,
    run: (script) => runMeanwhile(["on", name, "sh", "-e", "-c", script]),
    pidOf,
    commandOf(program) {
      const pid = pidOf(program);
      if (pid === undefined) throw new Error(`No ${program} runs on ${name}`);
      return wordsOf(pid).slice(0, -1);
    },
    signal(program, signal) {
      const pid = pidOf(program);
      if (pid === undefined) return undefined;
      // nsenter(1) stops with its child, and would not see its end.
      if (signal === "SIGCONT") sendSignal(parentOf(pid), signal);
      sendSignal(pid, signal);
      return pid;
    },
    [Symbol.dispose]: () => netns[Symbol.dispose](),
  };
}

const wordsOf = (pid: number): readonly string[] => readProc(pid, "cmdline").split("\0");
const isAt = (path: string | undefined, program: string): boolean => path?.split("/").at(-1) === program;

const isFirstProcess = ([shell, script = "", argument]: readonly string[], name: string): boolean =>
  shell === "sh" && script.endsWith("/node.sh") && argument === name;

function namespaceOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`);
  } catch {
    // It has ended meanwhile.
    return undefined;
  }
}

/** @returns nothing if the process has ended meanwhile */
function parentOf(pid: number): number | undefined {
  const parent = /^PPid:\s*(\d+)/m.exec(readProc(pid, "status"))?.[1];
  return parent === undefined ? undefined : Number(parent);
}

function sendSignal(pid: number | undefined, signal: NodeJS.Signals): void {
  if (pid === undefined) return;
  try {
    process.kill(pid, signal);
  } catch {
    // It has ended meanwhile.
  }
}

/** Ends a program of a node, which is started again soon. */
export async function restartProgram(node: FaultNode, program: NodeProgram): Promise<void> {
  const former = node.signal(program, "SIGKILL");
  await until(() => ![former, undefined].includes(node.pidOf(program)));
}

/** Ends a program of a node for some time. */
export async function stopProgram(node: FaultNode, program: NodeProgram, ms: number): Promise<void> {
  stopKeeping(node.plan.name, program);
  try {
    node.signal(program, "SIGKILL");
    await Bun.sleep(ms);
  } finally {
    keepAgain(node.plan.name, program);
  }
}

/** Runs a program of a node with further options for some time. @param between is done while it is away */
export async function runWithOptions(
  node: FaultNode,
  program: NodeProgram,
  options: readonly string[],
  between: () => Promise<void>,
  act: () => Promise<void>,
): Promise<void> {
  const { name } = node.plan;
  const argv = ["on", name, ...node.commandOf(program), ...options];
  const log = openSync(inCluster("logs", `${name}-${program}`), "a");
  stopKeeping(name, program);
  try {
    node.signal(program, "SIGKILL");
    await until(() => node.pidOf(program) === undefined);
    await between();
    Bun.spawn(argv, { env: clusterEnv(), stdio: ["ignore", log, log] });
    await until(() => node.pidOf(program) !== undefined);
    await act();
  } finally {
    closeSync(log);
    node.signal(program, "SIGKILL");
    keepAgain(name, program);
  }
}

/** Starts a pod on each node. @returns them by the names of their nodes */
export async function startTrafficPods(nodes: readonly FaultNode[]): Promise<readonly (TrafficEnd & Disposable)[]> {
  const items = nodes.map(({ plan: { name } }) => ({
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name: `pod-${name}`, labels: Object.fromEntries([POD_LABEL.split("=")]) },
    spec: {
      nodeName: name,
      terminationGracePeriodSeconds: 0,
      // It stays while the API server cannot hear of its node.
      tolerations: [{ operator: "Exists" }],
      containers: [{ name: "pause", image: AGNHOST_IMAGE, imagePullPolicy: "Never", args: ["pause"] }],
    },
  }));
  await kubectl(["create", "-f", "-"], JSON.stringify({ apiVersion: "v1", kind: "List", items }));
  await kubectl(["wait", "--for=condition=Ready", "pod", `--selector=${POD_LABEL}`, "--timeout=60s"]);
  return await Promise.all(nodes.map(async ({ plan: { name } }) => {
    const { status } = JSON.parse(await kubectl(["get", "pod", `pod-${name}`, "-o", "json"]));
    const netns = await untilPodRuns(`pod-${name}`, allProcesses);
    const addresses = status.podIPs.map(({ ip }: { ip: string }) => parseIp(ip));
    return { name, netns, addresses, [Symbol.dispose]: () => netns[Symbol.dispose]() };
  }));
}

export const endTrafficPods = (): Promise<string> => kubectl(["delete", "pod", `--selector=${POD_LABEL}`]);

/** Adds what another program has on a node: rules, and routes as of a daemon that speaks to routers. */
export async function addForeignState(node: FaultNode): Promise<void> {
  await node.run("nft 'add table inet foreign; add chain inet foreign c; add rule inet foreign c accept'");
  await node.run(foreignRoutes(node));
}

/** They go with the link, and with the last address of their family. */
export const foreignRoutes = ({ router }: FaultNode): string =>
  router.map(({ address }, i) => `ip route replace ${FOREIGN_RANGES[i]} via ${address} proto ${FOREIGN_PROTOCOL}`).join(
    "\n",
  );

/** A route of another program to a range of ours. */
export const foreignRoute = ({ router }: FaultNode, range: string): string =>
  `${range} via ${router[range.includes(":") ? 1 : 0]!.address} proto ${FOREIGN_PROTOCOL}`;

export const foreignState = ({ run }: FaultNode): Promise<string> =>
  run(`for f in 4 6; do ip -$f route show proto ${FOREIGN_PROTOCOL}; done; ip rule; nft list table inet foreign`);

/** What the part makes, in an order of its own. */
export async function clusterState({ run }: FaultNode): Promise<readonly string[]> {
  const state = await run(
    `for f in 4 6; do ip -$f route show proto ${ROUTE_PROTOCOL}; done; nft list table inet cni_cluster || :`,
  );
  return state.split(/[\n,{}]/).map((line) => line.trim()).sort();
}

/** What a node has that an installation changes, as lines. Locks hold nothing, and kube-proxy may make its tables later. */
export const nodeShape = async ({ run }: FaultNode): Promise<readonly string[]> =>
  (await run(`ls /sys/class/net
    ip -4 route; ip -6 route
    nft list tables | grep -v kube-proxy
    find /opt/cni /etc/cni
    find /var/lib/cni /run/cni -type f ! -name '*lock' 2>/dev/null || :`)).split("\n").sort();

/** What an administrator gives a node's link, and what is lost when it goes down. */
export const uplinkLines = ({ router }: FaultNode, addresses: readonly string[]): string =>
  router.map(({ address, prefix }, i) =>
    `ip addr replace ${addresses[i]}/${prefix} dev eth0 nodad; ip route replace default via ${address}`
  ).join("\n");
