/**
 * Which source a policy sees of a client outside of the cluster, through node ports as kube-proxy makes them, and of a
 * pod whose node masquerades it.
 *
 * ```
 * client 198.51.100.2, 2001:db8:51::2 ── node b 192.0.2.2, 2001:db8::2 ── node a 192.0.2.1, 2001:db8::1 ── pod
 * ```
 */
import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { testWith } from "../../testing/binary.ts";
import { loadRecording } from "../../testing/connectivity.ts";
import { newNetns, runShellInNetns, until, WITHOUT_DAD } from "../../testing/netns.ts";
import { NODE_PROGRAMS } from "../../testing/node.ts";
import { NODE_PORT_POD, NODE_PORTS, PROXIED_NODES, PROXY_MODES, proxyRecording } from "../../testing/node_ports.ts";
import { newServedPolicy, POD_PORT, type ServedPod, type ServedPolicy } from "../../testing/served_policy.ts";
import {
  newUdpClient,
  NO_ANSWER_TIMEOUT_MS,
  requestTcp,
  requestUdp,
  serveUdp,
  type UdpClient,
} from "../../testing/traffic.ts";

const PROGRAMS = [...NODE_PROGRAMS, "openssl", "iptables-restore", "ip6tables-restore"];
const CLIENT: readonly [string, string] = ["198.51.100.2", "2001:db8:51::2"];
/** The address of the pod's node on the link to it. */
const POD_GATEWAY = ["10.244.7.1", "fd00:7::1"];
/** Of node b. */
const REMOTE_POD = ["10.244.8.2", "fd00:8::2"];

/** Whom the client asks. */
const WAYS = {
  local: { addresses: PROXIED_NODES.a, port: NODE_PORTS.Local },
  cluster: { addresses: PROXIED_NODES.a, port: NODE_PORTS.Cluster },
  otherNode: { addresses: PROXIED_NODES.b, port: NODE_PORTS.Cluster },
};
type Way = keyof typeof WAYS;
const WAY_NAMES = Object.keys(WAYS) as Way[];

interface NodePortSite {
  readonly policies: ServedPolicy;
  readonly client: Netns;
  readonly web: ServedPod;
}

async function newSite(resources: DisposableStack): Promise<NodePortSite> {
  const policies = resources.use(await newServedPolicy());
  const client = resources.use(newNetns());
  const { host: a, outside: b } = policies.node;
  const forward = "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding";
  for (const netns of [a, b, client]) runShellInNetns(netns, WITHOUT_DAD);
  runShellInNetns(
    a,
    forward,
    "ip addr add 2001:db8::1/64 dev up0 nodad",
    "for to in 198.51.100.0/24 10.244.8.0/24; do ip route add $to via 192.0.2.2; done",
    "for to in 2001:db8:51::/64 fd00:8::/64; do ip route add $to via 2001:db8::2; done",
  );
  runShellInNetns(
    b,
    forward,
    "ip addr add 2001:db8::2/64 dev eth0 nodad; ip route add fd00:7::/64 via 2001:db8::1",
    `ip link add to-client type veth peer name eth0 netns ${client.path}`,
    "ip addr add 198.51.100.1/24 dev to-client; ip addr add 2001:db8:51::1/64 dev to-client nodad",
    "ip link set to-client up",
    "ip route add 10.244.8.0/24 via 198.51.100.2; ip route add fd00:8::/64 via 2001:db8:51::2",
  );
  runShellInNetns(
    client,
    "ip link set lo up; ip addr add 198.51.100.2/24 dev eth0; ip addr add 2001:db8:51::2/64 dev eth0 nodad",
    "ip link set eth0 up; ip route add default via 198.51.100.1; ip route add default via 2001:db8:51::1",
    ...REMOTE_POD.map((ip) => `ip addr add ${ip} dev lo`),
  );
  policies.putNamespace("apps");
  policies.putNamespace("clients");
  await until(() => policies.status().isSynced);
  const web = await policies.addPod("apps", "web", { app: "web" });
  expect<readonly string[]>(web.ips).toEqual(NODE_PORT_POD);
  resources.use(await serveUdp(web.netns, "web", POD_PORT));
  return { policies, client, web };
}

type From = NonNullable<NonNullable<Parameters<ServedPolicy["putPolicy"]>[2]>["ingress"]>[number]["from"];

function allow({ policies }: NodePortSite, from: From): void {
  policies.putPolicy("apps", "web", {
    podSelector: { matchLabels: { app: "web" } },
    policyTypes: ["Ingress"],
    ingress: [{ from }],
  });
}

const blockOf = (ip: string) => `${ip}/${ip.includes(":") ? 128 : 32}`;
const blocks = (...ips: readonly string[]) => ips.map((ip) => ({ ipBlock: { cidr: blockOf(ip) } }));
const allBut = (ip: string) => ({ ipBlock: { cidr: ip.includes(":") ? "::/0" : "0.0.0.0/0", except: [blockOf(ip)] } });

