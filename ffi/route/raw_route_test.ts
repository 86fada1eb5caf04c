import { expect } from "bun:test";
import type { Netns } from "../netns/netns.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import * as link from "./link.ts";
import * as wholeRoute from "./raw_route.ts";

const MAIN = 254;

/** Two links with all kinds of routes. */
function prepare(host: Netns): { readonly v0: number } {
  const script = `
    for i in 0 1; do
      ip link add v$i type veth peer name p$i; ip link set v$i up; ip link set p$i up
      ip addr add 10.0.$i.2/24 dev v$i; ip addr add fd00:$i::2/64 dev v$i nodad
    done
    ip route add default via 10.0.0.1 metric 7 mtu 1400 advmss 1300
    ip route add default via 10.9.9.9 dev v0 onlink src 10.0.0.2
    ip route add 192.0.2.0/24 dev v0 scope link proto 99
    ip route add 198.51.100.0/24 nexthop via 10.0.0.7 weight 3 nexthop via 10.0.0.8
    ip route add 203.0.113.0/24 nexthop via 10.0.0.7 nexthop via 10.0.1.7
    ip -6 route add default via fd00:0::1 metric 9
    ip -6 route append default via fd00:1::1 metric 9
    ip -6 route add 2001:db8::/32 via fd00:0::9 mtu 1300 pref high`;
  runInNetns(host, "sh", "-ec", script);
  return { v0: link.get(host.route, "v0").index };
}

/** Routes as ip(8) shows them, without those of link-local addresses, which come when they like. */
function shown(netns: Netns, table: string): string[] {
  return [["-4"], ["-6"]].flatMap((family) =>
    runInNetns(netns, "ip", ...family, "route", "show", "table", table).split("\n")
  )
    .map((line) => line.trim()).filter((line) =>
      line !== "" && !line.startsWith("fe80") && !line.startsWith("multicast")
    );
}

netnsTest("routes copied into another table are shown there as in their own", ({ host }) => {
  const { v0 } = prepare(host);
  const own = wholeRoute.list(host.route).filter((each) => wholeRoute.tableOf(each) === MAIN);
  // In the order of their dependence: what has a gateway needs the way to it.
  for (
    const each of own.toSorted((a, b) => wholeRoute.nextHopGateways(a).length - wholeRoute.nextHopGateways(b).length)
  ) {
    wholeRoute.append(host.route, wholeRoute.withTable(each, 5000));
  }
  expect(shown(host, "5000").toSorted()).toEqual(shown(host, "main").toSorted());
  expect(shown(host, "main").length).toBeGreaterThan(9);
  const copied = own.find((each) => wholeRoute.linksOf(each).includes(v0))!;
  expect(() => wholeRoute.append(host.route, wholeRoute.withTable(copied, 5000))).toThrow("EEXIST");
});

netnsTest("routes that are removed can be put back; those of other links stay", ({ host }) => {
  const { v0 } = prepare(host);
  const before = shown(host, "main");
  const listed = () =>
    wholeRoute.list(host.route).filter((each) =>
      wholeRoute.tableOf(each) === MAIN && wholeRoute.linksOf(each).every((link) => link === v0)
    );
  // What has a gateway goes first, and comes back last.
  const byV0 = listed().toSorted((a, b) => wholeRoute.nextHopGateways(b).length - wholeRoute.nextHopGateways(a).length);
  for (const each of byV0) wholeRoute.remove(host.route, each);
  expect(listed()).toEqual([]);
  // Of an IPv6 route over two links one half is gone; an IPv4 route is one route.
  expect(shown(host, "main")).toContain("default via fd00:1::1 dev v1 metric 9 pref medium");
  expect(runInNetns(host, "ip", "route")).toContain("203.0.113.0/24");
  for (const each of byV0.toReversed()) wholeRoute.append(host.route, each);
  expect(shown(host, "main").toSorted()).toEqual(before.toSorted());
});

netnsTest("replace() leaves one route where append() leaves two", ({ host }) => {
  prepare(host);
  const found = wholeRoute.list(host.route).find((each) => wholeRoute.destinationOf(each) === "192.0.2.0/24")!;
  wholeRoute.replace(host.route, { ...found, protocol: 98 });
  expect(shown(host, "main").filter((line) => line.startsWith("192.0.2"))).toEqual([
    "192.0.2.0/24 dev v0 proto 98 scope link",
  ]);
  wholeRoute.append(host.route, { ...found, protocol: 97 });
  expect(shown(host, "main").filter((line) => line.startsWith("192.0.2"))).toHaveLength(2);
  expect(() => wholeRoute.remove(host.route, { ...found, protocol: 50 })).toThrow(
    "Cannot remove route to 192.0.2.0/24 in table 254",
  );
});
