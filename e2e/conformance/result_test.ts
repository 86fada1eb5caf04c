import { expect, test } from "bun:test";
import { runInNetns } from "../../testing/netns.ts";
import { parseResult } from "../../spec/result.ts";
import { type ConformanceNode, newConformanceNode } from "../../testing/conformance.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { bridgeTestConfig, earlierResult, hostLocalConfig, portmapConfig } from "../../testing/fixture_configs.ts";

const OLD = ["0.1.0", "0.2.0"];
const MIDDLE = ["0.3.0", "0.3.1", "0.4.0"];
const NEW = ["1.0.0", "1.1.0"];
const MAC = expect.stringMatching(/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/);

/** Both families, with a default route for each. */
const dual = (node: ConformanceNode) =>
  hostLocalConfig(node, {
    subnet: undefined,
    ranges: [[{ subnet: "10.5.0.0/24" }], [{ subnet: "fd05::/64" }]],
    routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }],
  });

/** What bridge answers, with the node in which it did. */
function attached(
  cniVersion: string,
  more: (node: ConformanceNode) => object = () => ({}),
): Disposable & { node: ConformanceNode; result: JsonDocument } {
  const node = newConformanceNode();
  const result = node.succeed("bridge", "ADD", bridgeTestConfig(node, { cniVersion, ...more(node) }));
  return { node, result, [Symbol.dispose]: () => node[Symbol.dispose]() };
}

test("RES-01 up to 0.2.0 a result has ip4, ip6 and dns", () => {
  for (const cniVersion of OLD) {
    using node = newConformanceNode();
    expect(node.succeed("host-local", "ADD", { cniVersion, ipam: dual(node) })).toEqual({
      cniVersion,
      ip4: { ip: "10.5.0.2/24", gateway: "10.5.0.1", routes: [{ dst: "0.0.0.0/0" }] },
      ip6: { ip: "fd05::2/64", gateway: "fd05::1", routes: [{ dst: "::/0" }] },
      dns: {},
    });
  }
});

test("RES-02 a result of 0.3.0 has ips, and what is called ip is not looked at", () => {
  using made = attached("0.3.0");
  expect([made.result.ips?.length, made.result.ip]).toEqual([1, undefined]);
  expect(parseResult({ cniVersion: "0.3.0", ip: [{ version: "4", address: "10.0.0.1/8" }] }, "0.3.0").ips)
    .toBeUndefined();
});

test("RES-03 from 0.3.0 to 0.4.0 a result has interfaces, ips with their version, routes and dns", () => {
  for (const version of MIDDLE) {
    using made = attached(version);
    expect(Object.keys(made.result)).toEqual(["cniVersion", "interfaces", "ips", "routes", "dns"]);
    expect(Object.keys(made.result.interfaces[2])).toEqual(["name", "mac", "sandbox"]);
    expect(Object.keys(made.result.ips[0])).toEqual(["version", "address", "gateway", "interface"]);
    expect(made.result.routes).toEqual([{ dst: "0.0.0.0/0" }]);
  }
});

test('RES-04 the version of an address is "4" or "6" and told from the address', () => {
  for (const version of MIDDLE) {
    using made = attached(version, (node) => ({ ipam: dual(node) }));
    expect(made.result.ips.map((ip: JsonDocument) => [ip.version, ip.address, ip.gateway])).toEqual([
      ["4", "10.5.0.2/24", "10.5.0.1"],
      ["6", "fd05::2/64", "fd05::1"],
    ]);
    const wrong = { cniVersion: version, ips: [{ version: "4", address: "fd05::9/64" }] };
    expect(made.node.succeed("portmap", "ADD", { cniVersion: version, prevResult: wrong }).ips[0].version).toBe("6");
  }
});

test("RES-05 from 1.0.0 on an address has no version", () => {
  for (const version of NEW) {
    using made = attached(version);
    expect(Object.keys(made.result.ips[0])).toEqual(["address", "gateway", "interface"]);
  }
});

test("RES-06 interfaces have their hardware address", () => {
  for (const version of MIDDLE) {
    using made = attached(version);
    expect(made.result.interfaces.map(({ mac }: JsonDocument) => mac)).toEqual([MAC, MAC, MAC]);
    expect(runInNetns(made.node.container, "ip", "link", "show", "eth0")).toContain(made.result.interfaces[2].mac);
  }
});

