import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../../ffi/netns/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { ipShow, runInNetns, runIp, runShellInNetns, until } from "../../testing/netns.ts";
import { createEntry } from "../../runtime/cache.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { gatherNodeTree } from "./gather.ts";
import type { NodeTree, Port, ShownLink } from "./node_tree.ts";
import { selectShown } from "./select.ts";

await loadPlugins();
const root = mkdtempSync(join(tmpdir(), "cni-show-"));
afterAll(() => rmSync(root, { recursive: true }));

/** @param state directory of the reservations */
function networksOf(state: string) {
  const ipam = (...subnets: string[]) => ({
    type: "host-local",
    dataDir: state,
    ranges: subnets.map((subnet) => [{ subnet }]),
    routes: [{ dst: "0.0.0.0/0" }],
  });
  const network = (name: string, ...plugins: object[]): NetworkConfigList =>
    parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name, plugins }));
  return {
    web: network(
      "web",
      { type: "bridge", bridge: "web0", isGateway: true, ipMasq: true, ipam: ipam("10.9.0.0/24", "fd00:9::/64") },
      { type: "portmap", capabilities: { portMappings: true } },
    ),
    direct: network("direct", { type: "ptp", ipam: ipam("10.8.0.0/24") }),
    lan: network("lan", { type: "macvlan", master: "up0", ipam: ipam("10.7.0.0/24") }),
  };
}

interface Node extends Disposable {
  readonly host: Netns;
  readonly runtime: Runtime;
  readonly cacheDirectory: string;
  readonly containers: readonly Netns[];
  gather(word?: string): NodeTree;
}

/** c0 and c1 on the bridge `web0`, c2 by ptp, c3 on the uplink `up0`; `web0` has one more port, `other0`. */
function newNode(): Node {
  const stack = new DisposableStack();
  const host = stack.use(createNetns());
  const containers = Array.from({ length: 4 }, () => stack.use(createNetns()));
  runShellInNetns(
    host,
    "ip link set lo up",
    "ip link add up0 up type veth peer name far0",
    "ip link set far0 up; ip addr add 198.51.100.1/24 dev up0; ip addr add 2001:db8:1::1/64 dev up0 nodad",
    "ip route add default via 198.51.100.2; ip -6 route add default via 2001:db8:1::2",
  );
  const cacheDirectory = mkdtempSync(join(root, "cache-"));
  const runtime = new Runtime({ env: {}, cacheDirectory, pluginDirectories: [], log: () => {} });
  const capabilityArgs = { portMappings: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }] };
  const { web, direct, lan } = networksOf(cacheDirectory);
  host.run(() => {
    [web, web, direct, lan].forEach((list, i) =>
      runtime.add(list, {
        ...{ containerId: `c${i}`, ifname: "eth0", netns: containers[i]!.path },
        ...i === 0 && { capabilityArgs },
      })
    );
  });
  runIp(host, "link add other0 master web0 type veth peer name other1");
  return {
    host,
    runtime,
    cacheDirectory,
    containers,
    gather: (word) =>
      host.run<NodeTree>(() => {
        const attachments = runtime.attachments();
        if (word === undefined) return gatherNodeTree(attachments, { showsOtherPorts: true });
        const selection = selectShown(word, attachments, { netnsPath: word, confDirectory: root });
        return gatherNodeTree(selection.attachments, selection);
      }),
    [Symbol.dispose]: () => stack.dispose(),
  };
}

/** What ip(8) says of a link. */
function ipLink(netns: Netns, name: string): ShownLink {
  const [found] = ipShow(netns, "-s", "addr", "show", "dev", name);
  const { stats64: { rx, tx }, addr_info, linkinfo } = found;
  return {
    name,
    kind: linkinfo.info_kind,
    state: found.operstate.toLowerCase(),
    mtu: found.mtu,
    mac: found.address,
    addresses: addr_info.filter(({ scope }: { scope: string }) => scope === "global")
      .map(({ local, prefixlen }: { local: string; prefixlen: number }) => `${local}/${prefixlen}`),
    packets: { received: rx.packets, sent: tx.packets },
  };
}

