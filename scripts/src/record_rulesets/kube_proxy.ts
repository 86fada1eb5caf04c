/**
 * Writes the ruleset of a small cluster in the form in which kube-proxy leaves it, in both of its modes: `kube_proxy.ts DIRECTORY`.
 *
 * kube-proxy needs an API server, so it is not run. The form is that of Kubernetes 1.33, as its documentation and its tests show it: names of
 * chains, sets and maps, hooks, priorities, matches and the mark. The container of testing/connectivity.ts is the endpoint of one service.
 */
import { join } from "node:path";
import { writeFileSync } from "node:fs";

const directory = process.argv[2];
if (!directory) throw new Error("usage: kube_proxy.ts DIRECTORY");

interface Service {
  readonly name: string;
  readonly clusterIp: string;
  readonly nodePort?: number;
  /** None: connections are rejected. */
  readonly endpoint?: string;
}
interface Cluster {
  readonly family: "ip" | "ip6";
  readonly pods: string;
  readonly serviceAddresses: string;
  readonly node: string;
  readonly services: readonly Service[];
}

const clusterOf = (
  family: Cluster["family"],
  pods: string,
  serviceAddresses: string,
  node: string,
  [pod, elsewhere]: readonly [string, string],
): Cluster => {
  const prefix = serviceAddresses.replace(/0?\/.*/, "");
  return {
    family,
    pods,
    serviceAddresses,
    node,
    services: [
      { name: "default/web:http", clusterIp: `${prefix}10`, nodePort: 30080, endpoint: pod },
      { name: "default/elsewhere:http", clusterIp: `${prefix}11`, endpoint: elsewhere },
      { name: "default/empty:http", clusterIp: `${prefix}12` },
    ],
  };
};
const CLUSTERS = [
  clusterOf("ip", "10.1.0.0/16", "10.96.0.0/16", "192.0.2.1", ["10.1.0.2", "192.0.2.2"]),
  clusterOf("ip6", "fd01::/56", "fd96::/112", "2001:db8::1", ["fd01::2", "2001:db8::2"]),
];

/** A service with an endpoint. */
type Served = Service & { readonly endpoint: string };

const servedBy = ({ services }: Cluster): Served[] => services.flatMap((service) => isServed(service) ? [service] : []);
const isServed = (service: Service): service is Served => service.endpoint !== undefined;
const unserved = ({ services }: Cluster): Service[] => services.filter((service) => !isServed(service));

const socketOf = ({ family }: Cluster, address: string): string =>
  family === "ip" ? `${address}:80` : `[${address}]:80`;
const digest = (text: string, length: number): string =>
  new Bun.CryptoHasher("sha256").update(text).digest("hex").slice(0, length).toUpperCase();

const comment = (text: string): string => `-m comment --comment "${text}"`;
const chainLines = (names: readonly string[]): string[] => names.map((name) => `:KUBE-${name} - [0:0]`);
const NEW = "-m conntrack --ctstate NEW";

function iptablesFilter(cluster: Cluster): string[] {
  const portals = `${NEW} ${comment("kubernetes service portals")} -j KUBE-SERVICES`;
  const external = `${NEW} ${comment("kubernetes externally-visible service portals")} -j KUBE-EXTERNAL-SERVICES`;
  const balancer = `${NEW} ${comment("kubernetes load balancer firewall")} -j KUBE-PROXY-FIREWALL`;
  const localnet = `! -s 127.0.0.0/8 -d 127.0.0.0/8 ${comment("block incoming localnet connections")} ` +
    "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP";
  const ours = comment("kubernetes forwarding rules");
  return [
    ...chainLines([
      "EXTERNAL-SERVICES",
      "FIREWALL",
      "FORWARD",
      "NODEPORTS",
      "PROXY-CANARY",
      "PROXY-FIREWALL",
      "SERVICES",
    ]),
    `-A INPUT ${balancer}`,
    `-A INPUT ${comment("kubernetes health check service ports")} -j KUBE-NODEPORTS`,
    `-A INPUT ${external}`,
    "-A INPUT -j KUBE-FIREWALL",
    `-A FORWARD ${balancer}`,
    `-A FORWARD ${ours} -j KUBE-FORWARD`,
    `-A FORWARD ${portals}`,
    `-A FORWARD ${external}`,
    `-A OUTPUT ${balancer}`,
    `-A OUTPUT ${portals}`,
    "-A OUTPUT -j KUBE-FIREWALL",
    ...cluster.family === "ip" ? [`-A KUBE-FIREWALL ${localnet}`] : [],
    "-A KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP",
    `-A KUBE-FORWARD ${ours} -m mark --mark 0x4000/0x4000 -j ACCEPT`,
    `-A KUBE-FORWARD ${comment("kubernetes forwarding conntrack rule")} ` +
    "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
    ...unserved(cluster).map(({ name, clusterIp }) =>
      `-A KUBE-SERVICES -d ${clusterIp} -p tcp ${comment(`${name} has no endpoints`)} -m tcp --dport 80 -j REJECT`
    ),
  ];
}

