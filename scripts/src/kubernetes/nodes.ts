/** Nodes: namespaces on common segments, and programs that run in them. @module */
import { existsSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runShell, runSuccessfully } from "../harness/process.ts";
import { until } from "../../../testing/netns.ts";
import type { ServiceCommand } from "./control_plane.ts";
import { inCluster } from "./directory.ts";
import type { ClusterPlan, NodePlan } from "./plan.ts";

const NODE_SCRIPT = join(import.meta.dir, "node.sh");
/** As a service manager waits before it starts a program again. */
const RESTART_PAUSE_MS = 1000;
/** A program with a file of its name in there stays ended. */
const STOPPED = inCluster("stopped");

const stopFile = (node: string, program: string): string => join(STOPPED, `${node}-${program}`);

export interface KubernetesNode {
  readonly plan: NodePlan;
  /** What a command on the node begins with. */
  readonly enter: readonly string[];
}

/** Makes the segments, and this namespace a router between them that knows of no pod. */
export function makeSegments({ segments }: ClusterPlan): void {
  for (const { number, router } of segments) {
    runShell([
      `ip link add lan${number} type bridge`,
      ...router.map(({ address, prefix }) => `ip addr add ${address}/${prefix} dev lan${number} nodad`),
      `ip link set lan${number} up`,
    ].join("\n"));
  }
  runShell(`ip link set lo up
    echo 1 >/proc/sys/net/ipv4/ip_forward
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
    for each in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $each ] || echo 0 >$each; done`);
}

/** Starts a node without programs. */
export async function startClusterNode(plan: ClusterPlan, node: NodePlan, bridgeNf: string): Promise<KubernetesNode> {
  mkdirSync(inCluster("ready"), { recursive: true });
  const ready = inCluster("ready", node.name);
  const namespaces = "unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc --propagation private";
  const child = Bun.spawn([...namespaces.split(" "), "sh", NODE_SCRIPT, node.name, bridgeNf, ready], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  await until(() => existsSync(ready) || child.exitCode !== null);
  if (child.exitCode !== null) throw new Error(`${node.name} ended with ${child.exitCode}, see above`);
  const pid = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim();
  plugIn(plan, node, pid);
  return { plan: node, enter: ["nsenter", "--target", pid, "--net", "--mount", "--uts", "--ipc", "--pid"] };
}

function plugIn({ segments }: ClusterPlan, { name, segment, addresses }: NodePlan, pid: string): void {
  const { router } = segments[segment - 1]!;
  const inside = `nsenter --target ${pid} --net ip`;
  runShell([
    `ip link add ${name} type veth peer name eth0 netns ${pid}`,
    `ip link set ${name} master lan${segment} up`,
    ...addresses.map((address, i) => `${inside} addr add ${address}/${router[i]!.prefix} dev eth0 nodad`),
    `${inside} link set eth0 up`,
    ...router.map(({ address }) => `${inside} route add default via ${address}`),
  ].join("\n"));
}

/** Runs a program on a node to its end. @throws {Error} if it fails */
export const runOnNode = ({ enter }: KubernetesNode, ...argv: readonly string[]): string =>
  runSuccessfully({ argv: [...enter, ...argv] }).stdout;

/** Has a program stay ended once it ends. */
export function stopKeeping(node: string, program: string): void {
  mkdirSync(STOPPED, { recursive: true });
  writeFileSync(stopFile(node, program), "");
}

export const keepAgain = (node: string, program: string): void => rmSync(stopFile(node, program));

/** Keeps a program running on a node, and its output in a file. */
export async function keepRunning({ plan, enter }: KubernetesNode, { name, argv }: ServiceCommand): Promise<never> {
  const title = `${plan.name}-${name}`;
  mkdirSync(STOPPED, { recursive: true });
  mkdirSync(inCluster("logs"), { recursive: true });
  const log = openSync(inCluster("logs", title), "a");
  for (;;) {
    await Bun.spawn([...enter, ...argv], { stdio: ["ignore", log, log] }).exited;
    do await Bun.sleep(RESTART_PAUSE_MS); while (existsSync(stopFile(plan.name, name)));
  }
}
