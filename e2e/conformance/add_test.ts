import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runInNetns } from "../../testing/netns.ts";
import {
  ATTACHMENT_WITH_NETNS,
  newConformanceNode,
  newRuntimeSandbox,
  twoPluginNetwork,
} from "../../testing/conformance.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { bridgeTestConfig, hostLocalConfig, portmapConfig } from "../../testing/fixture_configs.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const links = (netns: Parameters<typeof runInNetns>[0]): string[] =>
  JSON.parse(runInNetns(netns, "ip", "-j", "link")).map((each: JsonDocument) => each.ifname).sort();

test("ADD-01 ADD puts an interface into the container and its counterpart on the host", () => {
  for (const cniVersion of ["0.1.0", "0.4.0"]) {
    using node = newConformanceNode();
    node.succeed("bridge", "ADD", { cniVersion, ...bridgeTestConfig(node) });
    expect(links(node.container)).toEqual(["eth0", "lo"]);
    expect(links(node.host)).toEqual(["br5", "lo", expect.stringMatching(/^veth/)]);
  }
});

test("ADD-02 ADD gets address and routes from the IPAM plugin", () => {
  using node = newConformanceNode();
  node.succeed("bridge", "ADD", {
    cniVersion: "0.4.0",
    ...bridgeTestConfig(node, { ipam: hostLocalConfig(node, { subnet: "10.7.0.0/24" }) }),
  });
  const show = (...what: string[]) => runInNetns(node.container, "ip", ...what);
  expect(show("addr", "show", "eth0")).toContain("inet 10.7.0.2/24");
  expect(show("route")).toContain("default via 10.7.0.1");
});

test("ADD-03 ADD creates CNI_IFNAME, or adjusts the interface that is there", () => {
  using node = newConformanceNode();
  node.succeed("bridge", "ADD", bridgeTestConfig(node), { ifname: "net0" });
  expect(links(node.container)).toEqual(["lo", "net0"]);
  node.succeed("loopback", "ADD", {}, { ifname: "lo" });
  expect(runInNetns(node.container, "ip", "addr", "show", "lo")).toContain("127.0.0.1/8");
  expect(links(node.container)).toEqual(["lo", "net0"]);
});

test("ADD-04 ADD prints a result on stdout", () => {
  using node = newConformanceNode();
  const { exitCode, stdout } = node.exec("bridge", "ADD", bridgeTestConfig(node));
  expect([exitCode, JSON.parse(stdout)]).toEqual([
    0,
    expect.objectContaining({ ips: [{ address: "10.5.0.2/24", gateway: "10.5.0.1", interface: 2 }] }),
  ]);
});

test("ADD-05 up to 0.2.0 the result is what the IPAM plugin returned", () => {
  for (const cniVersion of ["0.1.0", "0.2.0"]) {
    using node = newConformanceNode();
    const config = { cniVersion, ...bridgeTestConfig(node) };
    const ipam = node.succeed("host-local", "ADD", config);
    node.succeed("host-local", "DEL", config);
    const next = { ...config, ipam: { ...config.ipam, rangeStart: "10.5.0.2", rangeEnd: "10.5.0.2" } };
    expect(node.succeed("bridge", "ADD", next)).toEqual(ipam);
  }
});

test("ADD-06 in 0.3 and 0.4 ips and dns are the IPAM plugin's, with the interface filled in", () => {
  for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0"]) {
    using node = newConformanceNode();
    const ipam = { cniVersion, ips: [{ version: "4", address: "10.5.0.7/24" }], dns: { search: ["b", "a"] } };
    node.recorder("my-ipam", ipam);
    const { stdout } = node.exec("bridge", "ADD", { cniVersion, bridge: "br5", ipam: { type: "my-ipam" } });
    const { interfaces, ips, dns } = JSON.parse(stdout);
    expect([ips, dns]).toEqual([[{ ...ipam.ips[0], interface: 2 }], ipam.dns]);
    expect(interfaces[2].name).toBe("eth0");
  }
});

