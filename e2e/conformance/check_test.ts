import { expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { runInNetns } from "../../testing/netns.ts";
import {
  ATTACHMENT_WITH_NETNS,
  type ConformanceNode,
  newConformanceNode,
  newRuntimeSandbox,
  SUPPORTED_PLUGINS,
  twoPluginNetwork,
  workingConfig,
} from "../../testing/conformance.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { bridgeTestConfig, portmapConfig } from "../../testing/fixture_configs.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const VERSIONS = ["0.4.0", "1.0.0", "1.1.0"];

/** A node with a container on a bridge, in a version. */
function attached(cniVersion: string): { node: ConformanceNode; config: JsonDocument } {
  const node = newConformanceNode();
  const config = { cniVersion, ...bridgeTestConfig(node, { ipMasq: true }) };
  return { node, config: { ...config, prevResult: node.succeed("bridge", "ADD", config) } };
}

test("CHK-01 CHECK compares with the interfaces and addresses of prevResult", () => {
  const { node, config } = attached("1.0.0");
  using _ = node;
  const { prevResult } = config;
  const other = (change: (result: JsonDocument) => void) => {
    const result = structuredClone(prevResult);
    change(result);
    return { ...config, prevResult: result };
  };
  node.fail("bridge", "CHECK", other((result) => result.ips[0].address = "10.5.0.77/24"));
  node.fail("bridge", "CHECK", other((result) => result.interfaces[2].mac = "0a:00:00:00:00:99"));
  node.fail("bridge", "CHECK", other((result) => result.interfaces[2].name = "eth7"));
  node.fail("bridge", "CHECK", other((result) => result.interfaces = []));
  node.succeed("bridge", "CHECK", config);
});

test("CHK-02 CHECK allows what a later plugin added", () => {
  for (const version of VERSIONS) {
    const { node, config } = attached(version);
    using _ = node;
    runInNetns(node.container, "ip", "route", "add", "10.77.0.0/16", "dev", "eth0");
    runInNetns(node.container, "ip", "addr", "add", "10.5.0.200/24", "dev", "eth0");
    runInNetns(node.container, "ip", "link", "add", "eth1", "type", "bridge");
    node.succeed("bridge", "CHECK", config);
  }
});

test("CHK-03 CHECK fails when an interface, address or route of prevResult is missing", () => {
  const damages = [
    ["ip", "link", "del", "eth0"],
    ["ip", "addr", "flush", "dev", "eth0"],
    ["ip", "route", "del", "default"],
  ];
  for (const damage of damages) {
    const { node, config } = attached("1.1.0");
    using _ = node;
    runInNetns(node.container, ...damage);
    expect(node.fail("bridge", "CHECK", config).msg).toContain("Check failed");
  }
});

test("CHK-04 CHECK fails when a rule or a reservation is missing", () => {
  const { node, config } = attached("1.1.0");
  using _ = node;
  const ports = portmapConfig(node, { prevResult: config.prevResult });
  node.succeed("portmap", "ADD", ports);
  rmSync(join(node.directory, "ipam/net/10.5.0.2"));
  node.fail("bridge", "CHECK", config);
  node.succeed("portmap", "CHECK", ports);
  runInNetns(node.host, "nft", "flush", "ruleset");
  node.fail("portmap", "CHECK", ports);
});

test("CHK-05 CHECK fails when the container cannot be reached", () => {
  for (const damage of [["set", "br5", "down"], ["del", "br5"]]) {
    const { node, config } = attached("1.1.0");
    using _ = node;
    runInNetns(node.host, "ip", "link", ...damage);
    node.fail("bridge", "CHECK", config);
  }
});

test("CHK-06 CHECK succeeds right after ADD", () => {
  for (const type of SUPPORTED_PLUGINS) {
    for (const cniVersion of VERSIONS) {
      using node = newConformanceNode();
      const { config, options } = workingConfig(type, node);
      const prevResult = node.succeed(type, "ADD", { ...config, cniVersion }, options);
      node.succeed(type, "CHECK", { ...config, cniVersion, prevResult }, options);
    }
  }
});

test("CHK-08 CHECK asks the IPAM plugin and returns its error", () => {
  using node = newConformanceNode();
  const result = { cniVersion: "1.0.0", ips: [{ address: "10.5.0.2/24" }] };
  const ipam = node.recorder("my-ipam", result);
  const config = { cniVersion: "1.0.0", bridge: "br5", ipam: { type: "my-ipam" } };
  const prevResult = JSON.parse(node.exec("bridge", "ADD", config).stdout);
  expect(node.exec("bridge", "CHECK", { ...config, prevResult })).toMatchObject({ exitCode: 0, stdout: "" });
  expect(ipam.env("CHECK")).toMatchObject({ CNI_COMMAND: "CHECK" });
  node.program("my-ipam", `echo '{"code":142,"msg":"the lease is gone"}'; exit 1`);
  const { exitCode, stdout } = node.exec("bridge", "CHECK", { ...config, prevResult });
  expect([exitCode, JSON.parse(stdout)]).toEqual([1, expect.objectContaining({ code: 142, msg: "the lease is gone" })]);
});

test("CHK-09 CHECK prints nothing, or an error", () => {
  const { node, config } = attached("0.4.0");
  using _ = node;
  expect(node.exec("bridge", "CHECK", config)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  runInNetns(node.container, "ip", "link", "del", "eth0");
  expect(JSON.parse(node.exec("bridge", "CHECK", config).stdout)).toMatchObject({ code: expect.any(Number) });
});

test("CHK-10 CHECK is refused before ADD and after DEL", () => {
  for (const cniVersion of VERSIONS) {
    using bench = newRuntimeSandbox();
    const list = twoPluginNetwork({ cniVersion });
    expect(errorOfCall(() => bench.check(list)).code).toBe(3);
    bench.add(list);
    bench.del(list);
    bench.takeCalls();
    expect(errorOfCall(() => bench.check(list)).code).toBe(3);
    expect(bench.takeCalls()).toEqual([]);
  }
});

/** The calls of CHECK after an ADD with everything. */
function checks(cniVersion: string) {
  using bench = newRuntimeSandbox();
  const list = twoPluginNetwork({ cniVersion });
  const result = bench.add(list, { args: [["K", "V"]], capabilityArgs: { ports: [80] } });
  const adds = bench.calls.splice(0);
  bench.check(list);
  return { result, adds, calls: bench.calls };
}

test("CHK-11 every plugin gets the final result of the ADD", () => {
  for (const version of VERSIONS) {
    const { result, calls } = checks(version);
    const wanted = result.ips!.map(({ address }) => address as string);
    for (const { config } of calls) expect(config.prevResult.ips.map((ip: JsonDocument) => ip.address)).toEqual(wanted);
    expect(calls).toHaveLength(2);
  }
});

test("CHK-12 the first error stops the chain", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork());
  bench.takeCalls();
  bench.fail("a CHECK", 42, "broken");
  expect(errorOfCall(() => bench.check(twoPluginNetwork())).code).toBe(42);
  expect(bench.takeCalls()).toEqual(["a CHECK"]);
});

