/**
 * Nodes of a cluster, each with mounts, processes and a server of its own, with a pod that the server's plugins have attached:
 *
 * ```
 * pod-a ── node a: eth0 198.51.100.11, 2001:db8:1::11 ──┐
 * pod-b ── node b: eth0 198.51.100.12, 2001:db8:1::12 ──┴ router 203.0.113.1, the API server
 * pod-c ── node c: eth0 198.18.0.13, 2001:db8:2::13 ────── router
 * ```
 *
 * @module
 */
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CONFINED } from "../server/confine.ts";
import { type Ip, ipOf, parseCidr } from "../ffi/address.ts";
import { type Netns, openNetns } from "../ffi/netns/netns.ts";
import { ApiServer, type ServedObject } from "./api_server.ts";
import { CNI_PROGRAM } from "./binary.ts";
import { newNetns, runShellInNetns, until, WITHOUT_BRIDGE_NETFILTER, WITHOUT_DAD } from "./netns.ts";
import { newTestNode, type TestNode } from "./node.ts";

const API_ADDRESS = "203.0.113.1";
const TOKEN = "the-first-token";
const ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount";
const LOG = "/run/serve.log";
const NETWORK = {
  cniVersion: "1.0.0",
  name: "pods",
  plugins: [
    { type: "ptp", ipam: { type: "host-local" } },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "bandwidth", capabilities: { bandwidth: true } },
    { type: "firewall" },
  ],
};

const SEGMENTS = [{ net4: "198.51.100", net6: "2001:db8:1:" }, { net4: "198.18.0", net6: "2001:db8:2:" }] as const;

export interface ServedNode {
  readonly name: string;
  readonly node: TestNode;
  readonly segment: (typeof SEGMENTS)[number];
  /** The last number of its addresses. */
  readonly number: number;
  readonly pod: Netns;
  readonly podAddresses: readonly Ip[];
  /** What the server has written. */
  log(): string;
  /** Of the server, or of one of its parts; `undefined` while there is none. */
  pidOf(what: "server" | "cluster"): number | undefined;
  kill(what: "server" | "cluster", signal?: "KILL" | "TERM"): Promise<void>;
  /** Kills the server and its part. @returns when both have ended */
  end(): Promise<void>;
  /** @returns once it listens */
  startServer(): Promise<void>;
  writeToken(token: string): void;
}

export interface ServedCluster extends Disposable {
  readonly api: ApiServer;
  readonly router: Netns;
  readonly nodes: readonly ServedNode[];
}

/** @param options further ones of the servers */
export async function newServedCluster(options = ""): Promise<ServedCluster> {
  using building = new DisposableStack();
  const router = building.use(newRouter());
  const nodes: { name: string; node: TestNode; segment: (typeof SEGMENTS)[number]; number: number }[] = [];
  for (const [i, name] of ["a", "b", "c"].entries()) {
    const node = building.use(await newTestNode({ isServed: false, hasOwnProcesses: true }));
    const served = { name, node, number: 11 + i, segment: SEGMENTS[name === "c" ? 1 : 0] };
    connectNode(router, served);
    nodes.push(served);
  }
  const { directory } = nodes[0]!.node;
  const objects = nodes.map(({ name, number, segment }) => nodeObject(name, uplinkAddresses(segment, number), number));
  const api = building.use(new ApiServer(router, { address: API_ADDRESS, directory, token: TOKEN, objects }));
  const started = await Promise.all(nodes.map((each) => startNode(each, api, options, building)));
  const owned = building.move();
  return { api, router, nodes: started, [Symbol.dispose]: () => owned.dispose() };
}

/** Node number 11 has ranges 10.244.11.0/24 and fd00:11::/64. */
export const nodeObject = (name: string, addresses: readonly string[], number: number): ServedObject => {
  const podCIDRs = [`10.244.${number}.0/24`, `fd00:${number}::/64`];
  const object = {
    apiVersion: "v1",
    kind: "Node" as const,
    metadata: { name },
    spec: { podCIDR: podCIDRs[0]!, podCIDRs },
    status: { addresses: addresses.map((address) => ({ type: "InternalIP", address })) },
  };
  return object;
};

export const uplinkAddresses = ({ net4, net6 }: (typeof SEGMENTS)[number], number: number): string[] => [
  `${net4}.${number}`,
  `${net6}:${number}`,
];

