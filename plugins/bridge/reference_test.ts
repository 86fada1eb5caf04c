/**
 * The same requests to the reference plugins and to the compiled binary: what they answer, what they leave in the kernel, and whether
 * either goes on where the other stopped.
 *
 * @module
 */
import { expect } from "bun:test";
import { runInNetns } from "../../testing/netns.ts";
import {
  type ComparedRequest,
  compareImplementations,
  configRequests,
  defaultRoutes,
  dnsConfig,
  dualStackIpam,
  dualStackIpamWithDns,
  envRequests,
  hostLocalIpam,
  hostLocalRanges,
  ipamRequests,
  ipv4Ipam,
  leftBehind,
  rangeWithGateway,
  testRequests,
} from "../../testing/reference_requests.ts";
import {
  comparisonTest,
  listDifferences,
  newComparisonHost,
  ourPlugins,
  referencePlugins,
} from "../../testing/reference_host.ts";
import { BOTH_ORDERS, testCheckAndRemoval, testRemovalWithoutNetns } from "../../testing/reference_removal.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { sampleOf } from "../../testing/sample.ts";

const routes = [{ dst: "192.0.2.0/24" }, { dst: "198.51.100.0/24", gw: "10.1.0.9" }, { dst: "2001:db8::/32" }];
const byOther = [{ dst: "0.0.0.0/0", gw: "10.1.0.7" }];
const BRIDGE = "link add cni0 up type bridge";

/** A dual-stack network of which the host is the gateway. */
const gateway = (more: object = {}) => ({ isGateway: true, ipam: dualStackIpam, ...more });
const isDefault = (more: object = {}) => ({ isDefaultGateway: true, ipam: dualStackIpam, ...more });
const CASES: Record<string, ComparedRequest> = {
  "no ipam": { config: {} },
  "no ipam; MTU, dns": { config: { mtu: 1400, dns: dnsConfig } },
  "addresses only": { config: { ipam: dualStackIpam } },
  "gateway": { config: gateway() },
  "default gateway, MTU": { config: isDefault({ mtu: 1400 }) },
  "IPv4 only": { config: isDefault({ ipam: ipv4Ipam }) },
  "routes": { config: gateway({ ipam: { ...dualStackIpam, routes: [...routes, ...defaultRoutes] } }) },
  "routes by a gateway elsewhere": { config: { ipam: { ...dualStackIpam, routes: [...routes, ...defaultRoutes] } } },
  "default route of ipam before ours": { config: isDefault({ ipam: { ...dualStackIpam, routes: byOther } }) },
  "gateway named by ipam": { config: gateway({ ipam: hostLocalIpam({ ranges: [rangeWithGateway] }) }) },
  "several ranges": { config: { ipam: hostLocalRanges("10.1.0.0/24", "10.2.0.0/24", "fd00:2::/64") } },
  "several IPv6 ranges": { config: isDefault({ ipam: hostLocalRanges("10.1.0.0/24", "fd00:1::/64", "fd00:2::/64") }) },
  "hairpin": { config: gateway({ hairpinMode: true }) },
  "promisc": { config: gateway({ promiscMode: true }) },
  "isolation": { config: gateway({ portIsolation: true }) },
  "masquerade, spoof check": { config: gateway({ ipMasq: true, macspoofchk: true }) },
  "MAC by CNI_ARGS": { config: gateway(), env: { CNI_ARGS: "IgnoreUnknown=1;K8S=x;MAC=0a:00:00:00:00:01" } },
  "MAC by args.cni": {
    config: gateway({ args: { cni: { mac: "0A:00:00:00:00:02" } } }),
    env: { CNI_ARGS: "MAC=0a:00:00:00:00:01;IgnoreUnknown=1" },
  },
  "MAC by runtimeConfig": {
    config: gateway({ args: { cni: { mac: "0a:00:00:00:00:02" } }, runtimeConfig: { mac: "0a-00-00-00-00-03" } }),
  },
  "addresses by runtimeConfig": { config: gateway({ runtimeConfig: { ips: ["10.1.0.77/24", "fd00:1::77"] } }) },
  "address by CNI_ARGS": { config: gateway(), env: { CNI_ARGS: "IgnoreUnknown=1;IP=10.1.0.78" } },
  "dns": { config: gateway({ dns: dnsConfig }) },
  "dns of ipam": { config: gateway({ ipam: dualStackIpamWithDns }) },
  "dns of both": { config: gateway({ dns: { domain: "c.example" }, ipam: dualStackIpamWithDns }) },
  "empty list in dns": { config: gateway({ dns: { nameservers: [] }, ipam: dualStackIpamWithDns }) },
  "upper case, null": { config: { ISGATEWAY: true, Bridge: null, MTU: 1300, IPAM: dualStackIpam, promiscMode: null } },
  "a bridge that exists": { config: gateway({ mtu: 1400 }), host: ["link add cni0 type bridge"] },
  "a bridge with the address": { config: gateway(), host: [BRIDGE, "addr add 10.1.0.1/24 dev cni0"] },
  "force": {
    config: gateway({ forceAddress: true }),
    host: [BRIDGE, "addr add 10.9.0.1/24 dev cni0", "addr add fd00:1::9/60 dev cni0"],
  },
  ...Object.fromEntries(["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0"].flatMap((cniVersion) => [
    [`version ${cniVersion}`, {
      config: isDefault({ cniVersion, dns: dnsConfig, ipam: { ...dualStackIpam, routes } }),
    }],
    [`version ${cniVersion}, little`, { config: gateway({ cniVersion, ipam: hostLocalRanges("fd00:2::/64") }) }],
  ])),
  "version 0.3.1, no ipam": { config: { cniVersion: "0.3.1" } },
};

