/**
 * The same requests to the reference plugin and to the compiled binary: what they answer, what they leave in the kernel, and whether
 * either goes on where the other stopped.
 *
 * @module
 */
import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
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
import { comparisonTest, listDifferences, newComparisonHost, referencePlugins } from "../../testing/reference_host.ts";
import { BOTH_ORDERS, testCheckAndRemoval, testRemovalWithoutNetns } from "../../testing/reference_removal.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { sampleOf } from "../../testing/sample.ts";

const ptpTest = (name: string, body: () => void | Promise<void>) =>
  existsSync(referencePlugins.path("ptp")) ? comparisonTest(name, body) : test.skip(name, () => {});

const routes = [{ dst: "192.0.2.0/24" }, { dst: "2001:db8::/32" }];
const nearby = [{ dst: "198.51.100.0/24", gw: "10.1.0.9" }];

const CASES: Record<string, ComparedRequest> = {
  "IPv4": { config: { ipam: ipv4Ipam } },
  "IPv6": { config: { ipam: hostLocalRanges("fd00:1::/64") } },
  "both": { config: { ipam: dualStackIpam } },
  "both, with default routes": { config: { ipam: { ...dualStackIpam, routes: defaultRoutes } } },
  "MTU": { config: { mtu: 1400, ipam: dualStackIpam } },
  "routes": { config: { ipam: { ...dualStackIpam, routes: [...routes, ...defaultRoutes] } } },
  "a route by another gateway of the subnet": { config: { ipam: { ...ipv4Ipam, routes: nearby } } },
  "gateway named by ipam": { config: { ipam: hostLocalIpam({ ranges: [rangeWithGateway] }) } },
  "a gateway outside of the subnet": {
    config: { ipam: hostLocalIpam({ subnet: "10.1.0.0/24", gateway: "10.7.0.1" }) },
  },
  "several ranges": { config: { ipam: hostLocalRanges("10.1.0.0/24", "10.2.0.0/24", "fd00:2::/64", "fd00:3::/64") } },
  "masquerade": { config: { ipMasq: true, ipam: dualStackIpam } },
  "addresses by runtimeConfig": {
    config: { ipam: dualStackIpam, runtimeConfig: { ips: ["10.1.0.77/24", "fd00:1::77"] } },
  },
  "MAC addresses, of which it knows nothing": {
    config: { ipam: ipv4Ipam, runtimeConfig: { mac: "x" }, args: { cni: { mac: 7 } } },
  },
  "dns": { config: { ipam: dualStackIpam, dns: dnsConfig } },
  "dns of ipam": { config: { ipam: dualStackIpamWithDns } },
  "dns of both": { config: { ipam: dualStackIpamWithDns, dns: { domain: "c.example" } } },
  "empty list in dns": { config: { ipam: dualStackIpamWithDns, dns: { nameservers: [] } } },
  "upper case, null": { config: { MTU: 1300, IPAM: dualStackIpam, ipMasq: null } },
  ...Object.fromEntries(["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0"].map((cniVersion) => [
    `version ${cniVersion}`,
    { config: { cniVersion, dns: dnsConfig, ipam: { ...dualStackIpam, routes } } },
  ])),
};

/** Ours puts no route to the subnet there where the reference takes it away again, and needs no search for duplicates: as `path: theirs | ours`. */
function usual(reference: JsonDocument): string[] {
  const { addresses } = reference.added.container.links[1];
  const withSix = addresses.some(({ family }: JsonDocument) => family === "inet6");
  return [
    ...addresses.map((_: JsonDocument, i: number) =>
      `added.container.links.1.addresses.${i}.noprefixroute: undefined | true`
    ),
    'added.container.sysctls.ipv4/conf/eth0/arp_notify: "0" | "1"',
    ...withSix ? ['added.container.sysctls.ipv6/conf/eth0/accept_dad: "1" | "0"'] : [],
  ];
}
const DIFFERENCES: Record<string, readonly string[]> = {
  "a route by another gateway of the subnet": ['added.container.routes.2.flags.0: undefined | "onlink"'],
};

for (const [name, request] of sampleOf(Object.entries(CASES))) {
  ptpTest(`same answer and state: ${name}`, () => {
    const [reference, own] = compareImplementations("ptp", request);
    expect(listDifferences(reference, own)).toEqual([...usual(reference), ...DIFFERENCES[name] ?? []].sort());
  });
}

const dels = (...all: ComparedRequest[]) =>
  all.map((each): ComparedRequest => ({ verb: "DEL", config: { ipam: ipv4Ipam }, ...each }));
const fixed = (...addresses: object[]) => ({ type: "static", addresses });

const REFUSED: ComparedRequest[] = [
  ...ipamRequests(undefined, {}, { type: "absent" }, { type: "../cni/host-local" }, "host-local", []),
  ...ipamRequests(fixed({ address: "10.1.0.2/24" })),
  ...ipamRequests({ ...ipv4Ipam, routes: [{ dst: "192.0.2.0/24", gw: "172.16.0.1" }] }),
  ...configRequests({ ipam: ipv4Ipam, mtu: "1500" }, { ipam: ipv4Ipam, mtu: 70000 }, { ipam: ipv4Ipam, ipMasq: "yes" }),
  ...configRequests({ ipam: ipv4Ipam, cniVersion: "0.3.9" }, { ipam: ipv4Ipam, name: "a b" }),
  ...envRequests("CNI_NETNS", { ipam: ipv4Ipam }, null, "", "/nonexistent/x", "/etc/passwd", "/proc/self/ns/mnt"),
  ...envRequests("CNI_IFNAME", { ipam: ipv4Ipam }, null, "a234567890123456", "a/b", "..", "lo"),
  { config: { ipam: ipv4Ipam }, container: ["link add eth0 type bridge"] },
  ...dels({ config: { ipam: { type: "absent" } } }),
  { verb: "CHECK", config: { ipam: ipv4Ipam } },
  { verb: "STATUS", config: { ipam: ipv4Ipam, cniVersion: "1.0.0" } },
];