/** What an administrator gives a node's uplink, and what is lost when it goes down. */
export const addressLines = ({ net4, net6 }: (typeof SEGMENTS)[number], number: number): string[] => [
  `ip addr replace ${net4}.${number}/24 dev eth0; ip addr replace ${net6}:${number}/64 dev eth0 nodad`,
  `ip route replace default via ${net4}.1; ip route replace default via ${net6}:1`,
];

function newRouter(): Netns {
  using building = new DisposableStack();
  const router = building.use(newNetns());
  runShellInNetns(
    router,
    WITHOUT_DAD,
    WITHOUT_BRIDGE_NETFILTER,
    "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
    `ip link set lo up; ip addr add ${API_ADDRESS}/32 dev lo`,
    ...SEGMENTS.map(({ net4, net6 }, i) =>
      `ip link add br${i} type bridge; ip link set br${i} up
      ip addr add ${net4}.1/24 dev br${i}; ip addr add ${net6}:1/64 dev br${i} nodad`
    ),
  );
  building.move();
  return router;
}

type NewNode = Pick<ServedNode, "name" | "node" | "segment" | "number">;

function connectNode(router: Netns, { name, node, segment, number }: NewNode): void {
  runShellInNetns(
    node.host,
    WITHOUT_DAD,
    WITHOUT_BRIDGE_NETFILTER,
    `ip link add eth0 type veth peer name port-${name} netns ${router.path}; ip link set eth0 up`,
    ...addressLines(segment, number),
  );
  runShellInNetns(router, `ip link set port-${name} master br${SEGMENTS.indexOf(segment)} up`);
}

async function startNode(
  newNode: NewNode,
  api: ApiServer,
  options: string,
  resources: DisposableStack,
): Promise<ServedNode> {
  const { name, node } = newNode;
  const inMounts = (path: string) => join(node.processes, "..", path);
  node.run(CNI_PROGRAM, "install", "/opt/cni/bin");
  node.run("mkdir", "-p", ACCOUNT);
  const writeToken = (token: string) => writeFileSync(inMounts(`${ACCOUNT}/token`), token);
  writeToken(api.token);
  writeFileSync(inMounts(`${ACCOUNT}/ca.crt`), api.ca);
  writeFileSync(inMounts("/run/10-pods.conflist"), JSON.stringify(NETWORK));
  const words =
    `--replace --no-restore --cluster network --node ${name} --api-server ${api.url} --conflist /run/10-pods.conflist ${options}`;
  const log = () => readFileSync(inMounts(LOG), "utf8");
  const listenings = () => log().split("Listening").length;
  const pidOf = (what: "server" | "cluster") =>
    readdirSync(node.processes).filter((each) => /^\d+$/.test(each)).map(Number).find((pid) => {
      const command = commandOf(node, pid);
      return what === "server"
        ? pid === serverPid() && command.includes("serve")
        : command.includes("cluster") && command.includes(CONFINED);
    });
  const serverPid = () => Number(readFileSync(inMounts("/run/serve.pid"), "utf8"));
  const startServer = async () => {
    const before = listenings();
    const started = node.start(
      "sh",
      "-c",
      `echo $$ >/run/serve.pid; exec /opt/cni/bin/cni-full serve ${words} >>${LOG} 2>&1`,
    );
    await until(() => listenings() > before || started.exitCode !== null);
    if (started.exitCode !== null) throw new Error(`The server of node ${name} has ended: ${log()}`);
  };
  const kill = async (what: "server" | "cluster", signal = "KILL") => {
    const pid = pidOf(what);
    if (pid !== undefined) await node.start("busybox", "kill", `-${signal}`, `${pid}`).exited;
  };
  const end = async () => {
    await kill("server");
    await kill("cluster");
    await until(() => pidOf("server") === undefined && pidOf("cluster") === undefined);
  };
  writeFileSync(inMounts(LOG), "");
  await startServer();
  await until(() => readdirSync(node.networks).includes("10-pods.conflist"));
  node.run("ip", "netns", "add", "pod");
  const pod = resources.use(openNetns(inMounts("/run/netns/pod")));
  const result = JSON.parse(
    node.run("/opt/cni/bin/cni-full", "run", "add", "pods", "pod", "--container-id", "pod", "--json"),
  );
  const podAddresses = result.ips.map(({ address }: { address: string }) => ipOf(parseCidr(address)));
  return { ...newNode, pod, podAddresses, log, pidOf, kill, end, startServer, writeToken };
}

function commandOf({ processes }: TestNode, pid: number): string[] {
  try {
    return readFileSync(join(processes, `${pid}`, "cmdline"), "utf8").split("\0");
  } catch {
    // It has ended meanwhile.
    return [];
  }
}