test("RES-07 an interface in a container names its sandbox", () => {
  for (const version of MIDDLE) {
    using made = attached(version);
    const inside = made.result.interfaces.filter((each: JsonDocument) => each.sandbox);
    expect(inside.map((each: JsonDocument) => each.name)).toEqual(["eth0"]);
    const lo = made.node.succeed("loopback", "ADD", { cniVersion: version }, { ifname: "lo" });
    expect(lo.interfaces).toMatchObject([{ name: "lo", sandbox: made.node.container.path }]);
  }
});

test("RES-08 the sandbox is the whole path", () => {
  for (const version of MIDDLE) {
    using made = attached(version);
    expect(made.result.interfaces[2].sandbox).toBe(made.node.container.path);
    expect(made.node.container.path).toStartWith("/");
  }
});

test("RES-09 the sandbox is the value of CNI_NETNS, and absent on the host", () => {
  for (const version of NEW) {
    using made = attached(version);
    const sandboxes = made.result.interfaces.map((each: JsonDocument) => each.sandbox);
    expect(sandboxes).toEqual([undefined, undefined, made.node.container.path]);
  }
});

test("RES-10 interfaces are all that the plugin made, those of the host included", () => {
  for (const version of NEW) {
    using made = attached(version);
    const namesIn = (netns: ConformanceNode["host"]) =>
      JSON.parse(runInNetns(netns, "ip", "-j", "link")).map((each: JsonDocument) => each.ifname).filter((
        name: string,
      ) => name !== "lo");
    const { host, container } = made.node;
    const reported = made.result.interfaces.map((each: JsonDocument) => each.name).sort();
    expect(reported).toEqual([...namesIn(host), ...namesIn(container)].sort());
  }
});

test("RES-11 the interface of an address is an index into interfaces", () => {
  for (const version of [...MIDDLE, ...NEW]) {
    using made = attached(version);
    const { ips, interfaces } = made.result;
    expect(interfaces[ips[0].interface]).toMatchObject({ name: "eth0", sandbox: made.node.container.path });
  }
});

test("RES-12 all that the plugin knows is in the result", () => {
  for (const cniVersion of MIDDLE) {
    const dns = { nameservers: ["10.5.0.1"], domain: "a", search: ["a"], options: ["b"] };
    using made = attached(cniVersion, () => ({ dns }));
    const name = expect.stringMatching(/^veth/);
    expect(made.result).toEqual({
      cniVersion,
      interfaces: [{ name: "br5", mac: MAC }, { name, mac: MAC }, {
        name: "eth0",
        mac: MAC,
        sandbox: made.node.container.path,
      }],
      ips: [{ version: "4", interface: 2, address: "10.5.0.2/24", gateway: "10.5.0.1" }],
      routes: [{ dst: "0.0.0.0/0" }],
      dns,
    });
  }
});

test("RES-13 several addresses are several entries", () => {
  using made = attached("1.1.0", (node) => ({ ipam: dual(node) }));
  expect(made.result.ips.map((ip: JsonDocument) => [ip.address, ip.interface])).toEqual([["10.5.0.2/24", 2], [
    "fd05::2/64",
    2,
  ]]);
});

test("RES-14 addresses of the host may be in a result and are handed on", () => {
  for (const cniVersion of NEW) {
    using node = newConformanceNode();
    const { interfaces, ips } = earlierResult(node);
    const prevResult = {
      cniVersion,
      interfaces: [{ name: "br5" }, ...interfaces],
      ips: [{ address: "10.5.0.1/24", interface: 0 }, { ...ips[0], interface: 1 }],
    };
    expect(node.succeed("portmap", "ADD", portmapConfig(node, { cniVersion, prevResult }))).toEqual(prevResult);
    expect(runInNetns(node.host, "nft", "list", "ruleset")).toMatch(/tcp \. 8080 [^:]*: 10\.5\.0\.9 \. 80/);
  }
});

