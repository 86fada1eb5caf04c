import { beforeAll, describe, expect, test } from "bun:test";
import { findPlugin, loadPlugins, pluginNames } from "../plugins/registry.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import type { Schema } from "../spec/schema.ts";
import { DEFAULT_NETWORK } from "./default_network.ts";
import { shapeOf } from "../spec/unknown_keys.ts";
import { findUnknownCapabilities, findUnknownKeys } from "./unknown_keys.ts";

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
  [{ type: "bridge", vlanTrunk: [{ id: 1 }, { minId: 2, maxIDs: 4 }] }, "vlanTrunk[1].maxIDs", "maxID"],
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
  [{ type: "bridge", ipam: { type: "whereabouts" }, isGatway: true }, "isGatway", "isGateway"],
])("of %j it is said that %s was to be %s", (plugin, path, meant) => {
  expect(told(plugin)).toEqual([`${path} is not read; did you mean "${meant}"?`]);
});

test.each<[string, object, readonly string[]]>([
  ["resembles no other", { type: "bridge", description: "", logFile: "" }, ["description", "logFile"]],
  ["stands in an object of the IPAM plugin", { type: "ptp", ipam: { type: "static", dataDir: "" } }, ["ipam.dataDir"]],
  ["stands in the elements of a list", { type: "bridge", vlanTrunk: [{ id: 1 }, { id: 2, name: "" }] }, [
    "vlanTrunk[1].name",
  ]],
  ["belongs to another plugin", { type: "ptp", isGateway: true, hairpinMode: true }, ["isGateway", "hairpinMode"]],
  ["is a capability that the plugin has no use for", {
    type: "bridge",
    capabilities: { portMappings: true, mac: true },
    runtimeConfig: { portMappings: [] },
  }, ["capabilities.portMappings"]],
])("a key that %s is said to be unread", (_what, plugin, paths) => {
  expect(told(plugin)).toEqual(paths.map((path) => `${path} is not read`));
});

test("of two keys that differ in case only, the one that counts is named", () => {
  expect(told({ type: "bridge", isgateway: false, isGateway: true, IPMASQ: true, ipmasq: false })).toEqual([
    'isgateway is not read, since "isGateway" is there too',
    'IPMASQ is not read, since "ipmasq" is there too',
  ]);
});

test("of a plugin that a program is called for, only what is likely to be misspelt is said", () => {
  const told = (plugin: object, ...programs: string[]) => {
    const list = parseNetworkConfigList(JSON.stringify({ name: "web", plugins: [plugin] }));
    return findUnknownKeys(list, keysOf, (type) => programs.includes(type)).map((each) =>
      each.replace('network "web": plugins[0].', "")
    );
  };
  const plugin = { type: "bridge", isGatway: true, color: 1, ipam: { type: "host-local", color: 1, subne: "" } };
  const [isGatway, subne] = [
    'isGatway is not read; did you mean "isGateway"?',
    'ipam.subne is not read; did you mean "subnet"?',
  ];
  expect(told(plugin, "bridge")).toEqual([isGatway, "ipam.color is not read", subne]);
  expect(told(plugin, "host-local")).toEqual([isGatway, "color is not read", subne]);
});

test("capabilities that no plugin declares are named", () => {
  const text =
    `{ "name": "web", "plugins": [{ "type": "portmap", "capabilities": { "portMappings": true, "ips": false } }] }`;
  expect(findUnknownCapabilities(parseNetworkConfigList(text), { portMappings: [], portMapping: [], ips: [] }, keysOf))
    .toEqual(
      [
        'network "web": no plugin has capability "portMapping", so its arguments are not read; did you mean "portMappings"?',
        'network "web": no plugin has capability "ips", so its arguments are not read',
      ],
    );
});

test("keys in the arguments of a capability that nobody reads are named", () => {
  const said = (type: string, value: unknown, ...programs: string[]) => {
    const text = JSON.stringify({ name: "web", plugins: [{ type, capabilities: { portMappings: true } }] });
    const list = parseNetworkConfigList(text);
    return findUnknownCapabilities(list, { portMappings: value }, keysOf, (name) => programs.includes(name)).map((
      each,
    ) => each.replace('network "web": of the capability arguments, ', ""));
  };
  const good = { hostPort: 53, containerPort: 53, hostIp: "192.0.2.1" };
  const bad = [good, { ...good, protcol: "udp", color: 1 }];
  const protcol = 'portMappings[1].protcol is not read; did you mean "protocol"?';
  // The case of a key does not count.
  expect(said("portmap", [good])).toEqual([]);
  expect(said("portmap", bad)).toEqual([protcol, "portMappings[1].color is not read"]);
  expect(said("portmap", bad, "portmap")).toEqual([protcol]);
  expect(said("nosuch", bad)).toEqual([]);
});

test.each<[string, object]>([
  ["keys in any case", { type: "bridge", ISGATEWAY: true, Ipam: { TYPE: "host-local", RangeStart: "::1" } }],
  ["notes of people", {
    type: "bridge",
    $schema: "",
    "x-note": {},
    _isGatway: 1,
    ipam: { type: "static", _addresses: [] },
  }],
  ["keys that Multus adds", { type: "ptp", deviceID: "", pciBusID: "" }],
  ["hints for others", { type: "bridge", args: { labels: [], cni: { labels: [], ips: ["10.1.0.2/24"] } } }],
  ["hints for the IPAM plugin", { type: "tuning", ipam: { type: "static" }, args: { cni: { ips: ["10.1.0.2/24"] } } }],
  ["kernel parameters, which are data", { type: "tuning", sysctl: { "net.core.somaxcon": "1", mtux: "2" } }],
  ["keys of an IPAM plugin of others", {
    type: "bridge",
    ipam: { type: "whereabouts", range: "", gatway: "" },
    capabilities: { pools: true },
    runtimeConfig: { pools: [] },
  }],
  ["keys of a plugin of others", { type: "nosuch", isGatway: true, hns: {}, ipam6: {}, capabilities: { a: true } }],
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
  expect(said({ loadOnlyInlinedPlugins: true, _note: 1, "x-note": 1, $schema: "" })).toEqual([]);
  expect(said({ args: { podman_labels: {} }, nerdctlID: "", nerdctlLabels: {} })).toEqual([]);
  expect(said({ description: "" })).toEqual(["description is not read"]);
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
