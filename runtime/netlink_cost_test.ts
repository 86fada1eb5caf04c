/**
 * What ADD and DEL of a whole chain ask of the kernel when there are many containers: as much as when there are few.
 *
 * @module
 */
import { expect, spyOn, test } from "bun:test";
import type { Cidr } from "../ffi/address.ts";
import { createNetns } from "../ffi/netns/netns.ts";
import type { NetlinkCounts } from "../testing/netlink_counts.ts";
import { addMasquerade } from "../plugins/lib/veth/masquerade.ts";
import type { AnyPlugin, HostContext } from "../plugins/lib/protocol/context.ts";
import firewall from "../plugins/firewall/plugin.ts";
import portmap from "../plugins/portmap/plugin.ts";
import { findPlugin, loadPlugins } from "../plugins/registry.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import * as result from "../spec/result.ts";
import { addNetworkList } from "./add.ts";
import { checkNetworkList } from "./check.ts";
import { delNetworkList } from "./del.ts";
import { gcNetworkList } from "./gc.ts";
import { restoreAttachments } from "./restore.ts";
import { newCountingHost } from "../testing/counting_host.ts";
import { loadKubeProxyRules } from "../testing/kube_proxy.ts";
import { runShellInNetns } from "../testing/netns.ts";
import { invokePlugin, newRequest } from "../testing/plugin_call.ts";

await loadPlugins();

const NAME = "chain";

/** The most that each may cost. Answers differ in length between kernels; requests do not. */
const BUDGET: Readonly<Record<string, NetlinkCounts>> = {
  "first DEL": { sends: 24, messages: 54, dumps: 3, received: 6_000 },
  // Three of the questions are who listens on the ports, and one is who else has the address.
  "second ADD": { sends: 31, messages: 77, dumps: 11, received: 16_000 },
  "second DEL": { sends: 24, messages: 54, dumps: 3, received: 6_000 },
  "portless ADD": { sends: 21, messages: 49, dumps: 6, received: 12_000 },
  "portless DEL": { sends: 22, messages: 42, dumps: 2, received: 5_000 },
};

const portsOf = (number: number) => [
  { hostPort: 20000 + 2 * number, containerPort: 80, protocol: "tcp" },
  { hostPort: 20001 + 2 * number, containerPort: 53, protocol: "udp" },
];

function chainIn(directory: string, ranges: readonly object[][] = [[{ subnet: "10.66.0.0/16" }]]) {
  const routes = [{ dst: "0.0.0.0/0" }];
  const ipam = { type: "host-local", dataDir: directory, ranges, routes };
  return parseNetworkConfigList(JSON.stringify({
    cniVersion: "1.0.0",
    name: NAME,
    plugins: [
      { type: "bridge", bridge: "br0", isGateway: true, ipMasq: true, hairpinMode: true, ipam },
      { type: "portmap", capabilities: { portMappings: true } },
      { type: "firewall" },
      { type: "tuning" },
    ],
  }));
}

/** Gives the host the rules of a container that has no interface. */
function addRules(context: HostContext, number: number): void {
  const address = `10.66.${128 + (number >> 8)}.${number & 255}/16`;
  const owner = { network: NAME, containerId: `p${number}`, ifname: "eth0" };
  addMasquerade(context.host.nft, owner, [address as Cidr]);
  for (const plugin of [portmap, firewall] as AnyPlugin[]) {
    const config = {
      cniVersion: "1.0.0",
      name: NAME,
      runtimeConfig: { portMappings: portsOf(number) },
      prevResult: { cniVersion: "1.0.0", ips: [{ address }] },
    };
    const request = newRequest(plugin.name, "ADD", config, { containerId: owner.containerId, netns: "/unseen" });
    invokePlugin({ ...plugin, ignoresNetns: true }, request, context);
  }
}

/** What an ADD and a DEL cost beside so many containers, one with and one without published ports. */
function costsBeside(containers: number): Record<string, NetlinkCounts> {
  using resources = new DisposableStack();
  const { directory, context, runtime: options, measure: count, log } = newCountingHost(resources);
  const list = chainIn(directory);
  const costs: Record<string, NetlinkCounts> = {};
  const measure = (name: string, call: () => void) => {
    costs[name] = count(call);
  };
  const attach = (containerId: string, portMappings: readonly object[]) => {
    using container = createNetns();
    const who = { containerId, ifname: "eth0" };
    const capabilityArgs = { portMappings: portMappings as never };
    measure(
      `${containerId} ADD`,
      () => void addNetworkList(options, list, { ...who, netns: container.path, capabilityArgs }),
    );
    measure(`${containerId} DEL`, () => delNetworkList(options, list, who));
  };
  for (let number = 0; number < containers; number++) addRules(context, number);
  // The first makes the bridge.
  attach("first", portsOf(5000));
  attach("second", portsOf(5000));
  using formatResult = spyOn(result, "formatResult");
  attach("portless", []);
  // The entry of the cache. Plugins of this process take the result as it is; the command formats it once more to print it.
  expect(formatResult).toHaveBeenCalledTimes(1);
  delete costs["first ADD"];
  expect(log).toEqual([]);
  return costs;
}