test("ADD-07 ADD refuses an interface name that the container has already, and leaves that interface alone", () => {
  using node = newConformanceNode();
  runInNetns(node.container, "ip", "link", "add", "eth0", "type", "bridge");
  expect(node.call("bridge", "ADD", bridgeTestConfig(node)).exitCode).toBe(1);
  expect(runInNetns(node.container, "ip", "-d", "link", "show", "eth0")).toContain(" bridge ");
  expect(links(node.host)).not.toContainEqual(expect.stringMatching(/^veth/));
});

/** What chained plugins make of an earlier result. */
function chained(cniVersion: string): [prevResult: JsonDocument, results: JsonDocument[]] {
  using node = newConformanceNode();
  const prevResult = {
    cniVersion,
    interfaces: [{ name: "br5", mac: "0a:00:00:00:00:01" }, { name: "eth0", sandbox: node.container.path }],
    ips: [{ ...(cniVersion < "1" && { version: "4" }), interface: 1, address: "10.5.0.9/24", gateway: "10.5.0.1" }],
    routes: [{ dst: "0.0.0.0/0", gw: "10.5.0.1" }],
    dns: { nameservers: ["10.5.0.1"], search: ["b", "a"] },
  };
  const config = { cniVersion, prevResult };
  return [prevResult, [
    node.succeed("portmap", "ADD", portmapConfig(node, config)),
    node.succeed("portmap", "ADD", { ...config, runtimeConfig: {} }, { containerId: "c2" }),
    node.succeed("loopback", "ADD", config, { ifname: "lo" }),
  ]];
}

test("ADD-08 a chained plugin of 0.3 and 0.4 hands on prevResult", () => {
  for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0"]) {
    const [prevResult, results] = chained(cniVersion);
    for (const result of results) expect(result).toEqual(prevResult);
  }
});

test("ADD-10 a chained plugin of 0.3 and 0.4 refuses to work without the prevResult that it needs", () => {
  using node = newConformanceNode();
  for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0"]) {
    const { code, msg } = node.fail("portmap", "ADD", portmapConfig(node, { cniVersion, prevResult: null }));
    expect([code, msg]).toEqual([7, expect.stringContaining("prevResult")]);
  }
});

test("ADD-11 a chained plugin of 1.x passes prevResult through", () => {
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    const [prevResult, results] = chained(cniVersion);
    for (const result of results) expect(result).toEqual(prevResult);
  }
});

test("ADD-12 the output of a plugin that changes nothing visible is equivalent to prevResult", () => {
  using node = newConformanceNode();
  const extras = { mtu: 1400, socketPath: "/s", pciID: "0000:00:01.0" };
  const prevResult = {
    interfaces: [{ name: "eth0", mac: "0a:00:00:00:00:02", sandbox: node.container.path, ...extras }],
    ips: [{ address: "fd00::2/64", interface: 0 }, { address: "192.0.2.9/32", interface: -1 }],
    routes: [{ dst: "10.0.0.0/8", mtu: 1300, advmss: 1200, priority: 5, table: 0, scope: 0 }],
  };
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    expect(node.succeed("portmap", "ADD", { cniVersion, prevResult })).toEqual({ cniVersion, ...prevResult });
  }
});

test("ADD-13 every plugin after the first gets the result of the one before it", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ plugins: [{ type: "a" }, { type: "b" }, { type: "c" }] }));
  const ips = bench.calls.map(({ config }) => config.prevResult?.ips.map((ip: JsonDocument) => ip.address));
  expect(ips).toEqual([undefined, ["10.0.0.1/24"], ["10.0.0.1/24", "10.0.0.2/24"]]);
});

test("ADD-14 the first plugin gets no prevResult", () => {
  using bench = newRuntimeSandbox();
  for (const cniVersion of ["1.0.0", "1.1.0"]) bench.add(twoPluginNetwork({ cniVersion }), { containerId: cniVersion });
  for (const { config } of bench.calls.filter(({ type }) => type === "a")) {
    expect(config).not.toHaveProperty("prevResult");
  }
});

test("ADD-15 a missing executable fails the ADD", () => {
  using bench = newRuntimeSandbox();
  const missing = twoPluginNetwork({ cniVersion: "1.0.0", plugins: [{ type: "a" }, { type: "missing" }] });
  expect(errorOfCall(() => bench.add(missing)).message).toContain('"missing"');
  using node = newConformanceNode();
  const { exitCode, stderr } = node.run(
    "add",
    node.file({ cniVersion: "1.0.0", name: "web", plugins: [{ type: "no-such" }] }),
    node.container.path,
  );
  expect([exitCode, stderr]).toEqual([1, expect.stringContaining("no-such")]);
});