test("RES-15 destination and gateway of a route are of one family", () => {
  for (const cniVersion of [...MIDDLE, "1.1.0"]) {
    using node = newConformanceNode();
    for (const route of [{ dst: "0.0.0.0/0", gw: "fd05::1" }, { dst: "::/0", gw: "10.5.0.1" }]) {
      const { code, msg } = node.fail("host-local", "ADD", {
        cniVersion,
        ipam: hostLocalConfig(node, { routes: [route] }),
      });
      expect([code, msg]).toEqual([7, expect.stringContaining("ipam.routes[0]")]);
    }
    expect(node.succeed("host-local", "ADD", { cniVersion, ipam: dual(node) }).routes).toHaveLength(2);
  }
});

/** The routes of the container's main table but for those of the subnet. */
const routesOf = ({ container }: ConformanceNode): JsonDocument[] =>
  JSON.parse(runInNetns(container, "ip", "-j", "route")).filter((each: JsonDocument) => each.protocol !== "kernel");

test("RES-16 every route is one of the container's interface", () => {
  const routes = [{ dst: "0.0.0.0/0" }, { dst: "10.9.0.0/16", gw: "10.5.0.7" }];
  using made = attached("0.4.0", (node) => ({ ipam: hostLocalConfig(node, { routes }) }));
  expect(made.result.routes).toEqual(routes);
  expect(routesOf(made.node).map(({ dst, dev }) => [dst, dev])).toEqual([["default", "eth0"], ["10.9.0.0/16", "eth0"]]);
});

test("RES-17 up to 0.4.0 a route without a gateway gets one", () => {
  for (const version of [...OLD, ...MIDDLE]) {
    using made = attached(version);
    expect(routesOf(made.node)).toMatchObject([{ dst: "default", gateway: "10.5.0.1" }]);
  }
});

test("RES-18 from 1.0.0 on a route without a gateway gets that of the address", () => {
  for (const version of NEW) {
    using made = attached(version, (node) => ({ ipam: hostLocalConfig(node, { gateway: "10.5.0.200" }) }));
    expect(routesOf(made.node)).toMatchObject([{ dst: "default", gateway: "10.5.0.200" }]);
  }
});

/** What comes out when this goes in as prevResult. */
function handedOn(part: object): JsonDocument {
  using node = newConformanceNode();
  return node.succeed("portmap", "ADD", { prevResult: { cniVersion: "1.1.0", ...part } });
}

test("RES-19 an interface may have mtu, socketPath and pciID", () => {
  const interfaces = [{ name: "a", mtu: 1400, socketPath: "/run/s", pciID: "0000:3b:02.1" }, { name: "b" }];
  expect(handedOn({ interfaces })).toEqual({ cniVersion: "1.1.0", interfaces });
  expect(handedOn({ interfaces: [{ name: "a", mtu: 0, socketPath: "", pciID: null }] }).interfaces).toEqual([{
    name: "a",
  }]);
});

test("RES-20 a route may have mtu, advmss, priority, table and scope", () => {
  const all = { dst: "10.0.0.0/8", gw: "10.5.0.1", mtu: 1400, advmss: 1360, priority: 5, table: 7, scope: 253 };
  expect(handedOn({ routes: [all] }).routes).toEqual([all]);
  const zeros = { dst: "10.0.0.0/8", mtu: 0, advmss: 0, priority: 0, table: 0, scope: 0 };
  expect(handedOn({ routes: [zeros] }).routes).toEqual([{ dst: "10.0.0.0/8", table: 0, scope: 0 }]);
  using node = newConformanceNode();
  const negative = { routes: [{ ...all, priority: -1 }] };
  expect(node.fail("portmap", "ADD", { prevResult: negative })).toMatchObject({ code: 6 });
});

test("RES-22 a prevResult without a version has that of the configuration", () => {
  using node = newConformanceNode();
  const middle = { ips: [{ version: "4", address: "10.5.0.9/24" }], dns: {} };
  const forms = {
    "0.2.0": { ip4: { ip: "10.5.0.9/24" }, dns: {} },
    "0.4.0": middle,
    "1.1.0": { ips: [{ address: "10.5.0.9/24" }] },
  };
  for (const [cniVersion, form] of Object.entries(forms)) {
    for (const own of [{}, { cniVersion: "" }, { cniVersion: null }]) {
      const prevResult = { ...form, ...own };
      expect(node.succeed("portmap", "ADD", { cniVersion, prevResult })).toEqual({ ...form, cniVersion });
    }
  }
});
