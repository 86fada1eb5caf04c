import { expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { runInNetns } from "../../testing/netns.ts";
import { deriveRequest, type NetworkConfigList, parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { VERSIONS } from "../../spec/version.ts";
import { loadNetwork } from "../../runtime/load.ts";
import {
  newConformanceNode,
  newRuntimeSandbox,
  SUPPORTED_PLUGINS,
  twoPluginNetwork,
  workingConfig,
} from "../../testing/conformance.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { bridgeTestConfig, hostLocalConfig } from "../../testing/fixture_configs.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";

const parse = (list: object): NetworkConfigList => parseNetworkConfigList(JSON.stringify(list));
const typesOf = ({ plugins }: NetworkConfigList) => plugins.map(({ type }) => type);
const upTo = (last: string) => VERSIONS.filter((version) => version <= last);
const from = (first: string) => VERSIONS.filter((version) => version >= first);

/** Loads a network by name from a directory with these files. */
function load(name: string, files: Readonly<Record<string, object>>): { list: NetworkConfigList; log: string[] } {
  const directory = mkdtempSync(join(tmpdir(), "cni-conformance-"));
  const log: string[] = [];
  try {
    for (const [file, content] of Object.entries(files)) {
      mkdirSync(dirname(join(directory, file)), { recursive: true });
      writeFileSync(join(directory, file), JSON.stringify(content));
    }
    return { list: loadNetwork(name, { directory, readStdin: () => "", log: (line) => void log.push(line) }), log };
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test("CFG-01 a single plugin's configuration is an object whose cniVersion, name and type are strings", () => {
  for (const cniVersion of upTo("0.4.0")) {
    const single = { cniVersion, name: "web", type: "a" };
    expect(parse(single)).toMatchObject({ cniVersion, name: "web", plugins: [{ type: "a" }] });
    for (const key of ["cniVersion", "name", "type"]) {
      expect(errorOfCall(() => parse({ ...single, [key]: 1 })).code).toBe(7);
    }
  }
});

test("CFG-02 a list has a cniVersion, a name and an array of plugin objects", () => {
  for (const cniVersion of from("0.3.0")) {
    const list = { cniVersion, name: "web", plugins: [{ type: "a" }, { type: "b" }] };
    expect(typesOf(parse(list))).toEqual(["a", "b"]);
    for (const plugins of [{}, [], [1], null, [{ type: "a" }, "b"]]) {
      expect(errorOfCall(() => parse({ ...list, plugins })).code).toBe(7);
    }
  }
});

test("CFG-03 a file with a single plugin is run as the list of one that it stands for", () => {
  const single = { cniVersion: "1.0.0", name: "web", type: "a", key: 1 };
  const list = { cniVersion: "1.0.0", name: "web", plugins: [{ type: "a", key: 1 }] };
  const requests = [single, list].map((each) =>
    deriveRequest(parse(each), parse(each).plugins[0]!, { command: "ADD" })
  );
  expect(JSON.parse(requests[0]!)).toEqual(JSON.parse(requests[1]!));
});

test('CFG-05 a network name begins with a letter or digit and goes on with those, "_", "." and "-"', () => {
  using node = newConformanceNode();
  for (const name of ["a", "7", "web-1_x.y", "Z9"]) {
    expect(twoPluginNetwork({ name }).name).toBe(name);
    node.succeed("loopback", "STATUS", { name });
  }
  for (const name of ["", "-a", ".a", "_a", "a b", "ä", "a\n", "a:b", "a%", "a;b"]) {
    expect(errorOfCall(() => twoPluginNetwork({ name })).code).toBe(7);
    for (const type of SUPPORTED_PLUGINS) expect(node.fail(type, "STATUS", { name }).code).toBe(7);
  }
});

test("CFG-06 a network name never leads to another file", () => {
  using node = newConformanceNode();
  for (const name of ["..", ".", "a/b", "../a", "a\\b", "a\0b", "/etc"]) {
    expect(errorOfCall(() => twoPluginNetwork({ name })).code).toBe(7);
    for (const type of SUPPORTED_PLUGINS) expect(node.fail(type, "STATUS", { name }).code).toBe(7);
  }
});

test("CFG-07 the type of a plugin is the name of its executable", () => {
  using node = newConformanceNode();
  const [mine, other] = [node.recorder("my-plugin"), node.recorder("my-plugin2")];
  const list = node.file({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "my-plugin" }] });
  expect(node.run("add", list, node.container.path)).toMatchObject({ exitCode: 0 });
  expect(mine.stdin("ADD").type).toBe("my-plugin");
  expect(other.stdin("ADD")).toBeUndefined();
});

const OUTSIDE = ["a/b", "../a", "/bin/true", "a\\b", "..", ".", "a\0"];

test("CFG-08 a type with a path separator is refused", () => {
  for (const type of OUTSIDE) expect(errorOfCall(() => twoPluginNetwork({ plugins: [{ type }] })).code).toBe(7);
});

test("CFG-09 an IPAM type is held to the same rule, by the runtime and by every plugin", () => {
  using node = newConformanceNode();
  for (const type of OUTSIDE) {
    expect(errorOfCall(() => twoPluginNetwork({ plugins: [{ type: "a", ipam: { type } }] })).code).toBe(7);
    for (const plugin of SUPPORTED_PLUGINS) expect(node.fail(plugin, "STATUS", { ipam: { type } }).code).toBe(7);
  }
});

test("CFG-10 routes of the ipam section lead into the network, by the subnet's gateway unless they name one", () => {
  for (const cniVersion of upTo("0.2.0")) {
    using node = newConformanceNode();
    const routes = [{ dst: "10.9.0.0/16" }, { dst: "10.8.0.0/16", gw: "10.5.0.7" }];
    node.succeed("bridge", "ADD", {
      cniVersion,
      ...bridgeTestConfig(node, { ipam: hostLocalConfig(node, { routes }) }),
    });
    const present = JSON.parse(runInNetns(node.container, "ip", "-j", "route")) as JsonDocument[];
    const gatewayOf = (dst: string) => present.find((each) => each.dst === dst)?.gateway;
    expect([gatewayOf("10.9.0.0/16"), gatewayOf("10.8.0.0/16")]).toEqual(["10.5.0.1", "10.5.0.7"]);
  }
});

test("CFG-11 ipMasq makes the host masquerade for the network", () => {
  for (const ipMasq of [false, true]) {
    using node = newConformanceNode();
    node.succeed("bridge", "ADD", bridgeTestConfig(node, { ipMasq }));
    const rules = runInNetns(node.host, "nft", "list", "ruleset");
    expect(/ip saddr != [^\n]*masquerade|masquerade/.test(rules) && rules.includes("net c1 eth0")).toBe(ipMasq);
  }
});

test("CFG-12 dns lists keep their order, and anything but lists of strings is refused", () => {
  using node = newConformanceNode();
  const dns = {
    nameservers: ["10.5.0.2", "fd00::2"],
    domain: "b.a",
    search: ["z.a", "a.a"],
    options: ["ndots:2", "a"],
  };
  expect(node.succeed("bridge", "ADD", bridgeTestConfig(node, { dns })).dns).toEqual(dns);
  for (const wrong of [{ nameservers: "10.5.0.2" }, { search: [1] }, { options: {} }, { domain: [] }]) {
    expect(errorOfCall(() => twoPluginNetwork({ plugins: [{ type: "a", dns: wrong }] })).code).toBe(7);
    for (const type of SUPPORTED_PLUGINS) expect(node.fail(type, "STATUS", { dns: wrong }).code).toBe(7);
  }
});

test("CFG-15 every plugin ignores what it does not understand in args", () => {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    const args = { labels: { appVersion: "1.0" }, cni: { labels: [{ key: "k", value: "v" }], unknown: 1 }, x: null };
    node.succeed(type, "ADD", { ...config, cniVersion: "0.4.0", args }, options);
  }
});

test("CFG-17 every plugin leaves alone keys that it does not know", () => {
  for (const type of SUPPORTED_PLUGINS) {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    const unknown = { keyA: ["some more", { a: null }], "example.com/x": 18446744073709551615n.toString(), "": 1 };
    expect(node.succeed(type, "ADD", { ...config, ...unknown }, options)).toHaveProperty("cniVersion");
  }
});

test("CFG-18 keys that the runtime does not know reach the plugin unchanged, to the last digit", () => {
  const unknown = '"big":18446744073709551615,"huge":1e400,"Mixed.Case":[null,{"é":"\u2028"}],"__proto__":{"a":1}';
  const list = parseNetworkConfigList(`{"cniVersion":"1.1.0","name":"web","plugins":[{"type":"a",${unknown}}]}`);
  expect(deriveRequest(list, list.plugins[0]!, { command: "ADD" })).toContain(unknown);
});

test("CFG-19 a plugin that reads ipMasq, ipam and dns does what they say", () => {
  using node = newConformanceNode();
  const dns = { nameservers: ["10.5.0.2"] };
  const result = node.succeed("bridge", "ADD", bridgeTestConfig(node, { ipMasq: true, dns }));
  expect(result).toMatchObject({ ips: [{ address: "10.5.0.2/24", gateway: "10.5.0.1" }], dns });
  expect(runInNetns(node.host, "nft", "list", "ruleset")).toContain("net c1 eth0");
});

test("CFG-20 disableCheck is a boolean, or the same as text", () => {
  for (const cniVersion of from("0.4.0")) {
    const read = (disableCheck: unknown) => twoPluginNetwork({ cniVersion, disableCheck }).disableCheck;
    expect([true, "true", "TRUE", false, "false", "False"].map(read)).toEqual([true, true, true, false, false, false]);
    for (const wrong of ["yes", "", 1, null, []]) expect(errorOfCall(() => read(wrong)).code).toBe(7);
  }
});

test("CFG-21 no CHECK is sent to a network with disableCheck", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ disableCheck: true }));
  bench.check(twoPluginNetwork({ disableCheck: true }));
  expect(bench.takeCalls()).toEqual(["a ADD", "b ADD"]);
});

