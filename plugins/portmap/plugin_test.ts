import { expect } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { runInNetns, until } from "../../testing/netns.ts";
import {
  newUdpClient,
  NO_ANSWER_TIMEOUT_MS,
  requestTcp,
  requestUdp,
  serveTcp,
  serveTcpAndUdp,
  serveUdp,
} from "../../testing/traffic.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import portmap from "./plugin.ts";
import { portMappingConfig, WEB_PORT_MAPPINGS } from "../../testing/portmap.ts";
import { containerChains, nftElements } from "../../testing/ruleset.ts";

for (
  const [title, bridged] of [
    ["", false],
    // Then the kernel bridges what a container sends to itself, which takes hairpin mode of its port (`hairpinMode` of the bridge plugin).
    [" where bridged packets pass the rules", true],
  ] as const
) {
  bridgeNetworkTest(
    `published ports are reached by everybody, over both families and protocols${title}`,
    async (network) => {
      const { host, outside, call } = network;
      const c1 = network.container(2);
      const c2 = network.container(3);
      if (bridged) {
        const calls = "for each in /proc/sys/net/bridge/bridge-nf-call-ip*; do echo 1 >$each; done";
        runInNetns(host, "sh", "-e", "-c", `bridge link set dev veth2 hairpin on; ${calls}`);
      }
      using _c1 = await serveTcpAndUdp(c1.netns, "c1");
      call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c1 });
      const who = [
        [outside, "192.0.2.1", "192.0.2.2"],
        [outside, "2001:db8::1", "2001:db8::2"],
        [host, "192.0.2.1", "192.0.2.1"],
        [host, "10.88.0.1", "10.88.0.1"],
        [host, "2001:db8::1", "2001:db8::1"],
        // Loopback addresses, neighbours and the container itself are hidden behind the bridge's address.
        [host, "127.0.0.1", "10.88.0.1"],
        [host, "127.1.2.3", "10.88.0.1"],
        [host, "::1", "fd88::1"],
        [c1.netns, "192.0.2.1", "10.88.0.1"],
        [c1.netns, "10.88.0.1", "10.88.0.1"],
        [c1.netns, "2001:db8::1", "fd88::1"],
        [c2.netns, "192.0.2.1", "10.88.0.1"],
        [c2.netns, "10.88.0.1", "10.88.0.1"],
        [c2.netns, "fd88::1", "fd88::1"],
      ] as const;
      for (const [from, to, seen] of who) {
        const answers = [await requestTcp(from, to, 8080), await requestUdp(from, to, 5353)];
        expect([to, ...answers]).toEqual([to, `c1 ${seen}`, `c1 ${seen}`]);
      }
      call(portmap, "DEL", WEB_PORT_MAPPINGS, { container: c1 });
      expect(await requestTcp(outside, "192.0.2.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
      expect(await requestTcp(host, "127.0.0.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
    },
  );
}

bridgeNetworkTest("a program at ::1 keeps a port that is published over IPv4", async (network) => {
  const { host, call } = network;
  const c1 = network.container(2);
  using _c1 = await serveTcpAndUdp(c1.netns, "c1");
  using _host = serveTcp(host, "host", 8080, "::1");
  call(portmap, "ADD", portMappingConfig([{ hostPort: 8080, containerPort: 80, hostIP: "0.0.0.0" }]), {
    container: c1,
  });
  expect(await requestTcp(host, "::1", 8080)).toBe("host ::1");
  expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("c1 10.88.0.1");
});

bridgeNetworkTest("a port that is given for all addresses in several ways is published once", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  const mapping = { hostPort: 8080, containerPort: 80 };
  call(portmap, "ADD", portMappingConfig([mapping]), { container });
  const once = nftElements(host);
  call(portmap, "DEL", {}, { container });
  for (const hostIPs of [["", "0.0.0.0"], ["0.0.0.0", "::"], ["::", "0.0.0.0", ""]]) {
    const config = portMappingConfig(hostIPs.map((hostIP) => ({ ...mapping, hostIP })));
    call(portmap, "ADD", config, { container });
    expect(nftElements(host)).toEqual(once);
    call(portmap, "CHECK", config, { container });
    call(portmap, "DEL", config, { container });
    expect(nftElements(host)).toEqual([]);
  }
  return Promise.resolve();
});

bridgeNetworkTest("what only passes through the host is not caught, whatever hostIP says", async (network) => {
  const { host, outside, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await serveTcpAndUdp(c1.netns, "c1");
  using _far = serveTcp(outside, "outside", 8080);
  runInNetns(outside, "ip", "route", "add", "10.88.0.0/16", "via", "192.0.2.1");
  const foreign = { hostPort: 8080, containerPort: 80, hostIP: "192.0.2.2" };
  call(portmap, "ADD", portMappingConfig([{ hostPort: 8080, containerPort: 80 }, foreign]), { container: c1 });
  expect(await requestTcp(c2.netns, "192.0.2.2", 8080)).toBe("outside 10.88.0.3");
  expect(await requestTcp(host, "192.0.2.2", 8080)).toBe("outside 192.0.2.1");
});

bridgeNetworkTest(
  "a port published on one address is reached there, and goes before one published on all",
  async (network) => {
    const { outside, call } = network;
    const c1 = network.container(2);
    const c2 = network.container(3);
    using _c1 = await serveTcpAndUdp(c1.netns, "c1");
    using _c2 = await serveTcpAndUdp(c2.netns, "c2");
    runInNetns(network.host, "ip", "addr", "add", "192.0.2.11/24", "dev", "up0");
    const on = (hostIP: string, hostPort = 8080) => portMappingConfig([{ hostPort, containerPort: 80, hostIP }]);
    call(portmap, "ADD", on("192.0.2.11"), { container: c1, containerId: "c2" });
    expect(await requestTcp(outside, "192.0.2.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
    call(portmap, "ADD", on("0.0.0.0"), { container: c2, containerId: "c2" });
    call(portmap, "ADD", on("127.0.0.1", 9090), { container: c2, containerId: "c2" });
    expect(await requestTcp(outside, "192.0.2.11", 8080)).toBe("c1 192.0.2.2");
    expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("c2 192.0.2.2");
    // 0.0.0.0 speaks of IPv4 alone.
    expect(await requestTcp(outside, "2001:db8::1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
    expect(await requestTcp(outside, "192.0.2.1", 9090, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
    expect(await requestTcp(network.host, "127.0.0.1", 9090)).toBe("c2 10.88.0.1");
  },
);

const sentPackets = (netns: Netns): number =>
  Number(runInNetns(netns, "awk", '$1 == "eth0:" { print $10 }', "/proc/net/dev"));

bridgeNetworkTest("a neighbour cannot use the host's loopback addresses", async (network) => {
  const { host, outside, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await serveTcpAndUdp(c1.netns, "c1");
  using _local = serveTcp(host, "local", 631, "127.0.0.1");
  using _local6 = serveTcp(host, "local", 631, "::1");
  const loopback = ["127.0.0.1", "::1"].map((hostIP) => ({ hostPort: 8080, containerPort: 80, hostIP }));
  call(portmap, "ADD", portMappingConfig(loopback), { container: c1 });
  expect(await requestTcp(host, "127.0.0.1", 8080)).toBe("c1 10.88.0.1");
  expect(await requestTcp(host, "::1", 8080)).toBe("c1 fd88::1");
  for (const neighbour of [c2.netns, outside]) {
    // Whoever owns a machine can have it send to 127.0.0.1.
    runInNetns(neighbour, "ip", "addr", "del", "127.0.0.1/8", "dev", "lo");
    runInNetns(neighbour, "sh", "-c", "echo 1 >/proc/sys/net/ipv4/conf/eth0/route_localnet");
    const bridge = neighbour === outside ? "192.0.2.1" : "10.88.0.1";
    runInNetns(neighbour, "ip", "route", "replace", "127.0.0.1/32", "via", bridge, "dev", "eth0", "onlink");
    const bridge6 = neighbour === outside ? "2001:db8::1" : "fd88::1";
    runInNetns(neighbour, "ip", "addr", "del", "::1/128", "dev", "lo");
    runInNetns(neighbour, "ip", "route", "replace", "::1/128", "via", bridge6, "dev", "eth0", "onlink");
    for (const address of ["127.0.0.1", "::1"]) {
      const sent = sentPackets(neighbour);
      expect(await requestTcp(neighbour, address, 631, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
      expect(await requestTcp(neighbour, address, 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
      expect(sentPackets(neighbour)).toBeGreaterThanOrEqual(sent + 2);
    }
  }
  // No link was opened that a rule would have to guard.
  runInNetns(host, "nft", "flush", "ruleset");
  expect(await requestTcp(c2.netns, "127.0.0.1", 631, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
});

bridgeNetworkTest("snat decides who is hidden, masqAll hides everybody", async (network) => {
  const { outside, host, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await serveTcpAndUdp(c1.netns, "c1");
  const mapping = [{ hostPort: 8080, containerPort: 80 }];
  call(portmap, "ADD", portMappingConfig(mapping, { snat: false }), { container: c1 });
  expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("c1 192.0.2.2");
  expect(await requestTcp(c2.netns, "192.0.2.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  expect(await requestTcp(host, "127.0.0.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  call(portmap, "DEL", portMappingConfig(mapping, { snat: false }), { container: c1 });
  expect(containerChains(host)).toEqual([]);
  call(portmap, "ADD", portMappingConfig(mapping, { masqAll: true }), { container: c1 });
  expect(await requestTcp(outside, "192.0.2.1", 8080)).toBe("c1 10.88.0.1");
  expect(await requestTcp(outside, "2001:db8::1", 8080)).toBe("c1 fd88::1");
  expect(containerChains(host)).toEqual(["hairpin-everybody"]);
});

bridgeNetworkTest("conditions keep others out, and concern their own network's ports only", async (network) => {
  const { host, outside, call } = network;
  const c1 = network.container(2);
  const c2 = network.container(3);
  using _c1 = await serveTcpAndUdp(c1.netns, "c1");
  using _c2 = await serveTcpAndUdp(c2.netns, "c2");
  runInNetns(outside, "ip", "addr", "add", "192.0.2.3/24", "dev", "eth0");
  runInNetns(host, "ip", "addr", "add", "192.0.2.11/24", "dev", "up0");
  const strict = {
    name: "strict",
    conditionsV4: ["!", "-s", "192.0.2.2/32", "-i", "up0"],
    conditionsV6: ["ip6", "saddr", "fd00::/8"],
  };
  const mapping = { hostPort: 8080, containerPort: 80 };
  const onAddress = { ...mapping, hostPort: 8081, hostIP: "192.0.2.11" };
  call(portmap, "ADD", portMappingConfig([mapping, onAddress], strict), { container: c1, containerId: "c1" });
  // The same plugin twice in one list: one attachment, once with conditions and once without.
  const onAll = portMappingConfig([{ ...mapping, hostPort: 8081 }], { name: "strict" });
  call(portmap, "ADD", onAll, { container: c2, containerId: "c1" });
  call(portmap, "ADD", portMappingConfig([{ ...mapping, hostPort: 8082 }]), { container: c2, containerId: "c2" });
  const ask = (port: number, to = "192.0.2.1") => requestTcp(outside, to, port);
  expect(await ask(8080)).toBeUndefined();
  expect(await ask(8080, "2001:db8::1")).toBeUndefined();
  expect(await ask(8082)).toBe("c2 192.0.2.2");
  // Whom the conditions keep from the one address, meets the port as published on all.
  expect(await ask(8081, "192.0.2.11")).toBe("c2 192.0.2.2");
  runInNetns(outside, "ip", "route", "replace", "192.0.2.0/24", "dev", "eth0", "src", "192.0.2.3");
  expect(await ask(8080)).toBe("c1 192.0.2.3");
  expect(await ask(8081, "192.0.2.11")).toBe("c1 192.0.2.3");
  expect(await requestTcp(host, "192.0.2.1", 8080, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  call(portmap, "CHECK", portMappingConfig([mapping, onAddress], strict), { container: c1, containerId: "c1" });
  call(portmap, "DEL", portMappingConfig([mapping, onAddress], strict), { container: c1, containerId: "c1" });
  expect(containerChains(host).filter((name) => name.includes("conditions"))).toEqual([]);
});

for (const family of [4, 6] as const) {
  bridgeNetworkTest(
    `a UDP peer that keeps sending follows the port from one container to the next, and to the host, over IPv${family}`,
    async (network) => {
      const { host, outside, call } = network;
      const [any, address, far, near, passer] = family === 4
        ? ["0.0.0.0", "192.0.2.1", "192.0.2.2", "10.88.0.0/16", "10.88.0.3"]
        : ["::", "2001:db8::1", "2001:db8::2", "fd88::/64", "fd88::3"];
      const c1 = network.container(2);
      const c2 = network.container(3);
      using _c1 = await serveTcpAndUdp(c1.netns, "c1");
      using _c2 = await serveTcpAndUdp(c2.netns, "c2");
      using _host = await serveUdp(host, "host", 5353);
      const config = { ...WEB_PORT_MAPPINGS, hostPortInUse: "ignore" };
      using _far = await serveUdp(outside, "outside", 5353);
      using peer = await newUdpClient(outside, any);
      using passing = await newUdpClient(c2.netns, any);
      runInNetns(outside, "ip", "route", "add", near, "via", address);
      // Without any rule that translates, the kernel tracks no connections.
      call(portmap, "ADD", portMappingConfig([{ hostPort: 1, containerPort: 1 }]), {
        container: c1,
        containerId: "c0",
      });
      expect(await passing.request(far, 5353)).toBe(`outside ${passer}`);
      const flows = () =>
        runInNetns(host, "sh", "-c", `conntrack -L -f ipv${family} -p udp 2>/dev/null`).trim().split("\n");
      const unrelated = () =>
        flows().filter((flow) => new RegExp(`^udp +17 +\\d+ +(\\[\\w+\\] +)?src=${passer} `).test(flow)).map((flow) =>
          /sport=\d+/.exec(flow)![0]
        );
      const before = unrelated();
      expect(await peer.request(address, 5353)).toBe(`host ${far}`);
      call(portmap, "ADD", config, { container: c1, containerId: "c1" });
      expect(await peer.request(address, 5353)).toBe(`c1 ${far}`);
      call(portmap, "DEL", config, { container: c1, containerId: "c1" });
      expect(await peer.request(address, 5353)).toBe(`host ${far}`);
      call(portmap, "ADD", config, { container: c2, containerId: "c2" });
      expect(await peer.request(address, 5353)).toBe(`c2 ${far}`);
      expect(unrelated()).toEqual(before);
    },
  );
}

bridgeNetworkTest("a TCP client that a container has aborted reaches the next one from its port", async (network) => {
  const { host, outside, call } = network;
  const [c1, c2] = [network.container(2), network.container(3)];
  const isEstablished = () =>
    runInNetns(host, "sh", "-c", "conntrack -L -p tcp -f ipv4; conntrack -L -p tcp -f ipv6").includes(" ESTABLISHED ");
  // Its calls come from one port.
  runInNetns(outside, "sh", "-c", "echo 4001 4001 >/proc/sys/net/ipv4/ip_local_port_range");
  using _server = serveTcp(c2.netns, "c2", 80);
  for (const [client, address] of [["192.0.2.2", "192.0.2.1"], ["2001:db8::2", "2001:db8::1"]] as const) {
    call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c1, containerId: "c1" });
    const { program } = c1.netns.run(() => ({ program: Bun.spawn(["busybox", "nc", "-l", "-p", "80"]) }));
    await until(() => runInNetns(c1.netns, "ss", "-Hltn").includes(":80 "));
    // The kernel answers the call. When the program ends that should have taken it, the kernel aborts it.
    program.kill("SIGSTOP");
    const answer = requestTcp(outside, address, 8080);
    await until(isEstablished);
    program.kill("SIGKILL");
    expect(await answer).toBeUndefined();
    call(portmap, "DEL", WEB_PORT_MAPPINGS, { container: c1, containerId: "c1" });
    call(portmap, "ADD", WEB_PORT_MAPPINGS, { container: c2, containerId: "c2" });
    expect(await requestTcp(outside, address, 8080, 5000)).toBe(`c2 ${client}`);
    call(portmap, "DEL", WEB_PORT_MAPPINGS, { container: c2, containerId: "c2" });
  }
});
