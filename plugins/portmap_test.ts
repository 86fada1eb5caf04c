import { expect, test } from "bun:test";
import type { Netns } from "../ffi/netns.ts";
import { inNetns } from "../ffi/testing.ts";
import { askTcp, askUdp, serveTcp, serveUdp, udpClient } from "../ffi/testing_traffic.ts";
import { networkTest, type TestContainer } from "./kit/testing_network.ts";
import portmap from "./portmap.ts";
import { parsePortmap } from "./portmap/config.ts";
import { CniError } from "./spec/error.ts";

interface Mapping {
  hostPort: number;
  containerPort: number;
  protocol?: string;
  hostIP?: string;
}
const publishing = (mappings: readonly Mapping[], more: object = {}) => ({
  runtimeConfig: { portMappings: mappings },
  ...more,
});
const WEB = publishing([{ hostPort: 8080, containerPort: 80, protocol: "tcp" }, {
  hostPort: 5353,
  containerPort: 53,
  protocol: "udp",
}]);

/** Serves TCP port 80 and UDP port 53 in a container. */
async function servers(container: TestContainer, name: string): Promise<DisposableStack> {
  const stack = new DisposableStack();
  stack.use(serveTcp(container.netns, name, 80));
  stack.use(await serveUdp(container.netns, name, 53));
  return stack;
}

const listing = (host: Netns): string => inNetns(host, "nft", "list", "ruleset");
/** The elements that there are, in the words of nft(8), as `map: element`. */
function elements(host: Netns): string[] {
  return [...listing(host).matchAll(/map (\S+) \{[^}]*?elements = \{ ([^}]*) \}/g)].flatMap(([, map, all]) =>
    all!.split(/,\s*/).map((each) => `${map}: ${each}`)
  ).sort();
}
const chains = (host: Netns): string[] => [...listing(host).matchAll(/chain (\S*-\S+)/g)].map(([, name]) => name!);

function refusal(call: () => unknown): CniError {
  try {
    call();
  } catch (error) {
    if (error instanceof CniError) return error;
    throw error;
  }
  throw new Error("the call succeeded");
}

for (
  const [title, bridged] of [
    ["", false],
    // Then the kernel bridges what a container sends to itself, which takes hairpin mode of its port (`hairpinMode` of the bridge plugin).
    [" where bridged packets pass the rules", true],
  ] as const
) {
  networkTest(`published ports are reached by everybody, over both families and protocols${title}`, async (network) => {
    const { host, outside, call } = network;
    const c1 = network.container(2);
    const c2 = network.container(3);
    if (bridged) {
      const calls = "for each in /proc/sys/net/bridge/bridge-nf-call-ip*; do echo 1 >$each; done";
      inNetns(host, "sh", "-e", "-c", `bridge link set dev veth2 hairpin on; ${calls}`);
    }
    using _c1 = await servers(c1, "c1");
    call(portmap, "ADD", WEB, { container: c1 });
    const who = [
      [outside, "192.0.2.1", "192.0.2.2"],
      [outside, "2001:db8::1", "2001:db8::2"],
      [host, "192.0.2.1", "192.0.2.1"],
      [host, "10.88.0.1", "10.88.0.1"],
      [host, "2001:db8::1", "2001:db8::1"],
      // Loopback addresses, neighbours and the container itself are hidden behind the bridge's address.
      [host, "127.0.0.1", "10.88.0.1"],
      [host, "127.1.2.3", "10.88.0.1"],
      [c1.netns, "192.0.2.1", "10.88.0.1"],
      [c1.netns, "10.88.0.1", "10.88.0.1"],
      [c1.netns, "2001:db8::1", "fd88::1"],
      [c2.netns, "192.0.2.1", "10.88.0.1"],
      [c2.netns, "10.88.0.1", "10.88.0.1"],
      [c2.netns, "fd88::1", "fd88::1"],
    ] as const;
    for (const [from, to, seen] of who) {
      const answers = [await askTcp(from, to, 8080), await askUdp(from, to, 5353)];
      expect([to, ...answers]).toEqual([to, `c1 ${seen}`, `c1 ${seen}`]);
    }
    call(portmap, "DEL", WEB, { container: c1 });
    expect(await askTcp(outside, "192.0.2.1", 8080)).toBeUndefined();
    expect(await askTcp(host, "127.0.0.1", 8080)).toBeUndefined();
  });
}