/** What each costs beside so many Services of both families of kube-proxy in mode `nftables`. */
function costsBesideServices(services: number): Record<string, NetlinkCounts> {
  using resources = new DisposableStack();
  const { host, directory, runtime: options, measure } = newCountingHost(resources);
  const numbers = Array.from({ length: services }, (_, i) => i);
  loadKubeProxyRules(host, {
    mode: "nftables",
    services: numbers.flatMap((i) => [
      { name: `web${i}`, clusterIp: `10.96.${i >> 8}.${i & 255}`, endpoints: ["10.66.0.2", "10.66.0.3"] },
      { name: `web${i}`, clusterIp: `fd96::${i}`, endpoints: ["fd66::2", "fd66::3"] },
    ]),
  });
  // Some program has used iptables on most nodes.
  runShellInNetns(host, "iptables -t nat -N MINE; ip6tables -t nat -N MINE");
  const { path: netns } = resources.use(createNetns());
  const list = chainIn(directory, [[{ subnet: "10.66.0.0/16" }], [{ subnet: "fd66::/64" }]]);
  const who = { containerId: "c", ifname: "eth0" };
  return {
    "ADD": measure(() => void addNetworkList(options, list, { ...who, netns })),
    "CHECK": measure(() => checkNetworkList(options, list, who)),
    "restore": measure(() => void restoreAttachments(options)),
    "DEL": measure(() => delNetworkList(options, list, who)),
    "GC": measure(() => void gcNetworkList(options, list, [])),
  };
}

/** What a CHECK of ptp costs on a host that routes so many other addresses, after lines of the shell. */
function checkCostBesideRoutes(routes: number, ...lines: string[]): NetlinkCounts {
  using resources = new DisposableStack();
  const { host, directory, context, measure } = newCountingHost(resources);
  const ranges = [[{ subnet: "10.66.0.0/24" }], [{ subnet: "fd66::/64" }]];
  const ipam = { type: "host-local", dataDir: directory, ranges };
  const { path: netns } = resources.use(createNetns());
  const call = (command: "ADD" | "CHECK", prevResult?: unknown) =>
    invokePlugin(findPlugin("ptp")!, newRequest("ptp", command, { name: NAME, ipam, prevResult }, { netns }), context);
  const prevResult = host.run(() => ({ added: call("ADD") })).added;
  runShellInNetns(
    host,
    "ip link add far0 type veth peer name far1; ip link set far0 addrgenmode none up",
    `for i in $(seq 1000 ${999 + routes}); do`,
    "  echo route add 10.0.$((i / 256)).$((i % 256)) dev far0; echo route add fd80::$i dev far0",
    "done | ip -batch -",
    ...lines,
  );
  return measure(() => void call("CHECK", prevResult));
}

/** What a restore costs where nothing of so many attachments is missing. */
function restoreCostOf(attachments: number): NetlinkCounts {
  using resources = new DisposableStack();
  const { directory, runtime: options, measure, log } = newCountingHost(resources);
  const list = chainIn(directory);
  for (let number = 0; number < attachments; number++) {
    const netns = resources.use(createNetns()).path;
    const capabilityArgs = { portMappings: portsOf(number) as never };
    measure(() =>
      void addNetworkList(options, list, { containerId: `c${number}`, ifname: "eth0", netns, capabilityArgs })
    );
  }
  let states: readonly string[] = [];
  const counts = measure(() => {
    states = restoreAttachments(options).attachments.map(({ state }) => state);
  });
  expect([states, log]).toEqual([Array(attachments).fill("whole"), []]);
  return counts;
}

test("restore reads what all attachments have once, and asks for each no more than whether that still holds", () => {
  const [few, many] = [restoreCostOf(2), restoreCostOf(12)];
  const perAttachment = {
    sends: (many.sends - few.sends) / 10,
    dumps: (many.dumps - few.dumps) / 10,
  };
  // The ruleset's number, the way to the container, and the container's addresses.
  expect(perAttachment).toEqual({ sends: 3, dumps: 1 });
});

test("restore puts back what somebody takes away while it runs", () => {
  using resources = new DisposableStack();
  const { directory, runtime } = newCountingHost(resources);
  const list = chainIn(directory);
  const paths = ["c0", "c1", "c2"].map((containerId) => {
    const netns = resources.use(createNetns()).path;
    addNetworkList(runtime, list, { containerId, ifname: "eth0", netns });
    return netns;
  });
  const hostContext: HostContext = {
    ...runtime.hostContext,
    openNetns(path) {
      // The second attachment is at work, with what was read for the first.
      if (path === paths[1]) runShellInNetns(runtime.hostContext.host, "nft flush ruleset");
      return runtime.hostContext.openNetns(path);
    },
  };
  const { attachments } = restoreAttachments({ ...runtime, hostContext });
  expect(attachments.map(({ state }) => state)).toEqual(["whole", "whole", "restored"]);
});

test("ADD, CHECK, restore, DEL and GC do not read what kube-proxy has for each Service", () => {
  expect(costsBesideServices(100)).toEqual(costsBesideServices(2));
});

test("CHECK of ptp does not read the host's routes to others", () => {
  expect(checkCostBesideRoutes(100)).toEqual(checkCostBesideRoutes(2));
});

test("CHECK of ptp passes where the host's policy prefers another route", () => {
  const { dumps } = checkCostBesideRoutes(2);
  const preferred = [
    "ip rule add lookup 100 priority 5; ip -6 rule add lookup 100 priority 5",
    "ip route add 10.66.0.0/24 dev far0 table 100; ip -6 route add prohibit fd66::/64 table 100",
  ];
  expect(checkCostBesideRoutes(2, ...preferred).dumps).toBe(dumps + 2);
});

test("ADD and DEL of a whole chain send and receive no more beside 200 containers than beside 20, and no more than they may", () => {
  const [few, many] = [costsBeside(20), costsBeside(200)];
  expect(many).toEqual(few);
  expect(Object.keys(many).sort()).toEqual(Object.keys(BUDGET).sort());
  for (const [name, most] of Object.entries(BUDGET)) {
    const excess = Object.entries(most).filter(([what, count]) => many[name]![what as keyof NetlinkCounts] > count);
    expect([name, excess, many[name]]).toEqual([name, [], many[name]]);
  }
});