test("ADD-16 the first error stops the chain and is returned", () => {
  using bench = newRuntimeSandbox();
  bench.fail("b ADD", 42, "broken");
  const plugins = [{ type: "a" }, { type: "b" }, { type: "c" }];
  expect(errorOfCall(() => bench.add(twoPluginNetwork({ plugins })))).toMatchObject({ code: 42 });
  expect(bench.takeCalls().filter((each) => each.endsWith("ADD"))).toEqual(["a ADD", "b ADD"]);
});

test("ADD-17 a failed ADD of 0.3 and 0.4 is undone in reverse, also by plugins that were not reached", () => {
  for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0"]) {
    using bench = newRuntimeSandbox();
    bench.fail("a ADD", 42, "broken");
    expect(errorOfCall(() => bench.add(twoPluginNetwork({ cniVersion }))).code).toBe(42);
    expect(bench.takeCalls()).toEqual(["a ADD", "b DEL", "a DEL"]);
  }
});

test("ADD-18 a failed ADD of 1.x is followed by a DEL", () => {
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    using bench = newRuntimeSandbox();
    bench.fail("b ADD", 42, "broken");
    expect(errorOfCall(() => bench.add(twoPluginNetwork({ cniVersion }))).code).toBe(42);
    expect(bench.takeCalls()).toEqual(["a ADD", "b ADD", "b DEL", "a DEL"]);
  }
});

test("ADD-19 a second ADD for the same network, container and interface is refused", () => {
  using bench = newRuntimeSandbox();
  const list = twoPluginNetwork({ cniVersion: "0.4.0" });
  bench.add(list);
  bench.takeCalls();
  expect(errorOfCall(() => bench.add(list)).message).toContain("attached already");
  expect(bench.takeCalls()).toEqual([]);
  bench.del(list);
  bench.add(list);
});

test("ADD-20 a second ADD for the same container and interface is refused, also by another network", () => {
  using node = newConformanceNode();
  const file = (name: string, bridge: string) =>
    node.file({ cniVersion: "1.1.0", name, plugins: [{ type: "bridge", bridge }] });
  const [one, other] = [file("one", "br1"), file("other", "br2")];
  expect(node.run("add", one, node.container.path)).toMatchObject({ exitCode: 0 });
  for (const path of [one, other]) expect(node.run("add", path, node.container.path).exitCode).toBe(1);
  expect(links(node.host).filter((each) => each.startsWith("br"))).toEqual(["br1"]);
  expect(links(node.container)).toEqual(["eth0", "lo"]);
});

test("ADD-21 the final result is stored", () => {
  using bench = newRuntimeSandbox();
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    bench.add(twoPluginNetwork({ cniVersion, name: cniVersion }));
    const stored = JSON.parse(readFileSync(join(bench.directory, `results/${cniVersion}-c1-eth0`), "utf8"));
    expect(stored.result).toEqual({ cniVersion, ips: [{ address: "10.0.0.1/24" }, { address: "10.0.0.2/24" }] });
  }
});

test("ADD-22 ADD has all of its variables", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ cniVersion: "1.0.0" }), { args: [["K", "V"]] });
  expect(bench.calls[0]!.env).toEqual({
    PATH: "/bin",
    CNI_COMMAND: "ADD",
    CNI_CONTAINERID: "c1",
    CNI_NETNS: ATTACHMENT_WITH_NETNS.netns,
    CNI_IFNAME: "eth0",
    CNI_ARGS: "K=V",
    CNI_PATH: "/a:/b",
  });
});

test("ADD-23 plugins run in the order of the list, each with its own configuration", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ plugins: [{ type: "a", key: 1 }, { type: "b", key: 2 }, { type: "a", key: 3 }] }));
  expect(bench.calls.map(({ type, config }) => [type, config.type, config.key])).toEqual([
    ["a", "a", 1],
    ["b", "b", 2],
    ["a", "a", 3],
  ]);
});
