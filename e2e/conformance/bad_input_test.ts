/** What plugins are given that nobody should: each time one error object, exit status 1, and nothing done. */
import { expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { runInNetns } from "../../testing/netns.ts";
import { findPlugin } from "../../plugins/registry.ts";
import { ENGINE_ENV, errorOf, pluginLink } from "../../testing/binary.ts";
import {
  type ConformanceNode,
  type JsonDocument,
  newConformanceNode,
  type NodeCallOptions,
  SUPPORTED_PLUGINS,
  workingConfig,
} from "../../testing/conformance.ts";

/** 10 MB take a second each. */
const TIMEOUT_MS = 60_000;

/** Links, addresses, routes, rules and files: all that a plugin could have left. */
function stateOf({ host, container, directory }: ConformanceNode): readonly string[] {
  const programs = [["ip", "-j", "addr"], ["ip", "-j", "route", "show", "table", "all"], ["ip", "-j", "-6", "route"], [
    "ip",
    "-j",
    "rule",
  ]];
  return [
    ...[host, container].flatMap((netns) => programs.map((program) => runInNetns(netns, ...program))),
    runInNetns(host, "nft", "list", "ruleset"),
    ...(readdirSync(directory, { recursive: true }) as string[]).sort(),
  ];
}

/** Runs a test for every plugin on a node of its own, on which nothing may have changed afterwards. */
function everyPlugin(
  name: string,
  body: (type: string, node: ConformanceNode, config: JsonDocument, options: NodeCallOptions) => void,
): void {
  test.each(SUPPORTED_PLUGINS.map((type) => [type]))(`%s: ${name}`, (type) => {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    const before = stateOf(node);
    body(type, node, config, options);
    expect(stateOf(node)).toEqual(before);
    // The configuration that was spoiled would have worked.
    node.succeed(type, "ADD", config, options);
  }, TIMEOUT_MS);
}

everyPlugin("parameters that are missing or wrong have code 4, whatever the request", (type, node, config, options) => {
  const wrong: NodeCallOptions[] = [
    { containerId: "" },
    { containerId: "../c1" },
    { containerId: "c\n1" },
    { containerId: "c\0" },
    { ifname: "" },
    { ifname: "." },
    { ifname: "a/b" },
    { ifname: "a\0" },
    { ifname: "x".repeat(16) },
    { ifname: "x".repeat(1_000_000) },
  ];
  for (const command of ["ADD", "DEL", "CHECK"]) {
    for (const each of wrong) {
      const { code, msg } = node.fail(type, command, config, { ...options, ...each });
      expect([code, msg]).toEqual([4, expect.stringMatching(/CNI_CONTAINERID|CNI_IFNAME/)]);
    }
  }
  for (const command of ["ADD", "CHECK"]) expect(node.fail(type, command, config, { netns: null }).code).toBe(4);
  for (const command of ["", "add", "ADD ", "constructor", "__proto__"]) {
    expect(node.fail(type, command, config, options)).toMatchObject({
      code: 4,
      msg: expect.stringContaining("CNI_COMMAND"),
    });
  }
});

everyPlugin("all that is missing is named at once", (type, node, config) => {
  const { code, msg } = node.fail(type, "ADD", config, { containerId: "", ifname: "", netns: null });
  expect([code, msg.match(/CNI_\w+/g)]).toEqual([4, ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"]]);
});

const UNREADABLE = [
  "",
  " ",
  "{",
  "}",
  "nope",
  "[]",
  "[{}]",
  "1",
  '"x"',
  "true",
  '{"name":"a"}{}',
  '{"name":"a"} x',
  '{"name"}',
];

everyPlugin("what is no JSON object has code 6", (type, node, _, options) => {
  for (const command of ["ADD", "DEL"]) {
    for (const text of UNREADABLE) {
      expect({ text, code: errorOf(node.exec(type, command, text, options)).code }).toEqual({ text, code: 6 });
    }
  }
});

/** What is wrong in what every request has, and the code. */
const SPOILED: readonly [object, number][] = [
  [{ name: undefined }, 7],
  [{ name: null }, 7],
  [{ name: "" }, 7],
  [{ name: 1 }, 6],
  [{ name: ["net"] }, 6],
  [{ name: "../net" }, 7],
  [{ name: "n\0t" }, 7],
  [{ name: "n".repeat(10_000_000) + "/" }, 7],
  [{ cniVersion: 1 }, 6],
  [{ cniVersion: {} }, 6],
  [{ cniVersion: "1.1" }, 1],
  [{ cniVersion: "9.9.9" }, 1],
  [{ cniVersion: "x".repeat(10_000_000) }, 1],
  [{ type: 1 }, 7],
  [{ prevResult: 1 }, 6],
  [{ prevResult: [] }, 6],
  [{ prevResult: "x".repeat(10_000_000) }, 6],
  [{ prevResult: { cniVersion: "7.0.0" } }, 6],
  [{ prevResult: { cniVersion: 1 } }, 6],
  [{ prevResult: { ips: {} } }, 6],
  [{ prevResult: { ips: [null] } }, 6],
  [{ prevResult: { ips: [{ address: "10.0.0.1" }] } }, 6],
  [{ prevResult: { interfaces: [null] } }, 6],
  [{ prevResult: { routes: [{}] } }, 6],
  [{ ipam: 1 }, 7],
  [{ ipam: "host-local" }, 7],
  [{ ipam: [] }, 7],
  [{ ipam: { type: 1 } }, 7],
  [{ ipam: { type: "../x" } }, 7],
  [{ ipam: { type: "x\0" } }, 7],
  [{ dns: [] }, 7],
  [{ dns: { nameservers: 1 } }, 7],
  [{ dns: { search: [null] } }, 7],
  [{ runtimeConfig: [] }, 7],
  [{ runtimeConfig: "x".repeat(10_000_000) }, 7],
  [{ capabilities: { x: 1 } }, 7],
  [{ capabilities: [] }, 7],
];

everyPlugin(
  "a request with something of a wrong kind has the code of that, and an error of a bearable size",
  (type, node, config, options) => {
    for (const [change, code] of SPOILED) {
      const { exitCode, stdout } = node.call(type, "ADD", { ...config, ...change }, options);
      const error = JSON.parse(stdout);
      const what = JSON.stringify(change).slice(0, 80);
      expect({ what, exitCode, code: error.code, long: stdout.length > 2000 }).toEqual({
        what,
        exitCode: 1,
        code,
        long: false,
      });
    }
  },
);

/** What is wrong in the keys of plugins that put a link on a master. */
const ON_MASTER: readonly object[] = [
  ...["master", "mtu", "linkInContainer"].map((key) => ({ [key]: {} })),
  { master: "" },
  { master: "nosuch" },
  { master: "up0\0" },
  { master: "x".repeat(1000) },
  { master: "up0", linkInContainer: true },
  { mtu: "1500" },
  { mtu: -1 },
  { mtu: 1501 },
  { mtu: 1.5 },
  { linkInContainer: "yes" },
];

/** What is wrong in a plugin's own keys. */
const OWN: Readonly<Record<string, readonly object[]>> = {
  "bandwidth": [
    { prevResult: null },
    { prevResult: { interfaces: [] } },
    { ingressBurst: null },
    { ingressRate: 0 },
    { egressRate: 1 },
    { ingressRate: -1 },
    { ingressRate: 0.5 },
    { ingressRate: "8e6" },
    { ingressRate: "8Mbps" },
    { ingressRate: "8Mbit\0" },
    { ingressBurst: 34359738368 },
    { egressRate: [], egressBurst: {} },
  ],
  "bridge": [
    ...["bridge", "isGateway", "ipMasq", "mtu", "vlan", "hairpinMode", "vlanTrunk"].map((key) => ({ [key]: {} })),
    { bridge: "" },
    { bridge: "br\0" },
    { bridge: "x".repeat(16) },
    { bridge: "a/b" },
    { mtu: "1500" },
    { mtu: -1 },
    { mtu: 1e9 },
    { mtu: 1.5 },
    { vlan: 4095 },
    { vlanTrunk: [null] },
    { isGateway: "yes" },
    { runtimeConfig: { mac: 1 } },
    { hairpinMode: true, promiscMode: true },
  ],
  "dummy": [{ ipam: null }, { ipam: 1 }, { ipam: { type: "" } }],
  "firewall": [
    { prevResult: null },
    { backend: "ipset" },
    { backend: 1 },
    { ingressPolicy: "closed" },
    { ingressPolicy: "isolated" },
    { ingressPolicy: true },
    { iptablesAdminChainName: "two words" },
    { iptablesAdminChainName: "-j" },
    { iptablesAdminChainName: "x".repeat(29) },
    { iptablesAdminChainName: "A\0" },
    { firewalldZone: {} },
    { firewalldZone: "x".repeat(10_000) },
  ],
  "host-device": [
    ...["device", "hwaddr", "kernelpath", "pciBusID", "dataDir"].map((key) => ({ [key]: {} })),
    { device: null },
    { device: "" },
    { device: "a/b" },
    { device: "nic5\0" },
    { hwaddr: "x" },
    { hwaddr: "01:00:5e:00:00:01" },
    { device: null, kernelpath: "/sys/class/net/nic5" },
    { device: null, kernelpath: "/sys/devices/../class" },
    { pciBusID: "../0000:00:00.0" },
    { runtimeConfig: { deviceID: 1 } },
    { runtimeConfig: { deviceID: ".." } },
    { dataDir: "/tmp/cni\0conformance" },
  ],
  "host-local": [
    { ipam: null },
    ...[
      { subnet: "10.5.0.0" },
      { subnet: "10.5.0.0/33" },
      { subnet: 1 },
      { subnet: "10.5.0.0/24\0" },
      { rangeStart: "10.6.0.1" },
      { gateway: "x" },
      { ranges: {} },
      { ranges: [null] },
      { ranges: [[null]] },
      { ranges: [[{ subnet: "10.5.0.0/24" }]] },
      { routes: {} },
      { routes: [null] },
      { routes: [{ dst: "x" }] },
      { dataDir: 1 },
      { dataDir: "/tmp/cni\0conformance" },
      { resolvConf: 1 },
    ].map((change) => ({ change })),
    { runtimeConfig: { ips: "x" } },
    { runtimeConfig: { ips: [null] } },
    { runtimeConfig: { ipRanges: [[{ subnet: null }]] } },
  ],
  "ipvlan": [...ON_MASTER, { mode: "l4" }, { mode: 2 }, { ipam: null }],
  "loopback": [],
  "macvlan": [
    ...ON_MASTER,
    { mode: "l2" },
    { mode: 4 },
    { mac: "x" },
    { mac: "01:00:5e:00:00:01" },
    { mac: "00:00:00:00:00:00" },
    { runtimeConfig: { mac: 1 } },
    { args: { cni: { mac: "x" } } },
    { bcqueuelen: -1 },
    { bcqueuelen: 4294967296 },
  ],
  "portmap": [
    { snat: "x" },
    { conditionsV4: 1 },
    { conditionsV4: [1] },
    { conditionsV4: ["-j", "ACCEPT"] },
    { backend: "ebpf" },
    { markMasqBit: 32 },
    { prevResult: null },
    ...[
      {},
      [null],
      [{}],
      [{ hostPort: "80", containerPort: 80 }],
      [{ hostPort: 0, containerPort: 80 }],
      [{ hostPort: 65536, containerPort: 80 }],
      [{ hostPort: 80, containerPort: 80, protocol: "icmp" }],
      [{ hostPort: 80, containerPort: 80, protocol: "tcp\0" }],
      [{ hostPort: 80, containerPort: 80, hostIP: "x" }],
    ].map((portMappings) => ({ runtimeConfig: { portMappings } })),
  ],
  "ptp": [
    ...["ipMasq", "ipMasqBackend", "mtu"].map((key) => ({ [key]: [1] })),
    { ipam: null },
    { ipMasq: 1 },
    { ipMasqBackend: "ebpf" },
    { mtu: "1500" },
    { mtu: -1 },
    { mtu: 65536 },
    { mtu: 1.5 },
    { change: { gateway: null, type: "static", addresses: [{ address: "10.5.0.9/24" }] } },
  ],
  "sbr": [
    { table: "100" },
    { table: 0 },
    { table: 4294967296 },
    { gateways: "10.5.0.1" },
    { gateways: ["x"] },
    { gateways: ["10.5.0.1", "10.5.0.2"] },
    { addSourceHints: "yes" },
    { prevResult: null },
    { prevResult: { interfaces: [] } },
  ],
  "static": [
    { ipam: null },
    ...[
      { addresses: {} },
      { addresses: [null] },
      { addresses: [{ address: "10.5.0.9" }] },
      { addresses: [{ address: "10.5.0.9/24", gateway: "x" }] },
      { routes: [{ dst: "x" }] },
      { routes: [{ dst: "::/0", gw: "10.5.0.1" }] },
      { dns: { search: "x" } },
    ].map((change) => ({ change })),
    { runtimeConfig: { ips: "x" } },
    { runtimeConfig: { ips: ["10.5.0.9"] } },
    { args: { cni: { ips: [1] } } },
  ],
  "tap": [
    ...["multiQueue", "mtu", "owner", "group", "mac", "selinuxContext", "bridge"].map((key) => ({ [key]: {} })),
    { multiQueue: "yes" },
    { mtu: -1 },
    { mtu: "1500" },
    { owner: -1 },
    { owner: 4294967295 },
    { owner: "root" },
    { group: 4294967296 },
    { mac: "x" },
    { mac: "01:00:5e:00:00:01" },
    { runtimeConfig: { mac: 1 } },
    { args: [] },
    { selinuxContext: "a\nb" },
    { bridge: "nosuch" },
  ],
  "tuning": [
    ...["sysctl", "mac", "promisc", "mtu", "allmulti", "txQLen", "dataDir"].map((key) => ({ [key]: [1] })),
    ...["mac", "promisc", "mtu", "allmulti", "txQLen", "sysctl"].map((key) => ({ args: { cni: { [key]: "x" } } })),
    { sysctl: { "net.core.somaxconn": 500 } },
    { sysctl: { "kernel.hostname": "x" } },
    { sysctl: { "net/../kernel/hostname": "x" } },
    { sysctl: { "net.core.somaxconn\0": "1" } },
    { sysctl: { "net.core.somaxconn": "1", "net/core/somaxconn": "1" } },
    { sysctl: { "net.nosuch": "1" } },
    { mac: "x" },
    { mtu: -1 },
    { mtu: 1.5 },
    { txQLen: -1 },
    { dataDir: "/tmp/cni\0conformance" },
    { prevResult: null },
    { runtimeConfig: { mac: 1 } },
  ],
  "vlan": [...ON_MASTER, { vlanId: -1 }, { vlanId: 4095 }, { vlanId: "5" }, { vlanId: 1.5 }],
  "vrf": [
    ...["vrfname", "table"].map((key) => ({ [key]: [1] })),
    { vrfname: null },
    { vrfname: "" },
    { vrfname: "a/b" },
    { vrfname: "red\0" },
    { vrfname: "x".repeat(16) },
    { vrfname: "peer0" },
    { table: "100" },
    { table: -1 },
    { table: 1.5 },
    { table: 4294967296 },
    { prevResult: null },
  ],
};

everyPlugin("what is wrong in keys of its own has code 7", (type, node, config, options) => {
  expect(Object.keys(OWN)).toContain(type);
  for (const each of OWN[type]!) {
    const change = "change" in each ? { ipam: { ...config.ipam, ...each.change as object } } : each;
    const { code } = node.fail(type, "ADD", { ...config, ...change }, options);
    expect({ change, code }).toEqual({ change, code: 7 });
  }
});

everyPlugin("nulls mean that a key is absent", (type, node, config) => {
  const nulls = { dns: null, args: null, capabilities: null, runtimeConfig: null, unknown: null };
  node.succeed(type, "STATUS", { ...config, ...nulls });
});

everyPlugin("of a key that is there twice the last counts, whatever its case", (type, node, config, options) => {
  const text = (...more: string[]) =>
    `{${["cniVersion", "type"].map((key) => `"${key}":${JSON.stringify({ cniVersion: "1.1.0", type }[key])}`)},` +
    `${more.join(",")},${JSON.stringify(config).slice(1, -1) || '"x":1'}}`;
  const status = (stdin: string) => node.exec(type, "STATUS", stdin, options);
  expect(status(text('"name":"/"', '"name":"net"'))).toMatchObject({ exitCode: 0, stdout: "" });
  expect(errorOf(status(text('"name":"net"', '"name":"/"'))).code).toBe(7);
  expect(errorOf(status(text('"NAME":"net"', '"Name":"/"'))).code).toBe(7);
});

/** Runs a plugin with bytes on stdin. */
function execBytes(node: ConformanceNode, type: string, stdin: Uint8Array) {
  const env = { ...ENGINE_ENV, CNI_COMMAND: "ADD", CNI_NETNS: node.container.path };
  const child = node.host.run(() => Bun.spawnSync([pluginLink(type)], { env, stdin, cwd: "/" }));
  return { exitCode: child.exitCode, stdout: child.stdout.toString(), stderr: child.stderr.toString() };
}

everyPlugin("text that is no UTF-8 has code 6", (type, node, config) => {
  const document = JSON.stringify({ cniVersion: "1.1.0", name: "net", type, ...config, label: "HERE" });
  for (const bytes of ["\xff", "\xc3", "\xed\xa0\x80", "\xc0\xaf", "\xf5\x80\x80\x80"]) {
    const stdin = Buffer.from(document.replace("HERE", bytes), "latin1");
    const { code, msg } = errorOf(execBytes(node, type, stdin));
    expect([code, msg]).toEqual([6, expect.stringContaining("UTF-8")]);
  }
});

everyPlugin("10 MB of anything end as one error", (type, node) => {
  for (const piece of ["[", '"\\', "x"]) {
    const finished = execBytes(node, type, Buffer.from(piece.repeat(10_000_000 / piece.length)));
    expect([errorOf(finished).code, finished.stdout.length < 2000]).toEqual([6, true]);
  }
});

everyPlugin("a request of 10 MB is one like others, one of 10,000 levels has code 6", (type, node, config) => {
  const request = JSON.stringify({ cniVersion: "1.1.0", name: "net", type, ...config, key: "KEY" });
  const long = JSON.stringify("x".repeat(10_000_000));
  expect(node.exec(type, "STATUS", request.replace('"KEY"', long))).toMatchObject({ exitCode: 0, stdout: "" });
  expect(errorOf(node.exec(type, "STATUS", request.replace('"KEY"', `${long},"name":"/"`))).code).toBe(7);
  const deep = `${"[".repeat(10_000)}${"]".repeat(10_000)}`;
  expect(errorOf(node.exec(type, "STATUS", request.replace('"KEY"', deep))).code).toBe(6);
});

test.each([
  ["a namespace that is none", "/etc/passwd"],
  ["a namespace that does not exist", "/nonexistent"],
  ["the plugin's own namespace", "host"],
])("%s has code 8 and is refused before anything is done", (_, path) => {
  for (const type of SUPPORTED_PLUGINS.filter((each) => !findPlugin(each)!.ignoresNetns)) {
    using node = newConformanceNode();
    const { config, options } = workingConfig(type, node);
    const before = stateOf(node);
    const netns = path === "host" ? node.host : path;
    for (const command of ["ADD", "CHECK"]) {
      expect(node.fail(type, command, config, { ...options, netns }).code).toBe(8);
    }
    expect(stateOf(node)).toEqual(before);
  }
});
