/**
 * Nodes of a cluster on one or two segments, each with a pod, and a router that is also the world outside:
 *
 * ```
 * pod 10.244.1.5, fd00:1::5 ── node a: eth0 192.0.2.11, 2001:db8:1::11 ──┐
 * pod 10.244.2.5, fd00:2::5 ── node b: eth0 192.0.2.12, 2001:db8:1::12 ──┴ router 192.0.2.1 ── outside 203.0.113.1
 * pod 10.244.3.5, fd00:3::5 ── node c: the same, or on segment 2: 198.51.100.13, 2001:db8:2::13 ── router
 * ```
 *
 * Pods are attached as ptp does: by a route of their own. The router knows no pods.
 *
 * @module
 */
import { parseCidr, parseIp } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import type { ClusterNode } from "../cluster/node.ts";
import { ClusterNetwork } from "../cluster/network/cluster_network.ts";
import { type ClusterSettings, DEFAULT_CLUSTER_SETTINGS } from "../cluster/network/settings.ts";
import { newNetns, runShellInNetns, WITHOUT_BRIDGE_NETFILTER, WITHOUT_DAD } from "./netns.ts";
import { serveTcpAndUdp } from "./traffic.ts";

export interface SiteNode {
  readonly node: ClusterNode;
  readonly netns: Netns;
  /** Answers with its name, such as `pod-a`. */
  readonly pod: Netns;
  readonly network: ClusterNetwork;
  /** What the network has logged. */
  readonly logged: readonly string[];
  /** Calls it in the node's namespace, as the server does. */
  run<T>(call: (network: ClusterNetwork) => T): T;
}

export interface ClusterSite extends Disposable {
  readonly router: Netns;
  readonly nodes: readonly SiteNode[];
}

export interface SiteOptions {
  readonly segments?: 1 | 2;
  readonly settings?: Partial<ClusterSettings>;
  readonly families?: readonly (4 | 6)[];
  /** Nodes have addresses of these families; by default, of those of pods. */
  readonly underlay?: readonly (4 | 6)[];
  readonly rpFilter?: 0 | 1 | 2;
  /** On `lo`, as in routed racks: eth0 has none beside, and all ways lead over the router. */
  readonly addressesOn?: "eth0" | "lo";
}

const SEGMENTS = {
  1: { net4: "192.0.2", net6: "2001:db8:1:" },
  2: { net4: "198.51.100", net6: "2001:db8:2:" },
};

const FORWARDING = "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding";

/** Nodes a, b and c that know each other; the network of each is up. */
export async function newClusterSite(options: SiteOptions = {}): Promise<ClusterSite> {
  const { segments = 1, families = [4, 6], underlay = families, rpFilter = 0, addressesOn = "eth0" } = options;
  using building = new DisposableStack();
  const router = building.use(newNetns());
  runShellInNetns(
    router,
    WITHOUT_DAD,
    WITHOUT_BRIDGE_NETFILTER,
    FORWARDING,
    "ip link set lo up; ip addr add 203.0.113.1/32 dev lo; ip addr add 2001:db8:ff::1/128 dev lo",
    ...([1, 2] as const).map((number) => {
      const { net4, net6 } = SEGMENTS[number];
      return `ip link add br${number} type bridge; ip link set br${number} up
        ip addr add ${net4}.1/24 dev br${number}; ip addr add ${net6}:1/64 dev br${number} nodad`;
    }),
  );
  building.use(await serveTcpAndUdp(router, "outside"));
  const nodes: SiteNode[] = [];
  for (const [i, name] of ["a", "b", "c"].entries()) {
    const segment = segments === 2 && name === "c" ? 2 : 1;
    const { net4, net6 } = SEGMENTS[segment];
    const number = i + 1;
    const netns = building.use(newNetns());
    const pod = building.use(newNetns());
    runShellInNetns(
      netns,
      WITHOUT_DAD,
      WITHOUT_BRIDGE_NETFILTER,
      FORWARDING,
      `for each in all default; do echo ${rpFilter} >/proc/sys/net/ipv4/conf/$each/rp_filter; done`,
      `ip link set lo up; ip link add eth0 type veth peer name port-${name} netns ${router.path}; ip link set eth0 up`,
    );
    runShellInNetns(router, `ip link set port-${name} master br${segment} up`);
    for (const family of underlay) {
      const ip = family === 4 ? `${net4}.1${number}` : `${net6}:1${number}`;
      if (addressesOn === "lo") addRoutedAddress(router, netns, { ip, segment, number, family });
      else addLinkAddress(netns, ip, family === 4 ? `${net4}.1` : `${net6}:1`);
    }
    attachPod(netns, pod, number, families);
    building.use(await serveTcpAndUdp(pod, `pod-${name}`));
    const node: ClusterNode = {
      uid: `uid-${name}`,
      name,
      createdAtMs: number,
      addresses: underlay.map((family) => parseIp(family === 4 ? `${net4}.1${number}` : `${net6}:1${number}`)),
      podCidrs: families.map((family) => parseCidr(family === 4 ? `10.244.${number}.0/24` : `fd00:${number}::/64`)),
    };
    const logged: string[] = [];
    const settings = { ...DEFAULT_CLUSTER_SETTINGS, ...options.settings };
    const log = (message: string) => void logged.push(message);
    const network = building.use(netns.run<ClusterNetwork>(() => new ClusterNetwork({ settings, log })));
    nodes.push({ node, netns, pod, network, logged, run: (call) => netns.run(() => call(network) as never) });
  }
  for (const { node, run } of nodes) {
    run((network) => network.replace(node, peersOf(nodes, node.uid), []));
  }
  const resources = building.move();
  return { router, nodes, [Symbol.dispose]: () => resources.dispose() };
}