/** The names of a service's chains end in hashes. */
const iptablesHashes = ({ name, endpoint }: Served) => ({
  hash: digest(name, 16),
  endpointHash: digest(name + endpoint, 16),
});

function iptablesNat(cluster: Cluster): string[] {
  const served = servedBy(cluster);
  return [
    ...chainLines(["MARK-MASQ", "NODEPORTS", "POSTROUTING", "PROXY-CANARY", "SERVICES"]),
    ...served.flatMap((service) => {
      const { hash, endpointHash } = iptablesHashes(service);
      const external = service.nodePort === undefined ? [] : [`EXT-${hash}`];
      return chainLines([...external, `SVC-${hash}`, `SEP-${endpointHash}`]);
    }),
    `-A PREROUTING ${comment("kubernetes service portals")} -j KUBE-SERVICES`,
    `-A OUTPUT ${comment("kubernetes service portals")} -j KUBE-SERVICES`,
    `-A POSTROUTING ${comment("kubernetes postrouting rules")} -j KUBE-POSTROUTING`,
    "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000",
    "-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN",
    "-A KUBE-POSTROUTING -j MARK --set-xmark 0x4000/0x0",
    `-A KUBE-POSTROUTING ${comment("kubernetes service traffic requiring SNAT")} -j MASQUERADE --random-fully`,
    ...served.flatMap((service) => iptablesService(cluster, service)),
    `-A KUBE-SERVICES ${comment("kubernetes service nodeports; NOTE: this must be the last rule in this chain")} ` +
    "-m addrtype --dst-type LOCAL -j KUBE-NODEPORTS",
  ];
}

function iptablesService(cluster: Cluster, service: Served): string[] {
  const { name, clusterIp, nodePort, endpoint } = service;
  const { hash, endpointHash } = iptablesHashes(service);
  const socket = socketOf(cluster, endpoint);
  const toService = `-d ${clusterIp} -p tcp ${comment(`${name} cluster IP`)} -m tcp --dport 80`;
  return [
    `-A KUBE-SERVICES ${toService} -j KUBE-SVC-${hash}`,
    `-A KUBE-SVC-${hash} ! -s ${cluster.pods} ${toService} -j KUBE-MARK-MASQ`,
    `-A KUBE-SVC-${hash} ${comment(`${name} -> ${socket}`)} -j KUBE-SEP-${endpointHash}`,
    `-A KUBE-SEP-${endpointHash} -s ${endpoint} ${comment(name)} -j KUBE-MARK-MASQ`,
    `-A KUBE-SEP-${endpointHash} -p tcp ${comment(name)} -m tcp -j DNAT --to-destination ${socket}`,
    ...nodePort === undefined ? [] : [
      `-A KUBE-NODEPORTS -p tcp ${comment(name)} -m tcp --dport ${nodePort} -j KUBE-EXT-${hash}`,
      `-A KUBE-EXT-${hash} ${comment(`masquerade traffic for ${name} external destinations`)} -j KUBE-MARK-MASQ`,
      `-A KUBE-EXT-${hash} -j KUBE-SVC-${hash}`,
    ],
  ];
}

const iptablesRuleset = (cluster: Cluster): string =>
  [
    "*mangle",
    ...chainLines(["PROXY-CANARY"]),
    "COMMIT",
    "*filter",
    ...iptablesFilter(cluster),
    "COMMIT",
    "*nat",
    ...iptablesNat(cluster),
    "COMMIT",
  ].join("\n");

const nftChain = (name: string, ...rules: readonly string[]): string =>
  `  chain ${name} {\n${rules.map((rule) => `    ${rule}\n`).join("")}  }`;

/** A set or a map. */
function nftSet(kind: "set" | "map", name: string, type: string, elements: readonly string[]): string {
  const list = elements.length > 0 ? `    elements = { ${elements.join(", ")} }\n` : "";
  return `  ${kind} ${name} {\n    type ${type}\n${list}  }`;
}

/** The names of a service's chains have a hash, the service, and of an endpoint its socket without colons. */
function nftChainNames({ name, endpoint }: Served) {
  const text = `${name.replace(":http", "")}/tcp/http`;
  return {
    service: `service-${digest(text, 8)}-${text}`,
    external: `external-${digest(text, 8)}-${text}`,
    endpoint: `endpoint-${digest(text + endpoint, 8)}-${text}__${endpoint.replaceAll(":", ".")}/80`,
  };
}

