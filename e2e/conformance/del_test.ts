import { expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
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
import { bridgeTestConfig, earlierResult, hostLocalConfig, portmapConfig } from "../../testing/fixture_configs.ts";
import { testedPlugins } from "../../testing/fixture.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const links = (netns: Parameters<typeof runInNetns>[0]): string[] =>
  JSON.parse(runInNetns(netns, "ip", "-j", "link")).map((each: JsonDocument) => each.ifname);
/** Files that stand for addresses in use. */
const reservations = ({ directory }: ConformanceNode): string[] =>
  readdirSync(join(directory, "ipam/net")).filter((name) => /^\d/.test(name));
const veths = ({ host }: ConformanceNode) => links(host).filter((name) => name.startsWith("veth"));
const owned = ({ host }: ConformanceNode) => runInNetns(host, "nft", "list", "ruleset").includes("net c1 eth0");

test("DEL-01 DEL removes the interface from the container", () => {
  using node = newConformanceNode();
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    const prevResult = node.succeed("bridge", "ADD", bridgeTestConfig(node, { cniVersion }));
    expect(links(node.container)).toContain("eth0");
    node.succeed("bridge", "DEL", bridgeTestConfig(node, { cniVersion, prevResult }));
    expect(links(node.container)).toEqual(["lo"]);
  }
});

test("DEL-02 DEL frees everything that the container had in the network", () => {
  using node = newConformanceNode();
  const config = bridgeTestConfig(node, { cniVersion: "0.4.0", ipMasq: true });
  const prevResult = node.succeed("bridge", "ADD", config);
  node.succeed("portmap", "ADD", portmapConfig(node, { cniVersion: "0.4.0", prevResult }));
  expect([reservations(node), owned(node), veths(node).length]).toEqual([["10.5.0.2"], true, 1]);
  node.succeed("portmap", "DEL", portmapConfig(node, { cniVersion: "0.4.0", prevResult }));
  node.succeed("bridge", "DEL", { ...config, prevResult });
  expect([reservations(node), owned(node), veths(node).length]).toEqual([[], false, 0]);
});

test("DEL-03 DEL succeeds when there is nothing to remove", () => {
  for (const type of SUPPORTED_PLUGINS) {
    for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]) {
      using node = newConformanceNode();
      const { config, options } = workingConfig(type, node);
      expect(node.call(type, "DEL", { ...config, cniVersion }, options)).toEqual({ exitCode: 0, stdout: "" });
    }
  }
});

test.each([...testedPlugins()])(
  "%s: DEL succeeds where there is nothing to remove, whatever the plugin's own keys are",
  (type) => {
    using node = newConformanceNode();
    // Of every kind, none of which a key of that name has.
    const names = ["bridge", "master", "mode", "mtu", "vlanId", "vrfname", "table", "device", "hwaddr", "mac", "owner"];
    const spoiled = Object.fromEntries([...names, "args", "dataDir"].map((name) => [name, [7]]));
    for (const config of [{}, { ...spoiled, prevResult: {} }, spoiled]) {
      for (const netns of [undefined, null, "/nonexistent"]) {
        expect(node.call(type, "DEL", config, { netns })).toEqual({ exitCode: 0, stdout: "" });
      }
    }
  },
);

test("DEL-04 DEL goes as far as it can when state is missing", () => {
  using node = newConformanceNode();
  const config = bridgeTestConfig(node, { ipMasq: true });
  const prevResult = node.succeed("bridge", "ADD", config);
  runInNetns(node.container, "ip", "link", "del", "eth0");
  runInNetns(node.host, "ip", "link", "del", "br5");
  node.succeed("bridge", "DEL", { ...config, prevResult });
  expect([reservations(node), owned(node)]).toEqual([[], false]);
});

test("DEL-05 DEL without namespace and prevResult cleans what it can and succeeds", () => {
  using node = newConformanceNode();
  const config = bridgeTestConfig(node, { cniVersion: "0.4.0", ipMasq: true });
  node.succeed("bridge", "ADD", config);
  node.succeed("portmap", "ADD", portmapConfig(node, { cniVersion: "0.4.0" }));
  node.succeed("portmap", "DEL", { cniVersion: "0.4.0" }, { netns: null });
  node.succeed("bridge", "DEL", config, { netns: null });
  expect([reservations(node), owned(node)]).toEqual([[], false]);
});

test("DEL-06 DEL succeeds with an empty prevResult", () => {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    node.succeed(type, "ADD", config, options);
    for (const prevResult of [{}, null]) node.succeed(type, "DEL", { ...config, prevResult }, options);
  }
});

test("DEL-07 an IPAM plugin releases the address though the namespace is gone", () => {
  using node = newConformanceNode();
  const config = { ipam: hostLocalConfig(node) };
  for (const netns of [null, "/nonexistent", node.directory]) {
    node.succeed("host-local", "ADD", config);
    expect(reservations(node)).toHaveLength(1);
    node.succeed("host-local", "DEL", config, { netns });
    expect(reservations(node)).toEqual([]);
  }
});

test("DEL-09 bridge delegates DEL and cleans up though the namespace is gone", () => {
  for (const netns of [null, "/nonexistent"]) {
    using node = newConformanceNode();
    const config = bridgeTestConfig(node, { ipMasq: true });
    const prevResult = node.succeed("bridge", "ADD", config);
    node.succeed("bridge", "DEL", { ...config, prevResult }, { netns });
    expect([reservations(node), owned(node), veths(node)]).toEqual([[], false, []]);
  }
});