/** Counters go on while the test looks. */
function withoutPackets<T extends ShownLink>({ packets, ...rest }: T): Omit<T, "packets"> {
  expect(packets).toBeDefined();
  return rest;
}

/** The kernel settles a link's state a moment after its change. */
async function awaitStates(netns: Netns): Promise<void> {
  const isSettled = ({ ifname, operstate }: { ifname: string; operstate: string }) =>
    /^(lo|other\d)$/.test(ifname) || operstate === "UP";
  await until(() => ipShow(netns, "link").every(isSettled));
}

const containerOf = ({ attachment }: Port): string | undefined => attachment?.containerId;

test("gatherNodeTree() shows uplinks, bridges, ports, containers, addresses and routes as ip(8) does", async () => {
  using node = newNode();
  const { host, containers } = node;
  for (const netns of [host, ...containers]) await awaitStates(netns);
  const { uplinks, devices, separate } = node.gather();
  expect(uplinks.map(withoutPackets)).toEqual([
    { ...withoutPackets(ipLink(host, "up0")), gateways: ["198.51.100.2", "2001:db8:1::2"] } as never,
  ]);
  expect(devices.map(({ name, networks, ports }) => [name, networks, ports.map(containerOf)])).toEqual([
    ["up0", ["lan"], ["c3"]],
    ["web0", ["web"], ["c0", "c1", undefined]],
  ]);
  expect(separate.map(containerOf)).toEqual(["c2"]);
  const web0 = devices[1]!;
  const { networks: _, ports, ...link } = web0;
  expect(withoutPackets(link)).toEqual(withoutPackets(ipLink(host, "web0")));
  for (const port of [...ports, ...separate]) {
    expect(withoutPackets(port.link!)).toEqual(withoutPackets(ipLink(host, port.link!.name)));
  }
  expect(ports[2]).toMatchObject({ link: { name: "other0", kind: "veth" } });
  const [c0, c1, , c3] = [...ports, ...devices[0]!.ports].map(({ attachment }) => attachment);
  const { routes, ...eth0 } = c0!.interfaces[0]!;
  expect(withoutPackets(eth0)).toEqual(withoutPackets(ipLink(containers[0]!, "eth0")));
  expect(routes).toMatchObject([{ dst: "0.0.0.0/0", gateway: "10.9.0.1" }, { dst: "10.9.0.0/24" }, {
    dst: "fd00:9::/64",
  }]);
  expect(ipShow(containers[0]!, "route").map(({ dst }) => dst)).toEqual(["default", "10.9.0.0/24"]);
  expect(c0).toMatchObject({
    ...{ network: "web", containerId: "c0", ifname: "eth0", state: "attached", netns: containers[0]!.path },
    publishedPorts: [{ hostPort: 8080, containerPort: 80, containerAddresses: ["10.9.0.2", "fd00:9::2"] }],
  });
  expect(c1!.publishedPorts).toEqual([]);
  expect(c1!.elements.map(({ set }) => set)).toEqual(["masquerade4", "masquerade6"]);
  expect(c3!.interfaces.map(withoutPackets)).toMatchObject([withoutPackets(ipLink(containers[3]!, "eth0"))]);
});

test("gatherNodeTree() shows what was lost: rules, a namespace, a renamed interface", () => {
  using node = newNode();
  const { host, containers } = node;
  runInNetns(host, "nft", "flush", "ruleset");
  runShellInNetns(containers[1]!, "ip link set eth0 down", "ip link set eth0 name renamed0");
  const [c0, c1] = node.gather().devices[1]!.ports;
  expect(c0!.attachment).toMatchObject({
    publishedPorts: [{ protocol: "tcp", hostPort: 8080, containerPort: 80, containerAddresses: [] }],
    elements: [],
  });
  expect(c1!.attachment!.interfaces).toMatchObject([{ name: "renamed0" }]);
  expect(c1!.link).toBeDefined();
});