function nftService(cluster: Cluster, service: Served): string[] {
  const { family, pods } = cluster;
  const names = nftChainNames(service);
  const { clusterIp, endpoint, nodePort } = service;
  return [
    nftChain(
      names.endpoint,
      `${family} saddr ${endpoint} jump mark-for-masquerade`,
      `meta l4proto tcp dnat to ${socketOf(cluster, endpoint)}`,
    ),
    nftChain(
      names.service,
      `${family} daddr ${clusterIp} ${family} saddr != ${pods} jump mark-for-masquerade`,
      `numgen random mod 1 vmap { 0 : goto ${names.endpoint} }`,
    ),
    ...nodePort === undefined ? [] : [nftChain(names.external, "jump mark-for-masquerade", `goto ${names.service}`)],
  ];
}

function nftSets(cluster: Cluster): string[] {
  const address = cluster.family === "ip" ? "ipv4_addr" : "ipv6_addr";
  const destination = `${address} . inet_proto . inet_service : verdict`;
  const nodePort = "inet_proto . inet_service : verdict";
  const served = servedBy(cluster);
  return [
    nftSet("set", "cluster-ips", address, cluster.services.map(({ clusterIp }) => clusterIp)),
    nftSet("set", "nodeport-ips", address, [cluster.node]),
    nftSet("map", "firewall-ips", destination, []),
    nftSet("map", "no-endpoint-nodeports", nodePort, []),
    nftSet(
      "map",
      "no-endpoint-services",
      destination,
      unserved(cluster).map(({ clusterIp }) => `${clusterIp} . tcp . 80 : goto reject-chain`),
    ),
    nftSet(
      "map",
      "service-ips",
      destination,
      served.map((service) => `${service.clusterIp} . tcp . 80 : goto ${nftChainNames(service).service}`),
    ),
    nftSet(
      "map",
      "service-nodeports",
      nodePort,
      served.filter(({ nodePort }) => nodePort !== undefined)
        .map((service) => `tcp . ${service.nodePort} : goto ${nftChainNames(service).external}`),
    ),
  ];
}

/** The chains that the base chains jump to. */
function nftChecks({ family, serviceAddresses }: Cluster): string[] {
  const destination = `${family} daddr . meta l4proto . th dport`;
  const toNode = `${family} daddr @nodeport-ips meta l4proto . th dport`;
  return [
    nftChain(
      "cluster-ips-check",
      `${family} daddr @cluster-ips reject comment "Reject traffic to invalid ports of ClusterIPs"`,
      `${family} daddr { ${serviceAddresses} } drop comment "Drop traffic to unallocated ClusterIPs"`,
    ),
    nftChain("firewall-check", `${destination} vmap @firewall-ips`),
    nftChain("nodeport-endpoints-check", `${toNode} vmap @no-endpoint-nodeports`),
    nftChain("service-endpoints-check", `${destination} vmap @no-endpoint-services`),
    nftChain("services", `${destination} vmap @service-ips`, `${toNode} vmap @service-nodeports`),
    nftChain(
      "masquerading",
      "meta mark and 0x4000 == 0 return",
      "meta mark set meta mark xor 0x4000",
      "masquerade fully-random",
    ),
  ];
}

const BASE_CHAINS = ([
  ["filter-prerouting-pre-dnat", "filter", "prerouting", -110, ["firewall-check"]],
  ["filter-output-pre-dnat", "filter", "output", -110, ["firewall-check"]],
  ["filter-forward", "filter", "forward", 0, ["service-endpoints-check", "cluster-ips-check"]],
  ["filter-input", "filter", "input", 0, ["nodeport-endpoints-check", "service-endpoints-check"]],
  ["filter-output", "filter", "output", 0, ["service-endpoints-check", "cluster-ips-check"]],
  ["nat-prerouting", "nat", "prerouting", -100, ["services"]],
  ["nat-output", "nat", "output", -100, ["services"]],
  ["nat-postrouting", "nat", "postrouting", 100, ["masquerading"]],
] as const).map(([name, type, hook, priority, targets]) =>
  nftChain(
    name,
    `type ${type} hook ${hook} priority ${priority};`,
    ...targets.map((target) => type === "filter" ? `ct state new jump ${target}` : `jump ${target}`),
  )
);

const nftTable = (cluster: Cluster): string =>
  [
    `table ${cluster.family} kube-proxy {`,
    `  comment "rules for kube-proxy"`,
    nftChain("reject-chain", "reject"),
    nftChain("mark-for-masquerade", "meta mark set meta mark or 0x4000"),
    ...servedBy(cluster).flatMap((service) => nftService(cluster, service)),
    ...nftSets(cluster),
    ...nftChecks(cluster),
    ...BASE_CHAINS,
    "}",
  ].join("\n");

const HEADER = "# kube-proxy of Kubernetes 1.33 in its form; written by scripts/src/record_rulesets/kube_proxy.ts";
const write = (file: string, text: string) => writeFileSync(join(directory, file), `${HEADER}\n${text}\n`);
for (const cluster of CLUSTERS) {
  write(`kube-proxy-iptables.${cluster.family === "ip" ? "iptables" : "ip6tables"}`, iptablesRuleset(cluster));
}
write("kube-proxy-nftables.nft", CLUSTERS.map(nftTable).join("\n"));