/** Twice with all there is to know, and once without the namespace. */
function expectRepeatable(cniVersion: string): void {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    const prevResult = node.succeed(type, "ADD", { ...config, cniVersion }, options);
    for (const netns of [undefined, undefined, null]) {
      node.succeed(type, "DEL", { ...config, cniVersion, prevResult }, { ...options, ...netns === null && { netns } });
    }
  }
}

test("DEL-10 in 0.4.0 DEL can be repeated", () => expectRepeatable("0.4.0"));

test("DEL-11 from 1.0.0 on DEL can be repeated", () => {
  for (const cniVersion of ["1.0.0", "1.1.0"]) expectRepeatable(cniVersion);
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork());
  for (let i = 0; i < 3; i++) bench.del(twoPluginNetwork());
});

test("DEL-12 plugins run in reverse order of the list", () => {
  for (const cniVersion of ["0.1.0", "0.4.0", "1.1.0"]) {
    using bench = newRuntimeSandbox();
    bench.del(twoPluginNetwork({ cniVersion, plugins: [{ type: "a" }, { type: "b" }, { type: "c" }] }));
    expect(bench.takeCalls()).toEqual(["c DEL", "b DEL", "a DEL"]);
  }
});

/** What each plugin's DEL has as prevResult, after an ADD. */
function sentToDel(cniVersion: string): JsonDocument[] {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ cniVersion }));
  bench.takeCalls();
  bench.del(twoPluginNetwork({ cniVersion }));
  return bench.calls.map(({ config }) => config.prevResult);
}

test("DEL-13 before 0.4.0 DEL has no prevResult", () => {
  for (const version of ["0.1.0", "0.2.0", "0.3.0", "0.3.1"]) {
    expect(sentToDel(version)).toEqual([undefined, undefined]);
  }
});

test("DEL-14 in 0.4.0 DEL has the result of the ADD", () => {
  const ips = [{ version: "4", address: "10.0.0.1/24" }, { version: "4", address: "10.0.0.2/24" }];
  const prevResult = { cniVersion: "0.4.0", ips, dns: {} };
  expect(sentToDel("0.4.0")).toEqual([prevResult, prevResult]);
});

test("DEL-15 from 1.0.0 on DEL has the final result for every plugin", () => {
  for (const cniVersion of ["1.0.0", "1.1.0"]) {
    const prevResult = { cniVersion, ips: [{ address: "10.0.0.1/24" }, { address: "10.0.0.2/24" }] };
    expect(sentToDel(cniVersion)).toEqual([prevResult, prevResult]);
  }
});

test("DEL-16 the stored result is gone after a successful DEL, and only then", () => {
  using bench = newRuntimeSandbox();
  const list = twoPluginNetwork({ cniVersion: "0.4.0" });
  const stored = () => existsSync(join(bench.directory, "results/web-c1-eth0"));
  bench.add(list);
  bench.fail("a DEL", 11, "busy");
  expect(errorOfCall(() => bench.del(list)).code).toBe(11);
  expect(stored()).toBe(true);
  delete bench.answers["a DEL"];
  bench.del(list);
  expect(stored()).toBe(false);
});

test("DEL-17 DEL has the parameters of the ADD", () => {
  using bench = newRuntimeSandbox();
  const list = twoPluginNetwork({ cniVersion: "0.4.0" });
  bench.add(list, { args: [["K", "V"]], capabilityArgs: { ports: [80] } });
  bench.del(list);
  const [add, del] = ["ADD", "DEL"].map((command) =>
    bench.calls.find((call) => call.type === "b" && call.command === command)!
  );
  expect(del!.env).toEqual({ ...add!.env, CNI_COMMAND: "DEL" });
  expect({ ...del!.config, prevResult: 0 }).toEqual({ ...add!.config, prevResult: 0 });
});

test("DEL-18 the first error stops the chain and is returned", () => {
  using bench = newRuntimeSandbox();
  bench.fail("b DEL", 42, "broken");
  expect(errorOfCall(() => bench.del(twoPluginNetwork())).code).toBe(42);
  expect(bench.takeCalls()).toEqual(["b DEL"]);
});

test("DEL-19 a missing executable fails the DEL", () => {
  using bench = newRuntimeSandbox();
  const list = twoPluginNetwork({ cniVersion: "1.0.0", plugins: [{ type: "a" }, { type: "missing" }] });
  expect(errorOfCall(() => bench.del(list)).message).toContain('"missing"');
});

test("DEL-20 DEL needs no CNI_NETNS, CNI_ARGS and CNI_PATH", () => {
  using bench = newRuntimeSandbox();
  bench.del(twoPluginNetwork({ cniVersion: "1.0.0" }));
  expect(bench.calls[0]!.env).toMatchObject({
    CNI_COMMAND: "DEL",
    CNI_CONTAINERID: ATTACHMENT_WITH_NETNS.containerId,
    CNI_IFNAME: ATTACHMENT_WITH_NETNS.ifname,
    CNI_NETNS: "",
    CNI_ARGS: "",
  });
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config: { ipam: _, ...config } } = workingConfig(type, node);
    const env = { CNI_PATH: "", CNI_ARGS: "" };
    expect(node.exec(type, "DEL", { ...config, prevResult: earlierResult(node) }, { netns: null, env })).toMatchObject({
      exitCode: 0,
      stdout: "",
    });
  }
});