/** By names of policies: their peers, and the ways that they leave open. Each is told from the one before. */
const POLICIES: readonly (readonly [name: string, from: From, open: readonly Way[]])[] = [
  ["the client", blocks(...CLIENT), ["local", "cluster"]],
  // Also with the address that the pod sees in the client's place.
  ["the pod's node", blocks(...PROXIED_NODES.a, ...POD_GATEWAY), []],
  ["the other node", blocks(...PROXIED_NODES.b), ["otherNode"]],
  ["somebody else", blocks("198.51.100.3", "2001:db8:51::3"), []],
  ["all but the client", [allBut(CLIENT[0]), allBut(CLIENT[1])], ["otherNode"]],
  ["all pods", [{ namespaceSelector: {} }], []],
  ["the client and the other node", blocks(...CLIENT, ...PROXIED_NODES.b), WAY_NAMES],
];

/** On each way, what the pod answers: to new connections of both protocols, and to one that goes on all the time. */
type Answers = Readonly<Record<Way, readonly (string | undefined)[]>>;

/** @param open are waited for until they answer */
type Ask = (open: readonly Way[]) => Promise<Answers>;

const anyAddress = (ip: string) => ip.includes(":") ? "::" : "0.0.0.0";

async function newAsk({ client }: NodePortSite, resources: DisposableStack): Promise<Ask> {
  const targets: { way: Way; ip: string; port: number; old: UdpClient }[] = [];
  for (const way of WAY_NAMES) {
    for (const ip of WAYS[way].addresses) {
      const old = resources.use(await newUdpClient(client, anyAddress(ip)));
      targets.push({ way, ip, port: WAYS[way].port, old });
    }
  }
  return async (open) => {
    const answers = await Promise.all(targets.map(({ way, ip, port, old }) => {
      const patience = open.includes(way) ? undefined : NO_ANSWER_TIMEOUT_MS;
      return Promise.all([
        requestTcp(client, ip, port, patience),
        requestUdp(client, ip, port, patience),
        old.request(ip, port, patience),
      ]);
    }));
    const answersOf = (way: Way) => answers.filter((_, i) => targets[i]!.way === way).flat();
    return { local: answersOf("local"), cluster: answersOf("cluster"), otherNode: answersOf("otherNode") };
  };
}

/** The pod answers with the address that it sees. */
const SEEN_BY_POD = {
  local: CLIENT,
  cluster: POD_GATEWAY,
  otherNode: PROXIED_NODES.b,
};

const expectedAnswers = (open: readonly Way[]): Answers => {
  const of = (way: Way) =>
    SEEN_BY_POD[way].flatMap((ip) => Array.from({ length: 3 }, () => open.includes(way) ? `web ${ip}` : undefined));
  return { local: of("local"), cluster: of("cluster"), otherNode: of("otherNode") };
};

for (const mode of PROXY_MODES) {
  testWith(
    PROGRAMS,
    `${mode}: an ipBlock sees the client on the pod's node, and another node in its place`,
    async () => {
      using resources = new DisposableStack();
      const site = await newSite(resources);
      const { host, outside } = site.policies.node;
      loadRecording(host, proxyRecording("a", mode));
      loadRecording(outside, proxyRecording("b", mode));
      const ask = await newAsk(site, resources);
      expect(await ask(WAY_NAMES)).toEqual(expectedAnswers(WAY_NAMES));
      for (const [name, from, open] of POLICIES) {
        const expected = expectedAnswers(open);
        allow(site, from);
        await until(async () => Bun.deepEquals(await ask([]), expected));
        expect({ name, ...await ask(open) }).toEqual({ name, ...expected });
      }
    },
    120_000,
  );
}

testWith(
  PROGRAMS,
  "a node that masquerades its pods hides them from selectors, and shows its own address",
  async () => {
    using resources = new DisposableStack();
    const site = await newSite(resources);
    const { policies, client, web } = site;
    const podIPs = REMOTE_POD.map((ip) => ({ ip }));
    policies.putPod("clients", "remote", { role: "client" }, { spec: { nodeName: "b" }, status: { podIPs } });
    /** From a new socket of each family. */
    const ask = async (patienceMs?: number) =>
      await Promise.all(REMOTE_POD.map(async (ip, i) => {
        using udp = await newUdpClient(client, ip);
        return await udp.request(web.ips[i]!, POD_PORT, patienceMs);
      }));
    const becomes = async (answers: readonly (string | undefined)[]) => {
      await until(async () => Bun.deepEquals(await ask(NO_ANSWER_TIMEOUT_MS), answers));
      expect(await ask(answers.includes(undefined) ? NO_ANSWER_TIMEOUT_MS : undefined)).toEqual([...answers]);
    };
    const hidden = [undefined, undefined];
    allow(site, [{ namespaceSelector: {}, podSelector: { matchLabels: { role: "client" } } }]);
    await until(() => policies.status().isolatedPods === 1);
    await becomes(REMOTE_POD.map((ip) => `web ${ip}`));
    runShellInNetns(
      policies.node.outside,
      "nft add table inet ranges",
      "nft add chain inet ranges postrouting '{ type nat hook postrouting priority srcnat; }'",
      "nft add rule inet ranges postrouting oifname eth0 ip saddr 10.244.8.0/24 masquerade",
      "nft add rule inet ranges postrouting oifname eth0 ip6 saddr fd00:8::/64 masquerade",
    );
    await becomes(hidden);
    allow(site, blocks(...PROXIED_NODES.b));
    await becomes(PROXIED_NODES.b.map((ip) => `web ${ip}`));
    allow(site, blocks(...REMOTE_POD));
    await becomes(hidden);
  },
  120_000,
);