/** A bridge of the reference takes its port's MAC address until it has an IP address; ours keeps the one it was born with. */
const MAC_OF_BRIDGE = [
  'added.answer.interfaces.1.mac: "MAC of cni0" | "MAC of PORT"',
  'added.host.links.2.address: "MAC of cni0" | "MAC of PORT"',
];
/** As `path: theirs | ours`. */
const DIFFERENCES: Record<string, readonly string[]> = {
  "no ipam": MAC_OF_BRIDGE,
  "no ipam; MTU, dns": MAC_OF_BRIDGE,
  "addresses only": MAC_OF_BRIDGE,
  "routes by a gateway elsewhere": MAC_OF_BRIDGE,
  "several ranges": MAC_OF_BRIDGE,
  "version 0.3.1, no ipam": MAC_OF_BRIDGE,
  // In a container without IPv6 addresses we leave IPv6 as it is.
  "IPv4 only": ['added.container.sysctls.ipv6/conf/eth0/accept_dad: "0" | "1"'],
  "gateway named by ipam": ['added.container.sysctls.ipv6/conf/eth0/accept_dad: "0" | "1"'],
  // Later releases of the reference know it, too.
  "isolation": ["added.host.links.2.linkinfo.info_slave_data.isolated: false | true"],
  // Later releases keep it, too.
  "dns of ipam": [
    'added.answer.dns: undefined | {"nameservers":["192.0.2.53"],"search":["one.example"],"options":["edns0"]}',
  ],
};

for (const [name, request] of sampleOf(Object.entries(CASES))) {
  comparisonTest(`same answer and state: ${name}`, () => {
    const [reference, own] = compareImplementations("bridge", request);
    expect(listDifferences(reference, own)).toEqual([...DIFFERENCES[name] ?? []]);
  });
}

const dels = (...all: ComparedRequest[]) => all.map((each): ComparedRequest => ({ verb: "DEL", ...each }));
const oneAddress = { subnet: "10.1.0.0/24", gateway: "10.1.0.50", rangeStart: "10.1.0.50", rangeEnd: "10.1.0.50" };
const farGateway = hostLocalIpam({ subnet: "10.1.0.0/24", gateway: "10.7.0.1" });
const OWN_NETNS = { CNI_NETNS: "/proc/self/ns/net" };