test("CFG-22 no GC is sent to a network with disableGC", () => {
  using bench = newRuntimeSandbox();
  bench.add(twoPluginNetwork({ disableGC: true }));
  bench.gc(twoPluginNetwork({ disableGC: true }));
  expect(bench.takeCalls()).toEqual(["a ADD", "b ADD"]);
});

test("CFG-23 name and cniVersion of the list replace those of the plugin's object", () => {
  for (const cniVersion of ["0.3.0", "0.3.1", "0.4.0"]) {
    using bench = newRuntimeSandbox();
    bench.add(
      twoPluginNetwork({ cniVersion, plugins: [{ type: "a", name: "own", cniVersion: "1.1.0", CNIVersion: "x" }] }),
    );
    expect(bench.calls[0]!.config).toEqual({ type: "a", name: "web", cniVersion });
  }
});

const web = (more: object = {}) => ({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "a" }], ...more });

test("CFG-24 plugins in files of the network's directory are put behind those of the list", () => {
  const loose = { "web/20-c.conf": { type: "c" }, "web/10-b.conf": { type: "b" } };
  expect(typesOf(load("web", { "web.conflist": web(), ...loose }).list)).toEqual(["a", "b", "c"]);
  const none = { cniVersion: "1.1.0", name: "web", loadOnlyInlinedPlugins: false };
  expect(typesOf(load("web", { "web.conflist": none, ...loose }).list)).toEqual(["b", "c"]);
});