const ACCEPTED: ComparedRequest[] = [
  ...configRequests({ ipam: ipv4Ipam, runtimeConfig: null, args: null, prevResult: null, dns: null }),
  ...configRequests({ ipam: { ...ipv4Ipam, routes: [{ dst: "2001:db8::/32" }] } }),
  ...envRequests("CNI_ARGS", { ipam: ipv4Ipam }, "", "IgnoreUnknown=1;FOO=1"),
  ...dels({}, { env: { CNI_NETNS: null } }, { env: { CNI_NETNS: "/nonexistent/x" } }),
];

const ONLY_OURS: ComparedRequest[] = [
  // A single address, and two of one subnet.
  ...ipamRequests(fixed({ address: "10.1.0.2/32", gateway: "10.1.0.1" })),
  ...ipamRequests(
    fixed({ address: "10.1.0.2/24", gateway: "10.1.0.1" }, { address: "10.1.0.3/24", gateway: "10.1.0.1" }),
  ),
  ...ipamRequests({ ...ipv4Ipam, routes: [routes[0], routes[0]] }),
  ...configRequests({ cniVersion: "1.1.0", ipam: ipv4Ipam }),
  ...dels({ env: { CNI_NETNS: "/etc/passwd" } }, { config: { ipam: ipv4Ipam, mtu: "x" } }, { config: {} }),
];

const ONLY_THEIRS: ComparedRequest[] = [
  // Taken for 0, and for nothing at all.
  ...configRequests({ ipam: ipv4Ipam, mtu: -1 }, { ipam: ipv4Ipam, ipMasqBackend: "x" }),
  // The host would have the address that the container has.
  ...ipamRequests(fixed({ address: "10.1.0.2/24", gateway: "10.1.0.2" })),
  // The host leads what is for the address elsewhere, and goes on doing so.
  { config: { ipam: ipv4Ipam }, host: ["link add mine up type bridge", "route add 10.1.0.2 dev mine scope host"] },
];

testRequests(ptpTest, "ptp", { refused: REFUSED, accepted: ACCEPTED, onlyOurs: ONLY_OURS, onlyTheirs: ONLY_THEIRS });

const FULL = { mtu: 1400, ipMasq: true, ipam: { ...dualStackIpam, routes: defaultRoutes } };
const PLAIN = { ...FULL, ipMasq: false };
const GONE = { links: { host: ["lo"], container: ["lo"] }, reserved: [] };

// The reference's DEL fails where another has made the rules.
testCheckAndRemoval(ptpTest, { type: "ptp", config: PLAIN, left: GONE }, [
  {
    place: "container",
    change: "addr del fd00:1::2/64 dev eth0",
    back: "addr add fd00:1::2/64 dev eth0 nodad noprefixroute",
  },
  { place: "container", change: "route del default", back: "route add default via 10.1.0.1" },
  { place: "container", change: "link set eth0 address 0a:00:00:00:00:66", back: "link set eth0 address $MAC" },
  { place: "container", change: "link set eth0 mtu 1300", back: "link set eth0 mtu 1400", isMissedByThem: true },
  {
    place: "host",
    change: "route del 10.1.0.2",
    back: "route add 10.1.0.2 dev $PORT scope host",
    isMissedByThem: true,
  },
  {
    place: "host",
    change: "-6 route del fd00:1::2",
    back: "-6 route add fd00:1::2 dev $PORT",
    isMissedByThem: true,
  },
]);
testRemovalWithoutNetns(ptpTest, { type: "ptp", config: FULL, left: GONE });

for (const [first, second] of BOTH_ORDERS) {
  ptpTest(`containers of ${first.name} and ${second.name} reach each other, and are removed by the other`, () => {
    using world = newComparisonHost();
    const other = world.newContainer();
    const env = { CNI_CONTAINERID: "c2", CNI_NETNS: other.path, CNI_IFNAME: "net1" };
    world.call(first, "ADD", PLAIN, { type: "ptp" });
    world.call(second, "ADD", PLAIN, { type: "ptp", env });
    const ping = (...all: string[]) => all.map((each) => runInNetns(other, "busybox", "ping", "-c1", "-W20", each));
    ping("10.1.0.1", "10.1.0.2");
    // For up to two seconds the host's end of the reference's has no address to ask for neighbours from. What was sent
    // before then is lost after three.
    runInNetns(other, "busybox", "ping", "-c6", "-W20", "fd00:1::2");
    ping("fd00:1::1");
    world.call(second, "DEL", PLAIN, { type: "ptp" });
    ping("10.1.0.1", "fd00:1::1");
    world.call(first, "DEL", PLAIN, { type: "ptp", env });
    expect(leftBehind(world)).toEqual(GONE);
  });
}