const REFUSED: ComparedRequest[] = [
  ...configRequests({ name: undefined }, { name: "" }, { name: "a b" }, { name: 7 }),
  ...configRequests({ cniVersion: "2.0.0" }, { cniVersion: 1 }, { cniVersion: null }, { cniVersion: "0.2.0" }),
  ...configRequests({ hairpinMode: true, promiscMode: true }, { vlan: 5000 }, { vlan: -1 }, { args: 7 }),
  ...configRequests({ mtu: "1500" }, { mtu: 1.5 }, { mtu: 67 }, { mtu: 70000 }, { isGateway: "yes" }, { isGateway: 1 }),
  ...["", "a234567890123456", "a/b", ".", "a b", "all", "br%d", 7].flatMap((bridge) => configRequests({ bridge })),
  ...["x", "01:00:5e:00:00:01", "00:00:00:00:00:00:00:01", "00:00:00:00:00:00", 7].flatMap((mac) =>
    configRequests({ runtimeConfig: { mac } })
  ),
  ...ipamRequests({ type: "absent" }, { type: "../cni/host-local" }, "host-local", []),
  ...ipamRequests({ ...ipv4Ipam, routes: [{ dst: "192.0.2.0/24", gw: "172.16.0.1" }] }, {
    ...ipv4Ipam,
    routes: [{ dst: "x" }],
  }),
  ...configRequests(gateway({ ipam: hostLocalIpam(oneAddress) }), isDefault({ ipam: farGateway })),
  ...configRequests({ dns: "x" }, { dns: { nameservers: "x" } }, { prevResult: "x" }),
  ...envRequests("CNI_ARGS", {}, "FOO=bar", "a", "a=b=c;IgnoreUnknown=1", "MAC=x", "mac=0a:00:00:00:00:01", ";", " "),
  ...envRequests("CNI_ARGS", {}, "IgnoreUnknown=yes"),
  ...envRequests("CNI_CONTAINERID", {}, null, "", "a/b"),
  ...envRequests("CNI_IFNAME", {}, null, "", "a234567890123456", "a/b", "a:b", "..", "lo", "eth%d"),
  ...envRequests("CNI_NETNS", {}, null, "", "/nonexistent/x", "/etc/passwd", "/proc/self/status", "/proc/self/ns/mnt"),
  ...envRequests("CNI_COMMAND", {}, "FOO", "add"),
  { host: ["link add cni0 type veth peer name other"] },
  { config: gateway(), host: [BRIDGE, "addr add 10.9.0.1/24 dev cni0"] },
  { config: gateway(), host: [BRIDGE, "addr add fd00:1::9/48 dev cni0"] },
  { config: { ipam: dualStackIpam }, container: ["link add eth0 type bridge"] },
  ...dels({ config: { ipam: { type: "absent" } } }),
  ...dels({ env: { CNI_CONTAINERID: null } }, { env: { CNI_IFNAME: null } }),
  { verb: "CHECK", config: { ipam: ipv4Ipam } },
  { verb: "CHECK", config: { ipam: ipv4Ipam, prevResult: { cniVersion: "1.0.0" } } },
  { verb: "CHECK", config: { ipam: ipv4Ipam, cniVersion: "0.3.1" } },
];

const ACCEPTED: ComparedRequest[] = [
  ...ipamRequests({}, null, { type: "" }, { ...ipv4Ipam, routes: [{ dst: "2001:db8::/32" }] }),
  ...configRequests({ runtimeConfig: null, args: null, prevResult: null, dns: null }, { ipam: farGateway }),
  ...configRequests({ runtimeConfig: { mac: "" } }, { runtimeConfig: { mac: "0a00.0000.0009" } }),
  ...configRequests({ prevResult: { cniVersion: "1.0.0", interfaces: [], ips: [] } }, {
    prevResult: { cniVersion: "0.4.0" },
  }),
  ...envRequests("CNI_ARGS", {}, "", "MAC=", "IgnoreUnknown=1;FOO=1", "FOO=;IgnoreUnknown=TRUE"),
  ...envRequests("CNI_IFNAME", {}, "a23456789012345", "éé"),
  ...envRequests("CNI_COMMAND", {}, "VERSION", null, ""),
  { env: { ...OWN_NETNS, CNI_NETNS_OVERRIDE: "1" } },
  { config: { ipam: dualStackIpam }, host: [BRIDGE, "addr add 10.9.0.1/24 dev cni0"] },
  { config: gateway(), host: [BRIDGE, "addr add fd00:9::9/64 dev cni0"] },
  { config: gateway(), container: ["link add other type bridge", "addr add 10.1.0.2/24 dev other"] },
  ...dels({}, { config: { ipam: dualStackIpam } }, { config: { hairpinMode: true, promiscMode: true } }),
  ...dels({ config: { ipam: dualStackIpam }, env: { CNI_NETNS: "/nonexistent/x" } }, { env: { CNI_NETNS: null } }),
  ...dels({ config: { prevResult: { cniVersion: "9.0.0" } } }, { env: OWN_NETNS }),
];

const ONLY_OURS: ComparedRequest[] = [
  // Newer than Debian's release.
  ...configRequests({ cniVersion: "1.1.0" }),
  // Our plugins are built in.
  ...envRequests("CNI_PATH", {}, null),
  { config: { ipam: ipv4Ipam }, env: { CNI_PATH: "/nonexistent" } },
  // One address of the host is not in the way of another that the same request asks for.
  ...configRequests(gateway({ ipam: hostLocalRanges("10.1.0.0/24", "10.2.0.0/24") })),
  // A route that comes twice is added once, and its destination is the network whatever the bits behind the prefix are.
  ...configRequests(isDefault({ ipam: { ...ipv4Ipam, routes: [{ dst: "0.0.0.0/0" }] } })),
  ...ipamRequests({ ...ipv4Ipam, routes: [routes[0], routes[0]] }, { ...ipv4Ipam, routes: [{ dst: "192.0.2.1/24" }] }),
  // What is wrong with the request must not keep a container from being removed.
  ...dels({ env: { CNI_NETNS: "/etc/passwd" } }, { env: { CNI_ARGS: "K8S=x" } }, { env: { CNI_ARGS: "x" } }),
  ...dels({ config: { prevResult: "x" } }, { config: { ipam: hostLocalIpam({ subnet: "x" }) } }),
  ...dels({ config: { vlan: 5000 } }, { config: { mtu: "x" } }),
];

