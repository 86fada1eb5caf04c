/** This program as the network of a cluster beside flannel, in two clusters with the same nodes. @module */
import { ipOf, parseCidr } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type { SocketEndpoint } from "../../../ffi/sys/inet_socket.ts";
import { ipShow } from "../../../testing/netns.ts";
import { privateBytes } from "../../../server/memory.ts";
import { markdownTable } from "../harness/markdown.ts";
import { processorMsOf } from "../harness/process_cost.ts";
import { median } from "../harness/statistics.ts";
import { connectionCost, datagramCost, openTrafficSink } from "../harness/traffic.ts";
import { clusterProcesses, readProc, runsProgram } from "./holder.ts";
import { AGNHOST_IMAGE, untilPodRuns } from "./pod_netns.ts";

/** Each is the name of its cluster. */
const PROGRAMS = ["cni", "flannel"] as const;
type Program = (typeof PROGRAMS)[number];

/** Where the pod is that node 1 sends to: on its segment, or behind the router. */
const WAYS = { direct: "node3", "by VXLAN": "node2" } as const;
const PORTS = { tcp: 7000, udp: 7001 };
const CONNECTIONS = 200;
const BURSTS = 100;

/** What runs a command in a cluster and gives its standard output. */
export type InCluster = (cluster: string, ...command: readonly string[]) => string;

export const comparedCluster = (program: Program): string => `compare-${program}`;
export const comparedNetworks: Readonly<Record<Program, string>> = { cni: "deploy", flannel: "flannel" };

/** Prints medians of runs that take turns, in clusters of three nodes on two segments. */
export async function compareNetworks(runs: number, inCluster: InCluster): Promise<void> {
  for (const program of PROGRAMS) {
    for (const node of ["node1", "node2", "node3"]) createPod(inCluster, comparedCluster(program), node, `pod-${node}`);
  }
  const times = new Map<string, Record<Program, number[]>>();
  const note = (what: string, program: Program, value: number): void => {
    const found = times.get(what) ?? { cni: [], flannel: [] };
    times.set(what, found);
    found[program].push(value);
  };
  for (let run = 0; run < runs; run++) {
    for (const program of run % 2 === 0 ? PROGRAMS : PROGRAMS.toReversed()) {
      const cluster = comparedCluster(program);
      for (const [way, node] of Object.entries(WAYS)) {
        using from = await untilPod(cluster, "pod-node1");
        using to = await untilPod(cluster, `pod-${node}`);
        for (const family of [4, 6] as const) {
          const costs = costsBetween(from, to, family);
          note(`a packet ${way}, IPv${family} (µs)`, program, costs.packet);
          note(`a connection ${way}, IPv${family} (µs)`, program, costs.connection);
        }
      }
      note("two new pods to the first packet (ms)", program, await firstPacketMs(inCluster, cluster, run));
    }
  }
  for (const program of PROGRAMS) for (const [what, value] of processFigures(program)) note(what, program, value);
  const rows = [...times].map(([what, { cni, flannel }]) => {
    const [ours, theirs] = [median(cni), median(flannel)];
    return [what, ours.toFixed(1), theirs.toFixed(1), (ours / theirs).toFixed(2)];
  });
  console.log(markdownTable([`medians of ${runs} runs`, "cni", "flannel", "ratio"], rows));
}

function createPod(inCluster: InCluster, cluster: string, node: string, name: string): void {
  const spec = { nodeName: node, terminationGracePeriodSeconds: 0 };
  const words = [
    "run",
    name,
    `--image=${AGNHOST_IMAGE}`,
    "--image-pull-policy=Never",
    `--overrides=${JSON.stringify({ spec })}`,
  ];
  inCluster(cluster, "kubectl", ...words, "--", "pause");
}

const untilPod = (cluster: string, name: string): Promise<Netns> => untilPodRuns(name, () => clusterProcesses(cluster));

function endpoint(pod: Netns, family: 4 | 6, port: number): SocketEndpoint {
  const [link] = ipShow(pod, "addr", "show", "dev", "eth0");
  const found = link.addr_info.find(({ family: name, scope }: { family: string; scope: string }) =>
    name === (family === 4 ? "inet" : "inet6") && scope === "global"
  );
  return { address: ipOf(parseCidr(`${found.local}/${found.prefixlen}`)), port };
}

function costsBetween(from: Netns, to: Netns, family: 4 | 6): { readonly packet: number; readonly connection: number } {
  using sink = openTrafficSink(to, family, PORTS);
  const [tcp, udp] = [endpoint(to, family, PORTS.tcp), endpoint(to, family, PORTS.udp)];
  return from.run(() => ({ packet: datagramCost(udp, BURSTS, sink), connection: connectionCost(tcp, CONNECTIONS) }));
}

/** From the request to the API to a connection between two pods that did not exist, on nodes behind a router. */
async function firstPacketMs(inCluster: InCluster, cluster: string, run: number): Promise<number> {
  const names = [`new-a${run}`, `new-b${run}`] as const;
  const started = performance.now();
  createPod(inCluster, cluster, "node1", names[0]);
  createPod(inCluster, cluster, "node2", names[1]);
  using from = await untilPod(cluster, names[0]);
  using to = await untilPod(cluster, names[1]);
  using _ = openTrafficSink(to, 4, PORTS);
  const server = endpoint(to, 4, PORTS.tcp);
  from.run(() => connectionCost(server, 1));
  const ms = performance.now() - started;
  inCluster(cluster, "kubectl", "delete", "pod", ...names, "--force", "--grace-period=0");
  return ms;
}

/** Of what runs on a node for the network between nodes, from its start on: medians over the nodes. */
function processFigures(program: Program): readonly (readonly [what: string, value: number])[] {
  const commands = clusterProcesses(comparedCluster(program)).map((pid) => ({
    pid,
    command: readProc(pid, "cmdline"),
  }));
  const isServer = (command: string): boolean => /^cni serve|cni\0serve\0/.test(command);
  const part = program === "cni"
    ? commands.filter(({ command }) => command.startsWith("cni serve: cluster"))
    : commands.filter(({ pid }) => runsProgram(pid, "flanneld"));
  const whole = program === "cni" ? commands.filter(({ command }) => isServer(command)) : part;
  const nodes = 3;
  const sum = (of: readonly { readonly pid: number }[], figure: (pid: number) => number) =>
    of.reduce((total, { pid }) => total + figure(pid), 0) / nodes;
  return [
    ["private memory for the way between nodes (MB)", sum(part, privateMegabytes)],
    ["private memory of all that serves (MB)", sum(whole, privateMegabytes)],
    ["processor time for the way between nodes (ms)", sum(part, processorMsOf)],
    ["processor time of all that serves (ms)", sum(whole, processorMsOf)],
  ];
}

const privateMegabytes = (pid: number): number => privateBytes(pid) / 2 ** 20;