networkTest("at ::1 a published port is refused at once rather than never answered", async (network) => {
  const { host, call, log } = network;
  const c1 = network.container(2);
  using _c1 = await servers(c1, "c1");
  const mappings = [{ hostPort: 8080, containerPort: 80 }, { hostPort: 1, containerPort: 2, hostIP: "::1" }];
  call(portmap, "ADD", publishing(mappings), { container: c1 });
  expect(log).toEqual(["Cannot publish host port [::1]:1/tcp: the kernel delivers no answer there"]);
  using _host = serveTcp(host, "host", 8080, "::1");
  expect(await askTcp(host, "::1", 8080)).toBe("host ::1");
  expect(await askTcp(host, "127.0.0.1", 8080)).toBe("c1 10.88.0.1");
});

networkTest("what only passes through the host is not caught, whatever hostIP says", async (network) => {
  const { host, outside, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await servers(c1, "c1");
  using _far = serveTcp(outside, "outside", 8080);
  inNetns(outside, "ip", "route", "add", "10.88.0.0/16", "via", "192.0.2.1");
  const foreign = { hostPort: 8080, containerPort: 80, hostIP: "192.0.2.2" };
  call(portmap, "ADD", publishing([{ hostPort: 8080, containerPort: 80 }, foreign]), { container: c1 });
  expect(await askTcp(c2.netns, "192.0.2.2", 8080)).toBe("outside 10.88.0.3");
  expect(await askTcp(host, "192.0.2.2", 8080)).toBe("outside 192.0.2.1");
});

networkTest(
  "a port published on one address is reached there, and goes before one published on all",
  async (network) => {
    const { outside, call } = network;
    const c1 = network.container(2);
    const c2 = network.container(3);
    using _c1 = await servers(c1, "c1");
    using _c2 = await servers(c2, "c2");
    inNetns(network.host, "ip", "addr", "add", "192.0.2.11/24", "dev", "up0");
    const on = (hostIP: string, hostPort = 8080) => publishing([{ hostPort, containerPort: 80, hostIP }]);
    call(portmap, "ADD", on("192.0.2.11"), { container: c1, containerId: "c1" });
    expect(await askTcp(outside, "192.0.2.1", 8080)).toBeUndefined();
    call(portmap, "ADD", on("0.0.0.0"), { container: c2, containerId: "c2" });
    call(portmap, "ADD", on("127.0.0.1", 9090), { container: c2, containerId: "c2" });
    expect(await askTcp(outside, "192.0.2.11", 8080)).toBe("c1 192.0.2.2");
    expect(await askTcp(outside, "192.0.2.1", 8080)).toBe("c2 192.0.2.2");
    // 0.0.0.0 speaks of IPv4 alone.
    expect(await askTcp(outside, "2001:db8::1", 8080)).toBeUndefined();
    expect(await askTcp(outside, "192.0.2.1", 9090)).toBeUndefined();
    expect(await askTcp(network.host, "127.0.0.1", 9090)).toBe("c2 10.88.0.1");
  },
);

networkTest("a neighbour cannot use the host's loopback addresses", async (network) => {
  const { host, outside, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await servers(c1, "c1");
  using _local = serveTcp(host, "local", 631, "127.0.0.1");
  call(portmap, "ADD", publishing([{ hostPort: 8080, containerPort: 80, hostIP: "127.0.0.1" }]), { container: c1 });
  expect(await askTcp(host, "127.0.0.1", 8080)).toBe("c1 10.88.0.1");
  for (const neighbour of [c2.netns, outside]) {
    // Whoever owns a machine can have it send to 127.0.0.1.
    inNetns(neighbour, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo");
    inNetns(neighbour, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet");
    const bridge = neighbour === outside ? "192.0.2.1" : "10.88.0.1";
    inNetns(neighbour, "ip", "route", "replace", "127.0.0.1/32", "via", bridge, "dev", "eth0", "onlink");
    expect(await askTcp(neighbour, "127.0.0.1", 631)).toBeUndefined();
    expect(await askTcp(neighbour, "127.0.0.1", 8080)).toBeUndefined();
  }
  // The guard is what keeps it out: the kernel alone would let it in over the link that was opened.
  inNetns(host, "nft", "flush", "chain", "inet", "cni", "guard");
  expect(await askTcp(c2.netns, "127.0.0.1", 631)).toBe("local 10.88.0.3");
});

networkTest("route_localnet is set on the container's link, and only if it is needed", (network) => {
  const c1 = network.container(2);
  const opened = () =>
    inNetns(network.host, "sh", "-c", "grep -l 1 /proc/sys/net/ipv4/conf/*/route_localnet || true").trim();
  const mapping = { hostPort: 8080, containerPort: 80 };
  for (
    const config of [
      publishing([mapping], { snat: false }),
      publishing([{ ...mapping, hostIP: "192.0.2.1" }]),
      publishing([{ ...mapping, hostIP: "::" }]),
    ]
  ) {
    network.call(portmap, "ADD", config, { container: c1 });
    expect(opened()).toBe("");
    network.call(portmap, "DEL", config, { container: c1 });
  }
  network.call(portmap, "ADD", publishing([mapping]), { container: c1 });
  expect(opened()).toBe("/proc/sys/net/ipv4/conf/br0/route_localnet");
  return Promise.resolve();
});

networkTest("snat decides who is hidden, masqAll hides everybody", async (network) => {
  const { outside, host, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await servers(c1, "c1");
  const mapping = [{ hostPort: 8080, containerPort: 80 }];
  call(portmap, "ADD", publishing(mapping, { snat: false }), { container: c1 });
  expect(await askTcp(outside, "192.0.2.1", 8080)).toBe("c1 192.0.2.2");
  expect(await askTcp(c2.netns, "192.0.2.1", 8080)).toBeUndefined();
  expect(await askTcp(host, "127.0.0.1", 8080)).toBeUndefined();
  call(portmap, "DEL", publishing(mapping, { snat: false }), { container: c1 });
  expect(chains(host)).toEqual([]);
  call(portmap, "ADD", publishing(mapping, { masqAll: true }), { container: c1 });
  expect(await askTcp(outside, "192.0.2.1", 8080)).toBe("c1 10.88.0.1");
  expect(await askTcp(outside, "2001:db8::1", 8080)).toBe("c1 fd88::1");
  expect(chains(host)).toEqual(["hairpin-everybody"]);
});

networkTest("conditions keep others out, and concern their own network's ports only", async (network) => {
  const { host, outside, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await servers(c1, "c1");
  using _c2 = await servers(c2, "c2");
  inNetns(outside, "ip", "addr", "add", "192.0.2.3/24", "dev", "eth0");
  inNetns(host, "ip", "addr", "add", "192.0.2.11/24", "dev", "up0");
  const strict = {
    name: "strict",
    conditionsV4: ["!", "-s", "192.0.2.2/32", "-i", "up0"],
    conditionsV6: ["ip6", "saddr", "fd00::/8"],
  };
  const mapping = { hostPort: 8080, containerPort: 80 };
  const onAddress = { ...mapping, hostPort: 8081, hostIP: "192.0.2.11" };
  call(portmap, "ADD", publishing([mapping, onAddress], strict), { container: c1, containerId: "c1" });
  call(portmap, "ADD", publishing([{ ...mapping, hostPort: 8081 }, { ...mapping, hostPort: 8082 }]), {
    container: c2,
    containerId: "c2",
  });
  const ask = (port: number, to = "192.0.2.1") => askTcp(outside, to, port);
  expect(await ask(8080)).toBeUndefined();
  expect(await ask(8080, "2001:db8::1")).toBeUndefined();
  expect(await ask(8082)).toBe("c2 192.0.2.2");
  // Whom the conditions keep from the one address, meets the port as published on all.
  expect(await ask(8081, "192.0.2.11")).toBe("c2 192.0.2.2");
  inNetns(outside, "ip", "route", "replace", "192.0.2.0/24", "dev", "eth0", "src", "192.0.2.3");
  expect(await ask(8080)).toBe("c1 192.0.2.3");
  expect(await ask(8081, "192.0.2.11")).toBe("c1 192.0.2.3");
  expect(await askTcp(host, "192.0.2.1", 8080)).toBeUndefined();
  call(portmap, "CHECK", publishing([mapping, onAddress], strict), { container: c1, containerId: "c1" });
  call(portmap, "DEL", publishing([mapping, onAddress], strict), { container: c1, containerId: "c1" });
  expect(chains(host).filter((name) => name.includes("conditions"))).toEqual([]);
});

networkTest("of two containers that want one port, the second is refused and told who has it", async (network) => {
  const { host, outside, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await servers(c1, "c1");
  using _c2 = await servers(c2, "c2");
  call(portmap, "ADD", WEB, { container: c1, containerId: "first" });
  const before = listing(host);
  const config = publishing([{ hostPort: 9090, containerPort: 80 }, {
    hostPort: 5353,
    containerPort: 53,
    protocol: "UDP",
  }]);
  const { code, message } = refusal(() => call(portmap, "ADD", config, { container: c2, containerId: "second" }));
  expect(code).toBe(100);
  expect(message).toBe('Cannot publish host port 5353/udp: container "first" (network "web", interface "eth0") has it');
  expect(listing(host)).toBe(before);
  call(portmap, "DEL", config, { container: c2, containerId: "second" });
  expect(listing(host)).toBe(before);
  expect(await askUdp(outside, "192.0.2.1", 5353)).toBe("c1 192.0.2.2");
  // The same number of another protocol, or on an address of its own, is another port.
  const others = publishing([{ hostPort: 8080, containerPort: 80, protocol: "sctp" }, {
    hostPort: 8080,
    containerPort: 80,
    hostIP: "192.0.2.1",
  }]);
  call(portmap, "ADD", others, { container: c2, containerId: "second" });
  expect(await askTcp(outside, "192.0.2.1", 8080)).toBe("c2 192.0.2.2");
});

networkTest(
  "ADD may be repeated, replaces its own stale address, and a late DEL takes nothing from others",
  (network) => {
    const { host, call } = network;
    const c1 = network.container(2);
    const c2 = network.container(3);
    const result = call(portmap, "ADD", WEB, { container: c1 });
    const once = elements(host);
    expect(call(portmap, "ADD", WEB, { container: c1 })).toEqual(result);
    expect(elements(host)).toEqual(once);
    call(portmap, "CHECK", WEB, { container: c1 });
    expect(() => call(portmap, "CHECK", WEB, { container: c2 })).toThrow(
      /Check failed: .* host port 8080\/tcp leads elsewhere/,
    );
    call(portmap, "ADD", WEB, { container: c2 });
    expect(elements(host).filter((each) => each.startsWith("hostports4"))).toEqual([
      'hostports4: tcp . 8080 comment "web c1 eth0" : 10.88.0.3 . 80',
      'hostports4: udp . 5353 comment "web c1 eth0" : 10.88.0.3 . 53',
    ]);
    call(portmap, "DEL", WEB, { container: c2 });
    // A has port and address, then B has both, then A's DEL comes (again).
    call(portmap, "ADD", WEB, { container: c1, containerId: "a" });
    call(portmap, "DEL", WEB, { container: c1, containerId: "a" });
    call(portmap, "ADD", WEB, { container: c1, containerId: "b" });
    const held = elements(host);
    call(portmap, "DEL", WEB, { container: c1, containerId: "a" });
    call(portmap, "DEL", {}, { containerId: "a" });
    call(portmap, "DEL", WEB, { container: c1, containerId: "b", ifname: "net1" });
    call(portmap, "DEL", { ...WEB, name: "other" }, { container: c1, containerId: "b" });
    expect(elements(host)).toEqual(held);
    call(portmap, "CHECK", WEB, { container: c1, containerId: "b" });
    return Promise.resolve();
  },
);

for (
  const [name, config, withResult] of [
    ["the mappings", WEB, true],
    ["the mappings and no prevResult", WEB, false],
    ["neither mappings nor prevResult", {}, false],
    ["mappings that cannot be read", publishing([{ hostPort: 0, containerPort: 80 }]), true],
  ] as const
) {
  networkTest(`DEL with ${name} leaves nothing of the container`, (network) => {
    const container = network.container(2);
    network.call(portmap, "ADD", WEB, { container });
    expect(elements(network.host)).toHaveLength(6);
    network.call(portmap, "DEL", config, withResult ? { container } : {});
    network.call(portmap, "DEL", config, withResult ? { container } : {});
    expect(elements(network.host)).toEqual([]);
    expect(chains(network.host)).toEqual([]);
    return Promise.resolve();
  });
}

networkTest(
  "a UDP peer that keeps sending follows the port from one container to the next, and to the host",
  async (network) => {
    const { host, outside, call } = network;
    const c1 = network.container(2);
    const c2 = network.container(3);
    using _c1 = await servers(c1, "c1");
    using _c2 = await servers(c2, "c2");
    using _host = await serveUdp(host, "host", 5353);
    using _far = await serveUdp(outside, "outside", 5353);
    using peer = await udpClient(outside, "0.0.0.0");
    using passing = await udpClient(c2.netns, "0.0.0.0");
    inNetns(outside, "ip", "route", "add", "10.88.0.0/16", "via", "192.0.2.1");
    // Without any rule that translates, the kernel tracks no connections.
    call(portmap, "ADD", publishing([{ hostPort: 1, containerPort: 1 }]), { container: c1, containerId: "c0" });
    expect(await passing.ask("192.0.2.2", 5353)).toBe("outside 10.88.0.3");
    const flows = () => inNetns(host, "sh", "-c", "conntrack -L -f ipv4 -p udp 2>/dev/null").trim().split("\n");
    const unrelated = () =>
      flows().filter((flow) => /^udp +17 +\d+ +(\[\w+\] +)?src=10\.88\.0\.3 /.test(flow)).map((flow) =>
        /sport=\d+/.exec(flow)![0]
      );
    const before = unrelated();
    expect(await peer.ask("192.0.2.1", 5353)).toBe("host 192.0.2.2");
    call(portmap, "ADD", WEB, { container: c1, containerId: "c1" });
    expect(await peer.ask("192.0.2.1", 5353)).toBe("c1 192.0.2.2");
    call(portmap, "DEL", WEB, { container: c1, containerId: "c1" });
    expect(await peer.ask("192.0.2.1", 5353)).toBe("host 192.0.2.2");
    call(portmap, "ADD", WEB, { container: c2, containerId: "c2" });
    expect(await peer.ask("192.0.2.1", 5353)).toBe("c2 192.0.2.2");
    expect(unrelated()).toEqual(before);
  },
);

networkTest("GC removes what belongs to containers that live no more", (network) => {
  const { host, call } = network;
  const mapping = (hostPort: number) => publishing([{ hostPort, containerPort: 80 }]);
  call(portmap, "ADD", mapping(1), { container: network.container(2), containerId: "living" });
  call(portmap, "ADD", mapping(2), { container: network.container(3), containerId: "dead" });
  call(portmap, "ADD", { ...mapping(3), name: "other" }, { container: network.container(4), containerId: "dead" });
  call(portmap, "GC", { "cni.dev/valid-attachments": [{ containerID: "living", ifname: "eth0" }] });
  expect(elements(host).map((each) => each.replace(/ :.*/, ""))).toEqual([
    'hairpin4: 10.88.0.2 comment "web living eth0"',
    'hairpin4: 10.88.0.4 comment "other dead eth0"',
    'hairpin6: fd88::2 comment "web living eth0"',
    'hairpin6: fd88::4 comment "other dead eth0"',
    'hostports4: tcp . 1 comment "web living eth0"',
    'hostports4: tcp . 3 comment "other dead eth0"',
    'hostports6: tcp . 1 comment "web living eth0"',
    'hostports6: tcp . 3 comment "other dead eth0"',
  ]);
  return Promise.resolve();
});

networkTest("CHECK notices what is missing and what is not ours", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  call(portmap, "ADD", WEB, { container });
  call(portmap, "CHECK", WEB, { container });
  expect(() => call(portmap, "CHECK", WEB, { container, containerId: "c2" })).toThrow(/belongs to container "c1"/);
  inNetns(host, "nft", "delete", "element", "inet", "cni", "hairpin6", "{ fd88::2 }");
  expect(() => call(portmap, "CHECK", WEB, { container })).toThrow(/fd88::2 by a published port is missing/);
  inNetns(host, "nft", "delete", "table", "inet", "cni");
  expect(() => call(portmap, "CHECK", WEB, { container })).toThrow(/host port 8080\/tcp is missing/);
  call(portmap, "CHECK", {}, { container });
  return Promise.resolve();
});

networkTest("a thousand mappings are a thousand elements and the same rules", async (network) => {
  const { host, outside, call } = network;
  const container = network.container(2);
  using _c1 = await servers(container, "c1");
  const rules = () => inNetns(host, "nft", "-s", "-t", "list", "ruleset");
  call(portmap, "ADD", WEB, { container, containerId: "one" });
  const few = rules();
  const many = publishing(Array.from({ length: 1000 }, (_, i) => ({ hostPort: 10000 + i, containerPort: 80 })));
  call(portmap, "ADD", many, { container, containerId: "thousand" });
  expect(rules()).toBe(few);
  expect(elements(host).filter((each) => each.startsWith("hostports4"))).toHaveLength(1002);
  expect(await askTcp(outside, "192.0.2.1", 10999)).toBe("c1 192.0.2.2");
  call(portmap, "CHECK", many, { container, containerId: "thousand" });
  call(portmap, "DEL", many, { container, containerId: "thousand" });
  expect(elements(host).filter((each) => each.startsWith("hostports4"))).toHaveLength(2);
});

networkTest(
  "the result passes through in every version; without one, or without mappings, nothing is set up",
  (network) => {
    const { host, call } = network;
    const container = network.container(2);
    expect(call(portmap, "ADD", {}, { container })).toEqual({ cniVersion: "1.1.0", ...container.result });
    const old = { cniVersion: "0.2.0", ip4: { ip: "10.88.0.2/16" }, dns: {} };
    expect(call(portmap, "ADD", { ...WEB, cniVersion: "0.2.0" }, { container, prevResult: old })).toEqual(old);
    expect(elements(host)).toContain('hostports4: tcp . 8080 comment "web c1 eth0" : 10.88.0.2 . 80');
    call(portmap, "DEL", { ...WEB, cniVersion: "0.2.0" }, { container, prevResult: old });
    expect(refusal(() => call(portmap, "ADD", WEB, { container, prevResult: null })).code).toBe(7);
    expect(elements(host)).toEqual([]);
    return Promise.resolve();
  },
);

networkTest("addresses of other interfaces are not published, and what cannot be is said", (network) => {
  const { host, call, log } = network;
  const container = network.container(2);
  const interfaces = [{ name: "eth0" }, { name: "eth0", sandbox: container.netns.path }, {
    name: "net1",
    sandbox: "/x",
  }];
  const prevResult = {
    cniVersion: "1.1.0",
    interfaces,
    ips: [{ address: "10.1.0.1/16", interface: 0 }, { address: "10.1.0.2/16", interface: 2 }, {
      address: "10.1.0.3/16",
      interface: 1,
    }, {
      address: "10.1.0.4/16",
    }],
  };
  const config = publishing([{ hostPort: 1, containerPort: 2 }, { hostPort: 3, containerPort: 4, hostIP: "::" }], {
    backend: "iptables",
  });
  call(portmap, "ADD", config, { container, prevResult });
  expect(elements(host)).toEqual([
    'hairpin4: 10.1.0.3 comment "web c1 eth0" : jump hairpin-10.1.0.0/16',
    'hostports4: tcp . 1 comment "web c1 eth0" : 10.1.0.3 . 2',
  ]);
  expect(log).toEqual([
    'backend "iptables": the ports are published by nf_tables rules of this program all the same',
    "Cannot publish host port [::]:3/tcp: the container has no address of that family",
  ]);
  return Promise.resolve();
});

networkTest("STATUS is content where nf_tables can be used", (network) => {
  network.call(portmap, "STATUS", {});
  expect(refusal(() => network.call(portmap, "STATUS", { backend: "ipfw" })).code).toBe(7);
  return Promise.resolve();
});

test("keys, protocols and empty values are read as the ecosystem writes them", () => {
  const config = parsePortmap({
    Backend: "",
    SNAT: false,
    RuntimeConfig: {
      portmappings: [{ HostPort: 1, ContainerPort: 2, Protocol: "UDP", HostIP: "" }, {
        hostPort: 3,
        containerPort: 4,
        protocol: "",
      }],
    },
  });
  expect(config).toEqual({
    mappings: [{ hostPort: 1, containerPort: 2, protocol: "udp" }, { hostPort: 3, containerPort: 4, protocol: "tcp" }],
    snat: false,
    masqAll: false,
    conditions: {},
  });
});

for (
  const [config, message] of [
    [{ backend: "ipfw" }, 'backend must be "nftables" or "iptables": got "ipfw"'],
    [{ markMasqBit: 32 }, "markMasqBit must be a whole number from 0 to 31: got 32"],
    [
      { markMasqBit: 1, externalSetMarkChain: "X" },
      'externalSetMarkChain must be absent when markMasqBit is set: got "X"',
    ],
    [
      publishing([{ hostPort: 65536, containerPort: 1 }]),
      "portMappings[0].hostPort must be a whole number from 1 to 65535: got 65536",
    ],
    [
      publishing([{ hostPort: 1, containerPort: 0 }]),
      "portMappings[0].containerPort must be a whole number from 1 to 65535: got 0",
    ],
    [
      publishing([{ hostPort: 1, containerPort: 1, protocol: "icmp" }]),
      'portMappings[0].protocol must be "tcp", "udp" or "sctp": got "icmp"',
    ],
    [
      publishing([{ hostPort: 1, containerPort: 1, hostIP: "localhost" }]),
      'portMappings[0].hostIP must be an IP address such as "10.1.0.2": got "localhost"',
    ],
    [
      publishing([{ hostPort: 1, containerPort: 1 }, { hostPort: 1, containerPort: 2 }]),
      "portMappings[1] must be the only mapping of host port 1/tcp: got one to container port 2 besides one to 1",
    ],
    [
      { conditionsV4: ["-m", "mac"] },
      'conditionsV4 must be conditions such as -s, -d, -i, "ip saddr", "ip daddr" or "iifname": got "-m"',
    ],
    [
      { conditionsV4: ["-s", "fd00::/8"] },
      'conditionsV4 must be an IPv4 address or network in a condition: got "fd00::/8"',
    ],
    [
      { conditionsV6: ["ip", "saddr", "10.0.0.0/8"] },
      'conditionsV6 must be conditions such as -s, -d, -i, "ip6 saddr", "ip6 daddr" or "iifname": got "ip"',
    ],
    [{ conditionsV4: ["ip", "protocol"] }, 'conditionsV4 must be "saddr" or "daddr" behind "ip": got "protocol"'],
    [{ conditionsV4: ["-d"] }, "conditionsV4 must be an IPv4 address or network in a condition: got nothing more"],
    [
      { conditionsV4: ["iifname", "a-name-that-is-too-long"] },
      'conditionsV4 must be an interface name in a condition: got "a-name-that-is-too-long"',
    ],
  ] as const
) {
  test(`a configuration is refused: ${message}`, () => {
    expect(() => parsePortmap(config)).toThrow(message);
  });
}
