/** What rtnetlink reports of links, addresses, routes and queues, damaged in every way: a value or one of our errors. */
import { test } from "bun:test";
import { createNetns, type Netns } from "../netns/netns.ts";
import { NetlinkError } from "../netlink/error.ts";
import type { Netlink } from "../netlink/socket.ts";
import { runInNetns } from "../../testing/netns.ts";
import { checkDamagedAnswers, outcomeOf, recordAnswers, replayingSocket } from "../../testing/fuzz.ts";
import * as address from "./address.ts";
import * as bridgeVlan from "./bridge_vlan.ts";
import * as filter from "./filter.ts";
import { bridge, bridgePortOf, veth } from "./link_kinds.ts";
import * as link from "./link.ts";
import * as neighbour from "./neighbour.ts";
import * as qdisc from "./qdisc.ts";
import * as route from "./route.ts";
import * as rule from "./rule.ts";
import { listRoutingRules } from "./routing_policy.ts";
import * as wholeRoute from "./raw_route.ts";

/** A namespace that has one of everything that this kernel knows. */
function populated(): Netns {
  const netns = createNetns();
  // Not every kernel has all of these.
  for (
    const type of ["dummy", "ifb", "vrf table 10", "vxlan id 7 dstport 4789", "macvlan link v0", "vlan link v0 id 5"]
  ) {
    const [kind, ...options] = type.split(" ");
    const words = kind === "macvlan" || kind === "vlan"
      ? ["ip", "link", "add", "link", "lo", "name", `x-${kind}`, "type", kind]
      : ["ip", "link", "add", `x-${kind}`, "type", kind!, ...options];
    netns.run(() => Bun.spawnSync(words, { stderr: "ignore" }));
  }
  const batch = `
    link add br0 type bridge
    link add v0 alias "web c1 eth0" type veth peer name v1
    link add v2 mtu 9000 txqueuelen 77 type veth peer name v3
    link set v1 master br0
    link set lo up
    link set br0 up
    link set v0 up
    link set v1 up
    link set v2 up
    link set v3 up
    address add 10.1.0.1/24 brd + dev v0
    address add 10.1.0.2/32 dev v0 label v0:x
    address add fd00:1::1/64 dev v0 nodad
    address add 10.2.0.1/24 dev v2
    address add fd00:2::1/64 dev v2 nodad
    neigh add 10.1.0.9 lladdr 0a:00:00:00:00:01 dev v0
    neigh add fd00:1::9 lladdr 0a:00:00:00:00:02 dev v0
    route add default via 10.1.0.254
    route add 10.3.0.0/16 nexthop via 10.1.0.254 weight 3 nexthop via 10.2.0.254 nexthop dev br0
    route add 10.4.0.0/16 via 10.2.0.254 mtu 1400 advmss 1300 metric 7 table 100
    route add blackhole 10.5.0.0/16
    route add fd00:3::/64 nexthop via fd00:1::2 nexthop via fd00:2::2
    route add fd00:4::/64 via fd00:2::2 metric 9 table 4000
    rule add from 10.1.0.0/24 table 100 priority 500
    rule add fwmark 7 iif v0 to 10.9.0.0/16 sport 1-9 table 100`;
  const load = netns.run(() => Bun.spawnSync(["ip", "-force", "-batch", "-"], { stdin: Buffer.from(batch) }));
  if (load.exitCode !== 0) throw new Error(load.stderr.toString());
  runInNetns(netns, "ip", "-6", "rule", "add", "from", "fd00:1::/64", "table", "4000");
  runInNetns(netns, "tc", "qdisc", "add", "dev", "v0", "root", "tbf", "rate", "8mbit", "burst", "32k", "limit", "64k");
  runInNetns(netns, "tc", "qdisc", "add", "dev", "v0", "ingress");
  const redirect = "filter add dev v0 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev v2";
  runInNetns(netns, "tc", ...redirect.split(" "));
  return netns;
}

/** Everything that asks the kernel for more than its assent, and looks at the answer. */
const QUESTIONS: Readonly<Record<string, (nl: Netlink, v0: number) => unknown>> = {
  "link.list": (nl) => link.list(nl).map((each) => [bridgePortOf(each), bridge.of(each), veth.of(each)]),
  "link.get": (nl, v0) => [link.get(nl, "v0"), link.find(nl, v0), link.getAll(nl, ["v0", "v1"])],
  "address.list": (nl, v0) => [address.list(nl, { index: v0 }), address.list(nl)],
  "route.list": (nl) => [route.list(nl, 2), route.list(nl, 10)],
  "route.list of a table": (nl) => [route.list(nl, 2, 100)],
  "wholeRoute.list": (nl) =>
    wholeRoute.list(nl).map((each) => [
      wholeRoute.linksOf(each),
      wholeRoute.nextHopGateways(each),
      wholeRoute.tableOf(each),
      wholeRoute.destinationOf(each),
    ]),
  "rule.list": (nl) => rule.list(nl),
  listRoutingRules: (nl) => listRoutingRules(nl),
  "neighbour.list": (nl) => [neighbour.list(nl, 2), neighbour.list(nl, 10)],
  // The number of entries changes with other namespaces.
  "neighbour.findTableUse": (nl) => neighbour.findTableUse(nl, 2)?.limit,
  "qdisc.findRoot": (nl, v0) => {
    const root = qdisc.findRoot(nl, v0);
    return root && qdisc.tokenBucketOf(root);
  },
  "filter.listRedirects": (nl, v0) => filter.listRedirects(nl, v0),
  "bridgeVlan.list": (nl, v0) => bridgeVlan.list(nl, v0),
  // With the kernel's own words and the place in the request that they are about.
  "a refusal": (nl) => [
    refusal(() => link.add(nl, { name: "x".repeat(40), info: { kind: "bridge" } })),
    refusal(() => link.set(nl, "v0", { mtu: 1 })),
    refusal(() => link.add(nl, { name: "v0", info: bridge({ vlanFiltering: 7 }) })),
  ],
};

function refusal(call: () => void): string {
  try {
    call();
  } catch (error) {
    if (error instanceof NetlinkError) return error.message;
    throw error;
  }
  return "";
}

const netns = populated();
const v0 = link.get(netns.route, "v0").index;

test.each(Object.entries(QUESTIONS))("%s of a damaged answer gives a value or an error of ours", (_name, question) => {
  checkDamagedAnswers(netns.route, (nl) => question(nl, v0), 600);
});

// Random damage rarely hits the few places that matter; there are few enough to try all.
test.each(Object.entries(QUESTIONS))(
  "%s of an answer with any one length wrong is no endless loop",
  (_name, question) => {
    const recording = recordAnswers(netns.route, (nl) => question(nl, v0)).map((each) => each?.subarray(0, 1024));
    for (const [index, datagram] of recording.entries()) {
      for (let at = 0; datagram && at + 4 <= datagram.length; at += 4) {
        for (const length of [0, 4, 0xffff]) {
          const bytes = datagram.slice();
          new DataView(bytes.buffer).setUint16(at, length, true);
          outcomeOf(() => question(replayingSocket(recording.with(index, bytes)), v0));
        }
      }
    }
  },
);