test("CFG-25 loadOnlyInlinedPlugins leaves out plugins in files of their own", () => {
  const only = web({ loadOnlyInlinedPlugins: true });
  expect(typesOf(load("web", { "web.conflist": only, "web/b.conf": { type: "b" } }).list)).toEqual(["a"]);
});

test("CFG-26 loadOnlyInlinedPlugins without plugins is refused", () => {
  const list = { cniVersion: "1.1.0", name: "web", loadOnlyInlinedPlugins: true };
  expect(errorOfCall(() => load("web", { "web.conflist": list, "web/b.conf": { type: "b" } })).code).toBe(7);
});

test("CFG-28 a plugin in a file of its own belongs to the one network whose directory it is in", () => {
  const files = {
    "web.conflist": web(),
    "db.conflist": { ...web(), name: "db" },
    "web/b.conf": { type: "b" },
    "db/c.conf": { type: "c", name: "web" },
  };
  expect(typesOf(load("web", files).list)).toEqual(["a", "b"]);
  expect(typesOf(load("db", files).list)).toEqual(["a", "c"]);
});

test("CFG-29 of the gathered plugins a bad one is refused by name, and all good ones are called", () => {
  using bench = newRuntimeSandbox();
  const files = { "web.conflist": web(), "web/b.conf": { type: "b" }, "web/c.conf": { type: "c" } };
  bench.add(load("web", files).list);
  expect(bench.takeCalls()).toEqual(["a ADD", "b ADD", "c ADD"]);
  const { message, details } = errorOfCall(() => load("web", { ...files, "web/b.conf": { type: 1 } }));
  expect([message, details]).toEqual([
    expect.stringContaining("type must be"),
    expect.stringContaining("web/b.conf:1:"),
  ]);
});

test("CFG-30 cniVersions is an array of versions", () => {
  expect(twoPluginNetwork({ cniVersions: ["0.3.1", "1.0.0"] }).cniVersion).toBe("1.1.0");
  for (const cniVersions of ["1.0.0", [1], [null], {}, ["x.y"], ["1.0.0", "v1.1.0"]]) {
    expect(errorOfCall(() => twoPluginNetwork({ cniVersions })).code).toBe(7);
  }
});

test("CFG-31 what is not optional is required", () => {
  using node = newConformanceNode();
  for (const list of [{ plugins: [{ type: "a" }] }, { name: "web", plugins: [{}] }]) {
    expect(errorOfCall(() => parse({ cniVersion: "0.4.0", ...list })).code).toBe(7);
  }
  const incomplete: readonly [object, number][] = [
    [{ name: undefined }, 7],
    [{ prevResult: { ips: [{ version: "4" }] } }, 6],
    [{ prevResult: { routes: [{ gw: "10.0.0.1" }] } }, 6],
  ];
  for (const [config, code] of incomplete) {
    for (const type of SUPPORTED_PLUGINS) {
      expect(node.fail(type, "CHECK", { cniVersion: "0.4.0", ...config }).code).toBe(code);
    }
  }
});

test("CFG-32 a configuration need not be a file", () => {
  const list = loadNetwork("-", { directory: "/nonexistent", readStdin: () => JSON.stringify(web()), log: () => {} });
  expect(list).toMatchObject({ name: "web", plugins: [{ type: "a" }] });
});
