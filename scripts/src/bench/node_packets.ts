/** What the rules of a node of `deploy/` cost a packet that it forwards, all of them and some. @module */
import { join } from "node:path";
import { type Ip, parseCidr, parseIp } from "../../../ffi/address.ts";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { ClusterRules } from "../../../cluster/network/cluster_rules.ts";
import { DEFAULT_CLUSTER_SETTINGS } from "../../../cluster/network/settings.ts";
import type { ClusterNode } from "../../../cluster/node.ts";
import { runShellInNetns } from "../../../testing/netns.ts";
import { hostLocal, type NetworkPlugin, PORTMAP } from "../harness/networks.ts";
import { datagramCost, openTrafficSink } from "../harness/traffic.ts";
import { interleave } from "./measure.ts";
import { addPeerHost } from "./packets.ts";
import { type BenchRow, row } from "./table.ts";
import { type BenchWorkspace, newContender } from "./workspace.ts";

const PORT = 5353;
const BURSTS = 60;
const FAMILIES = [4, 6] as const;
const PODS = ["10.66.0.0/16", "fd66::/64"] as const;
const POD: Readonly<Record<4 | 6, Ip>> = { 4: parseIp("10.66.0.2"), 6: parseIp("fd66::2") };
const OUTSIDE: Readonly<Record<4 | 6, Ip>> = { 4: parseIp("192.0.2.2"), 6: parseIp("2001:db8::2") };
/** Other nodes and their pods are not masqueraded. */
const SETTINGS = {
  ...DEFAULT_CLUSTER_SETTINGS,
  nonMasqueradeCidrs: [parseCidr("192.0.2.0/24"), parseCidr("2001:db8::/64")],
};

interface Rules {
  readonly plugins: readonly string[];
  readonly isClusterNode: boolean;
}

const ALL = ["network-policy", "portmap", "firewall"];
const SIDES: Readonly<Record<string, Rules>> = {
  all: { plugins: ALL, isClusterNode: true },
  none: { plugins: [], isClusterNode: false },
  "network-policy": { plugins: ["network-policy"], isClusterNode: false },
  firewall: { plugins: ["portmap", "firewall"], isClusterNode: false },
  "the part cluster": { plugins: [], isClusterNode: true },
};

const nodeOf = (uid: string, addresses: readonly string[], cidrs: readonly string[]): ClusterNode => ({
  uid,
  name: uid,
  createdAtMs: 0,
  addresses: addresses.map(parseIp),
  podCidrs: cidrs.map(parseCidr),
});

/** Packets of established flows, from a pod and to it. */
export function nodePacketRows(bench: BenchWorkspace): readonly BenchRow[] {
  const rounds = Math.max(5, bench.rounds);
  const sides = Object.entries(SIDES).map(([name, rules]) => [name, newSide(bench, name, rules)] as const);
  const samples = interleave(rounds, Object.fromEntries(sides));
  const ns = (side: string, way: string) => samples[`${side}.${way}`]!.map((us) => us * 1000);
  return Object.keys(SIDES).filter((name) => name !== "none").flatMap((name) =>
    FAMILIES.flatMap((family) =>
      ["to", "from"].map((way) =>
        row(`A packet ${way} a pod, IPv${family}, rules of ${name}`, "more", ns(name, `${way}${family}`), [
          "without",
          ns("none", `${way}${family}`),
        ], { unit: "ns" })
      )
    )
  );
}

function newSide(bench: BenchWorkspace, name: string, { plugins, isClusterNode }: Rules) {
  const host = bench.scope.use(createNetns());
  const pod = bench.scope.use(createNetns());
  const outside = addPeerHost(bench, host);
  runShellInNetns(
    outside,
    `ip route add ${PODS[0]} via 192.0.2.1; ip route add ${PODS[1]} via 2001:db8::1`,
  );
  // The kernel tracks connections on each side, and looks for translations, as it does for kube-proxy.
  runShellInNetns(
    host,
    "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
    "nft add table inet tracked",
    "nft add chain inet tracked forward '{ type filter hook forward priority 0; }'",
    "nft add rule inet tracked forward ct state established,related accept",
    "nft add chain inet tracked before '{ type nat hook prerouting priority -100; }'",
    "nft add chain inet tracked after '{ type nat hook postrouting priority 100; }'",
  );
  const ipam = { ...hostLocal(...PODS.map((subnet) => ({ subnet }))), dataDir: join(bench.state, `node-${name}`) };
  const network = {
    cniVersion: "1.0.0",
    name: `pods-${name.replaceAll(" ", "-")}`,
    plugins: [{ type: "ptp", ipam }, ...plugins.map((type) => pluginOf(bench, type))],
  };
  newContender(host, bench.run, network).add({
    id: `pod-${name.replaceAll(" ", "-")}`,
    netns: pod.path,
    portMappings: [],
  });
  if (isClusterNode) joinCluster(host);
  return () =>
    Object.fromEntries(FAMILIES.flatMap((family) => {
      const { to, from } = costs(outside, pod, family);
      return [[`to${family}`, to], [`from${family}`, from]];
    }));
}

function pluginOf({ state }: BenchWorkspace, type: string): NetworkPlugin {
  if (type === "portmap") return PORTMAP;
  return type === "network-policy" ? { type, dataDir: state, socketPath: join(state, "none"), waitMs: 50 } : { type };
}

function joinCluster(host: Netns): void {
  const peer = nodeOf("other", ["192.0.2.9", "2001:db8::9"], ["10.67.0.0/16", "fd67::/64"]);
  const rules = new ClusterRules(host.nft, SETTINGS, () => [peer]);
  rules.replace(nodeOf("own", ["192.0.2.1", "2001:db8::1"], PODS), []);
  rules.sync(true);
}

/** Medians in µs, of packets in bursts. */
function costs(outside: Netns, pod: Netns, family: 4 | 6): { readonly to: number; readonly from: number } {
  using inside = openTrafficSink(pod, family, { tcp: PORT, udp: PORT });
  using beyond = openTrafficSink(outside, family, { tcp: PORT, udp: PORT });
  return {
    to: outside.run(() => datagramCost({ address: POD[family], port: PORT }, BURSTS, inside)),
    from: pod.run(() => datagramCost({ address: OUTSIDE[family], port: PORT }, BURSTS, beyond)),
  };
}