function addLinkAddress(node: Netns, ip: string, gateway: string): void {
  const [length, dad] = ip.includes(":") ? ["64", "nodad"] : ["24", ""];
  runShellInNetns(node, `ip addr add ${ip}/${length} dev eth0 ${dad}; ip route add default via ${gateway}`);
}

interface RoutedAddress {
  readonly ip: string;
  readonly segment: 1 | 2;
  readonly number: number;
  readonly family: 4 | 6;
}

/** As a routing daemon does by which each node tells its router of the address. */
function addRoutedAddress(router: Netns, node: Netns, { ip, segment, number, family }: RoutedAddress): void {
  const [own, gateway] = family === 4 ? [ip, `${SEGMENTS[segment].net4}.1`] : [`fe80::1${number}`, "fe80::1"];
  const [length, dad] = family === 4 ? [32, ""] : [128, "nodad"];
  runShellInNetns(
    node,
    `ip addr add ${ip}/${length} dev lo ${dad}`,
    ...family === 6 ? [`ip addr add ${own}/64 dev eth0 nodad`] : [],
    `ip -${family} route add default via ${gateway} dev eth0 onlink src ${ip}`,
  );
  runShellInNetns(
    router,
    ...family === 6 ? [`ip addr replace ${gateway}/64 dev br${segment} nodad`] : [],
    `ip route add ${ip}/${length} ${family === 6 ? `via ${own} ` : ""}dev br${segment}`,
  );
}

export const peersOf = (nodes: readonly SiteNode[], uid: string): ClusterNode[] =>
  nodes.map(({ node }) => node).filter((node) => node.uid !== uid);

function attachPod(node: Netns, pod: Netns, number: number, families: readonly (4 | 6)[]): void {
  const of = (family: 4 | 6, host: number) => family === 4 ? `10.244.${number}.${host}` : `fd00:${number}::${host}`;
  const bits = { 4: "32", 6: "128" };
  const dad = { 4: "", 6: "nodad" };
  runShellInNetns(
    node,
    `ip link add pod type veth peer name eth0 netns ${pod.path}; ip link set pod up`,
    ...families.map((family) =>
      `ip addr add ${of(family, 1)}/${bits[family]} dev pod ${dad[family]}; ip route add ${of(family, 5)} dev pod`
    ),
  );
  runShellInNetns(
    pod,
    WITHOUT_DAD,
    "ip link set lo up; ip link set eth0 up",
    ...families.map((family) =>
      `ip addr add ${of(family, 5)}/${bits[family]} dev eth0 ${dad[family]}
      ip route add ${of(family, 1)} dev eth0; ip route add default via ${of(family, 1)} dev eth0`
    ),
  );
}

export const podAddresses = ({ node }: SiteNode): string[] =>
  node.podCidrs.map((cidr) => cidr.replace(/\.0\/24$/, ".5").replace(/::\/64$/, "::5"));