const ONLY_THEIRS: ComparedRequest[] = [
  // Taken for 0 by the reference.
  ...configRequests({ mtu: -1 }),
  // Later releases refuse it, once they have done it.
  { env: OWN_NETNS },
  // The host cannot be a gateway outside the subnet: the container does not reach it.
  ...configRequests(gateway({ ipam: farGateway })),
  // The reference looks at it in CHECK only.
  ...configRequests({ prevResult: { ips: 7 } }, { prevResult: { cniVersion: "9.0.0" } }),
];

testRequests(
  comparisonTest,
  "bridge",
  { refused: REFUSED, accepted: ACCEPTED, onlyOurs: ONLY_OURS, onlyTheirs: ONLY_THEIRS },
  // For the others.
  "cni0",
);

const FULL = isDefault({ mtu: 1400, ipam: { ...dualStackIpam, routes: [{ dst: "198.51.100.0/24", gw: "10.1.0.9" }] } });
const GONE = { links: { host: ["cni0", "lo"], container: ["lo"] }, reserved: [] };

const SHARED = { type: "bridge", config: FULL, left: GONE };

testCheckAndRemoval(comparisonTest, SHARED, [
  { place: "container", change: "addr del fd00:1::2/64 dev eth0", back: "addr add fd00:1::2/64 dev eth0 nodad" },
  { place: "container", change: "route del 198.51.100.0/24", back: "route add 198.51.100.0/24 via 10.1.0.9" },
  { place: "container", change: "route del default", back: "route add default via 10.1.0.1" },
  { place: "container", change: "link set eth0 address 0a:00:00:00:00:66", back: "link set eth0 address $MAC" },
  { place: "host", change: "link set $PORT nomaster", back: "link set $PORT master cni0" },
  { place: "host", change: "link set $PORT down", back: "link set $PORT up", isMissedByThem: true },
  {
    place: "host",
    change: "addr del 10.1.0.1/24 dev cni0",
    back: "addr add 10.1.0.1/24 dev cni0",
    isMissedByThem: true,
  },
]);
testRemovalWithoutNetns(comparisonTest, SHARED);

for (const [first, second] of BOTH_ORDERS) {
  comparisonTest(
    `${first.name} delegates to host-local of ${second.name}, and ${second.name} the other way round`,
    () => {
      using world = newComparisonHost();
      const prevResult = world.call(first, "ADD", FULL, { ipamFrom: second });
      expect(prevResult.ips.map(({ address }: JsonDocument) => address)).toEqual(["10.1.0.2/24", "fd00:1::2/64"]);
      world.call(second, "CHECK", { ...FULL, prevResult }, { ipamFrom: first });
      world.call(second, "DEL", FULL, { ipamFrom: first });
      expect(leftBehind(world)).toEqual(GONE);
    },
  );

  comparisonTest(
    `containers of ${first.name} and then ${second.name} share a bridge and are removed by the other`,
    () => {
      using world = newComparisonHost();
      const other = world.newContainer();
      const env = { CNI_CONTAINERID: "c2", CNI_NETNS: other.path, CNI_IFNAME: "net1" };
      const one = world.call(first, "ADD", FULL);
      const two = world.call(second, "ADD", FULL, { env });
      expect(two.interfaces[0]).toEqual(one.interfaces[0]);
      const ping = (...all: string[]) => all.map((each) => runInNetns(other, "busybox", "ping", "-c1", "-W20", each));
      ping("10.1.0.1", "10.1.0.2", "fd00:1::2");
      world.call(second, "DEL", FULL);
      ping("10.1.0.1");
      world.call(first, "DEL", FULL, { env });
      expect(leftBehind(world)).toEqual(GONE);
    },
  );
}

// In version 1.1.1 CHECK asks for an IPAM plugin where there is none, and looks for routes without the gateway that ADD gave them.
for (const config of [{}, gateway({ ipam: { ...dualStackIpam, routes: [routes[0]] } })]) {
  comparisonTest(`only our CHECK accepts what either added: ${JSON.stringify(config)}`, () => {
    for (const side of [referencePlugins, ourPlugins]) {
      using world = newComparisonHost();
      const prevResult = world.call(side, "ADD", config);
      expect(
        [referencePlugins, ourPlugins].map((each) => world.tryCall(each, "CHECK", { ...config, prevResult }).succeeded),
      ).toEqual([
        false,
        true,
      ]);
    }
  });
}
