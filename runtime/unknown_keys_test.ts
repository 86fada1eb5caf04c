import { beforeAll, describe, expect, test } from "bun:test";
import { findPlugin, loadPlugins, pluginNames } from "../plugins/registry.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import type { Schema } from "../spec/schema.ts";
import { DEFAULT_NETWORK } from "./default_network.ts";
import { findUnknownKeys, shapeOf } from "./unknown_keys.ts";

beforeAll(() => loadPlugins());
const keysOf = (type: string) => findPlugin(type)?.config;

/** What is said of one plugin's object. */
function told(plugin: object): string[] {
  const text = JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [plugin] });
  return findUnknownKeys(parseNetworkConfigList(text), keysOf).map((each) =>
    each.replace('network "web": plugins[0].', "")
  );
}

test.each<[object, string, string]>([
  [{ type: "bridge", isGatway: true }, "isGatway", "isGateway"],
  [{ type: "bridge", IPMASK: true }, "IPMASK", "ipMasq"],
  [{ type: "bridge", vlanTrunk: [{ id: 1 }, { minId: 2, max: 3, maxIDs: 4 }] }, "vlanTrunk[1].maxIDs", "maxID"],
  [{ type: "bridge", ipma: { type: "static" } }, "ipma", "ipam"],
  [{ type: "bridge", ipam: { typ: "static" } }, "ipam.typ", "type"],
  [
    { type: "bridge", ipam: { type: "host-local", ranges: [[{ subnet: "::/64", rangStart: "::1" }]] } },
    "ipam.ranges[0][0].rangStart",
    "rangeStart",
  ],
  [{ type: "ptp", ipam: { type: "static", adresses: [] } }, "ipam.adresses", "addresses"],
  [{ type: "bridge", dns: { nameserver: [] } }, "dns.nameserver", "nameservers"],
  [{ type: "portmap", capabilties: { portMappings: true } }, "capabilties", "capabilities"],
  [{ type: "portmap", capabilities: { portMapping: true } }, "capabilities.portMapping", "portMappings"],
  [{ type: "ptp", ipam: { type: "host-local" }, capabilities: { ip: true } }, "capabilities.ip", "ips"],
  [{ type: "firewall", ingresPolicy: "isolated" }, "ingresPolicy", "ingressPolicy"],
  [{ type: "bandwidth", ingresRate: 1 }, "ingresRate", "ingressRate"],
  [{ type: "tuning", args: { cni: { txqlenn: 1 } } }, "args.cni.txqlenn", "txQLen"],
  [{ type: "nosuch", capabilites: {} }, "capabilites", "capabilities"],
])("of %j it is said that %s was to be %s", (plugin, path, meant) => {
  expect(told(plugin)).toEqual([`${path} is not read; did you mean "${meant}"?`]);
});

test.each<[string, object]>([
  ["keys in any case", { type: "bridge", ISGATEWAY: true, Ipam: { TYPE: "host-local", RangeStart: "::1" } }],
  ["keys that are like none", { type: "bridge", description: "", comment: "", logFile: "", _note: 1 }],
  ["kernel parameters, which are data", { type: "tuning", sysctl: { "net.core.somaxcon": "1", mtux: "2" } }],
  ["capabilities of others", {
    type: "bridge",
    capabilities: { aliases: true, cgroupPath: true, infinibandGUID: true },
  }],
  ["keys of an IPAM plugin of others", { type: "bridge", ipam: { type: "whereabouts", range: "", gatway: "" } }],
  ["keys of a plugin of others", { type: "nosuch", isGatway: true }],
])("nothing is said of %s", (_what, plugin) => {
  expect(told(plugin)).toEqual([]);
});

test("the list's own keys are matched exactly, and said to be misspelt in another case too", () => {
  const said = (keys: object) => {
    const list = parseNetworkConfigList(JSON.stringify({ name: "web", ...keys, plugins: [{ type: "ptp" }] }));
    return findUnknownKeys(list, keysOf).map((each) => each.replace('network "web": ', ""));
  };
  expect(said({ cniversion: "1.1.0", disablecheck: true, disableGc: true, loadOnlyInlinedPlugin: true })).toEqual([
    'cniversion is not read; did you mean "cniVersion"?',
    'disablecheck is not read; did you mean "disableCheck"?',
    'disableGc is not read; did you mean "disableGC"?',
    'loadOnlyInlinedPlugin is not read; did you mean "loadOnlyInlinedPlugins"?',
  ]);
  expect(said({ cniVersion: "1.0.0", cniVersions: ["1.1.0"], disableCheck: true, disableGC: true })).toEqual([]);
  expect(said({ loadOnlyInlinedPlugins: true, description: "", comment: "", _note: 1 })).toEqual([]);
});

test("the place is named, where a file holds it: of a list and of a single plugin", () => {
  const list = `{\n  "name": "web",\n  "plugins": [\n    { "type": "ptp" }, { "type": "bridge",\n      "mtuu": 1 }] }`;
  expect(findUnknownKeys(parseNetworkConfigList(list, "web.conflist"), keysOf)).toEqual([
    'network "web": plugins[1].mtuu is not read; did you mean "mtu"? (web.conflist:5:15)',
  ]);
  const single = `{ "name": "web", "type": "ptp", // comments are fine\n  "ipMask": true }`;
  expect(findUnknownKeys(parseNetworkConfigList(single, "web.conf"), keysOf)).toEqual([
    'network "web": ipMask is not read; did you mean "ipMasq"? (web.conf:2:13)',
  ]);
});

describe("nothing is said", () => {
  test("of the network that is built in", () => {
    expect(findUnknownKeys(parseNetworkConfigList(DEFAULT_NETWORK), keysOf)).toEqual([]);
  });

  for (const name of pluginNames()) {
    test(`of ${name} with every key that it has`, () => {
      expect(told({ type: name, ...(filled(keysOf(name)) as object) })).toEqual([]);
    });
  }
});

/** A node with every key that there may be. */
function filled(schema: Schema<unknown> | undefined): unknown {
  const shape = shapeOf(schema);
  return shape ? Object.fromEntries(Object.entries(shape).map(([key, each]) => [key, filled(each)])) : undefined;
}