test("CHK-15 disableCheck makes CHECK succeed without a call", () => {
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    using bench = newRuntimeSandbox();
    const list = twoPluginNetwork({ cniVersion, disableCheck: true });
    bench.add(list);
    bench.fail("a CHECK", 42, "broken");
    bench.check(list);
  }
});

test("CHK-16 CHECK has the parameters of the ADD", () => {
  for (const version of VERSIONS) {
    const { adds, calls } = checks(version);
    for (const [i, { env, config }] of calls.entries()) {
      expect(env).toEqual({ ...adds[i]!.env, CNI_COMMAND: "CHECK" });
      expect({ ...config, prevResult: 0 }).toEqual({ ...adds[i]!.config, prevResult: 0 });
    }
  }
});

test("CHK-17 CHECK has all of its variables", () => {
  expect(checks("1.0.0").calls[0]!.env).toEqual({
    PATH: "/bin",
    CNI_COMMAND: "CHECK",
    CNI_CONTAINERID: ATTACHMENT_WITH_NETNS.containerId,
    CNI_NETNS: ATTACHMENT_WITH_NETNS.netns,
    CNI_IFNAME: ATTACHMENT_WITH_NETNS.ifname,
    CNI_ARGS: "K=V",
    CNI_PATH: "/a:/b",
  });
});

test("CHK-18 plugins are checked in the order of the list", () => {
  expect(checks("1.0.0").calls.map(({ type }) => type)).toEqual(["a", "b"]);
});

test("CHK-19 a missing executable fails the CHECK", () => {
  using node = newConformanceNode();
  node.recorder("p", {});
  const list = node.file({ cniVersion: "1.0.0", name: "web", plugins: [{ type: "p" }] });
  expect(node.run("add", list, node.container.path)).toMatchObject({ exitCode: 0 });
  rmSync(join(node.directory, "bin/p"));
  const { exitCode, stderr } = node.run("check", list, node.container.path);
  expect([exitCode, stderr]).toEqual([1, expect.stringContaining('"p"')]);
});