test("gatherNodeTree() shows an attachment whose namespace is gone", () => {
  using host = createNetns();
  const cacheDirectory = mkdtempSync(join(root, "cache-"));
  const runtime = new Runtime({ env: {}, cacheDirectory, log: () => {} });
  const entry = { network: "web", containerId: "c9", ifname: "eth0", netns: join(root, "gone") };
  createEntry(cacheDirectory, { ...entry, config: "", args: [], capabilityArgs: {} });
  const tree = host.run<NodeTree>(() => gatherNodeTree(runtime.attachments()));
  const shown = { ...entry, state: "gone", reason: `namespace "${entry.netns}" is gone` };
  expect(tree).toEqual({
    ...{ uplinks: [], devices: [], nodes: [], tables: [] },
    separate: [{ attachment: { ...shown, interfaces: [], publishedPorts: [], elements: [] } }],
  } as never);
});

test("selectShown() finds networks, namespaces and containers, and suggests", () => {
  using node = newNode();
  const { containers } = node;
  const idsOf = (word: string) => {
    const { devices, separate } = node.gather(word);
    return [...devices.flatMap(({ ports }) => ports), ...separate].map(containerOf);
  };
  expect(idsOf("web")).toEqual(["c0", "c1"]);
  expect(idsOf("c1")).toEqual(["c1"]);
  expect(idsOf(containers[2]!.path)).toEqual(["c2"]);
  expect([idsOf("10.7.0.2"), idsOf("10.8.0.2/24"), idsOf("fd00:9:0::3")]).toEqual([["c3"], ["c2"], ["c1"]]);
  for (
    const [address, details] of [
      ["10.7.0.9", 'network "lan" has its subnet: cni show lan'],
      ["fd01::1", '"cni run list" lists containers with their addresses'],
    ]
  ) {
    const message = `Cannot show "${address}": no container has this address`;
    expect(() => node.gather(address!)).toThrow(expect.objectContaining({ message, details }));
  }
  expect(() => node.gather("c")).toThrow(
    expect.objectContaining({
      message: 'Cannot tell which container "c" is: 4 container ids begin with it',
      details: "c0; c1; c2; c3",
    }),
  );
  writeFileSync(
    join(root, "10-idle.conflist"),
    `{
    "name": "idle", // a comment
    "plugins": [{ "type": "bridge", "bridge": "web0" }, { "type": "vlan", "master": "up0" }]
  }`,
  );
  writeFileSync(join(root, "20-broken.conflist"), `{ "name": "broken", "plugins": 5 }`);
  expect(node.gather("idle").devices.map(({ name, ports }) => [name, ports])).toEqual([["up0", []], ["web0", []]]);
  expect(node.gather(join(root, "10-idle.conflist")).devices.map(({ name }) => name)).toEqual(["up0", "web0"]);
  expect(() => node.gather("broken")).toThrow("plugins");
  for (const [typo, meant] of [["wbe", "web"], ["idel", "idle"], ["direkt", "direct"], ["defualt", "default"]]) {
    expect(() => node.gather(typo!)).toThrow(
      `Cannot show "${typo}": no network, namespace or container has this name; did you mean "${meant}"?`,
    );
  }
  const unfinished = { network: "web", containerId: "d0123456789", ifname: "eth1", netns: containers[3]!.path };
  createEntry(node.cacheDirectory, { ...unfinished, config: "", args: [], capabilityArgs: {} });
  expect([idsOf("d01"), idsOf("d")]).toEqual([["d0123456789"], ["d0123456789"]]);
  using unused = createNetns();
  expect(node.gather(unused.path)).toMatchObject({ devices: [], separate: [] });
});
