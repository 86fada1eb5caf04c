/**
 * The same requests to the reference plugin and to this one, on directories of their own and on one that they share.
 *
 * @module
 */
import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type HostLocalCallOptions, type HostLocalNetwork, newHostLocalNetwork } from "../../testing/host_local.ts";

const REFERENCE = "/usr/lib/cni/host-local";
const peerTest = test.skipIf(!existsSync(REFERENCE));

/** Newest version that Debian's reference plugin speaks. */
const cniVersion = "1.0.0";

interface Plugin {
  readonly name: string;
  /** What the plugin prints for success, or "refused". */
  call(net: HostLocalNetwork, verb: "ADD" | "DEL" | "CHECK", ipam: object, options?: HostLocalCallOptions): unknown;
}

const own: Plugin = {
  name: "this plugin",
  call(net, verb, ipam, options = {}) {
    try {
      return net.call(verb, { ...options, ipam, config: { cniVersion, ...options.config } });
    } catch {
      return "refused";
    }
  },
};

const reference: Plugin = {
  name: "the reference plugin",
  call(net, verb, ipam, { id = "c1", ifname = "eth0", args = "", config = {} } = {}) {
    const { exitCode, stdout } = Bun.spawnSync([REFERENCE], {
      env: {
        CNI_COMMAND: verb,
        CNI_CONTAINERID: id,
        CNI_IFNAME: ifname,
        CNI_NETNS: "/netns",
        CNI_ARGS: args,
        CNI_PATH: "/usr/lib/cni",
      },
      stdin: new TextEncoder().encode(JSON.stringify({
        cniVersion,
        name: "net",
        type: "bridge",
        ipam: { type: "host-local", dataDir: net.dataDir, ...ipam },
        ...config,
      })),
    });
    if (exitCode !== 0) return "refused";
    const answer = `${stdout}` === "" ? {} : JSON.parse(`${stdout}`);
    // Later releases of it leave an empty one out, too.
    if (answer.cniVersion === cniVersion && Object.keys(answer.dns).length === 0) delete answer.dns;
    return answer;
  },
};

/** Names and contents, without the second names that only we keep. */
function files({ directory }: HostLocalNetwork): Record<string, string> {
  const names = existsSync(directory) ? readdirSync(directory).filter((name) => !name.startsWith(".")).sort() : [];
  return Object.fromEntries(names.map((name) => [name, readFileSync(join(directory, name), "utf8")]));
}

const DUAL = { ranges: [[{ subnet: "10.1.2.0/29" }, { subnet: "10.2.2.0/30" }], [{ subnet: "fd00:1::/64" }]] };
const SCRIPTS: Record<
  string,
  { ipam: object; steps: [verb: "ADD" | "DEL" | "CHECK", options?: HostLocalCallOptions][] }
> = {
  "one range of the oldest form": {
    ipam: { subnet: "10.1.0.0/16", rangeStart: "10.1.7.7", rangeEnd: "10.1.7.9", gateway: "10.1.7.8" },
    steps: [["ADD", { id: "a" }], ["ADD", { id: "b" }], ["ADD", { id: "c" }], ["DEL", { id: "a" }], ["ADD", {
      id: "c",
    }]],
  },
  "range sets, round robin and exhaustion": {
    ipam: DUAL,
    steps: [
      ...[..."abcdef"].map((id): ["ADD", HostLocalCallOptions] => ["ADD", { id }]),
      ["ADD", { id: "g" }],
      ["DEL", { id: "c" }],
      ["ADD", { id: "g" }],
      ["ADD", { id: "h" }],
      ["CHECK", { id: "g" }],
      ["CHECK", { id: "h" }],
    ],
  },
  "routes": {
    ipam: { ...DUAL, routes: [{ dst: "0.0.0.0/0" }, { dst: "192.168.0.0/16", gw: "10.1.2.6" }, { dst: "::/0" }] },
    steps: [["ADD"], ["CHECK"], ["DEL"], ["CHECK"]],
  },
  "requested addresses": {
    ipam: DUAL,
    steps: [
      ["ADD", { id: "a", args: "IP=10.1.2.4/29" }],
      ["ADD", { id: "b", args: "IP=10.1.2.4" }],
      ["ADD", { id: "b", args: "IP=10.1.2.1" }],
      ["ADD", { id: "b", args: "IP=10.9.9.9" }],
      ["ADD", { id: "b", args: "IP=10.1.2.5", config: { args: { cni: { ips: ["10.1.2.6"] } } } }],
      ["ADD", { id: "b", args: "IP=10.1.2.5", config: { args: { cni: { ips: ["fd00:1::9/64"] } } } }],
      ["ADD", { id: "c", config: { runtimeConfig: { ips: ["10.2.2.2"] } } }],
      ["ADD", { id: "d" }],
      ["ADD", { id: "e", args: "FOO=bar" }],
      ["ADD", { id: "e", args: "FOO=bar;IgnoreUnknown=1;IP=" }],
    ],
  },
  "ranges from the runtime come first": {
    ipam: { subnet: "10.5.0.0/24", ranges: [[{ subnet: "10.6.0.0/24" }]] },
    steps: [
      ["ADD", {
        id: "a",
        config: { runtimeConfig: { ipRanges: [[{ subnet: "10.4.0.0/24" }], [{ subnet: "fd04::/64" }]] } },
      }],
      ["ADD", { id: "b" }],
      ["DEL", { id: "a" }],
    ],
  },
  "interfaces of one container": {
    ipam: { ranges: [[{ subnet: "10.1.0.0/24" }]] },
    steps: [["ADD"], ["ADD", { ifname: "eth1" }], ["ADD"], ["DEL"], ["CHECK", { ifname: "eth1" }], ["CHECK"], ["ADD"]],
  },
  "results of version 0.2.0": {
    ipam: DUAL,
    steps: [["ADD", { config: { cniVersion: "0.2.0" } }], ["DEL", { config: { cniVersion: "0.2.0" } }]],
  },
  "more addresses than version 0.2.0 has room for": {
    ipam: { ranges: [[{ subnet: "10.1.0.0/24" }], [{ subnet: "10.2.0.0/24" }]] },
    steps: [["ADD", { config: { cniVersion: "0.2.0" } }], ["ADD", { config: { cniVersion: "0.4.0" } }]],
  },
};

for (const [name, { ipam, steps }] of Object.entries(SCRIPTS)) {
  peerTest(`same answers and files: ${name}`, () => {
    const [ours, theirs] = [own, reference].map((plugin) => {
      using net = newHostLocalNetwork(ipam);
      return steps.map(([verb, options]) => ({ answer: plugin.call(net, verb, ipam, options), files: files(net) }));
    });
    for (const [i, step] of theirs!.entries()) {
      // A refused ADD takes back what it gave, but the reference plugin has moved on behind it by then.
      const refused = step.answer === "refused";
      expect({ i, ...ours![i]!, ...refused && { files: addresses(ours![i]!.files) } })
        .toEqual({ i, ...step, ...refused && { files: addresses(step.files) } });
    }
  });
}

function addresses(all: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(all).filter(([name]) => /^[\da-f.:]+$/.test(name)));
}

const REFUSED_CONFIGS: object[] = [
  {},
  { subnet: "10.0.0.0/31" },
  { subnet: "10.0.0.5/24" },
  { subnet: "fd00::/127" },
  { subnet: "fd00::1/64" },
  { subnet: "10.0.0.0/24", rangeStart: "10.0.1.0" },
  { subnet: "10.0.0.0/24", rangeEnd: "10.0.1.0" },
  { subnet: "10.0.0.0/24", rangeStart: "10.0.0.9", rangeEnd: "10.0.0.8" },
  { subnet: "10.0.0.0/24", gateway: "10.0.0" },
  { ranges: [[]] },
  { ranges: [[{ subnet: "10.0.0.0/24" }, { subnet: "fd00::/64" }]] },
  { ranges: [[{ subnet: "10.0.0.0/24" }, { subnet: "10.0.0.0/16" }]] },
  { ranges: [[{ subnet: "10.0.0.0/24" }], [{ subnet: "10.0.0.0/16" }]] },
  { ranges: [{ subnet: "10.0.0.0/24" }] },
  { subnet: "10.0.0.0/24", resolvConf: "/nonexistent" },
  { subnet: "10.0.0.0/24", routes: [{ dst: "nowhere" }] },
];
const ACCEPTED_CONFIGS: object[] = [
  { subnet: "10.0.0.0/30" },
  { subnet: "10.0.0.0/24", rangeStart: "10.0.0.0", rangeEnd: "10.0.0.255" },
  { subnet: "10.0.0.0/24", gateway: "192.168.1.1" },
  { subnet: "10.0.0.0/24", rangeStart: "10.0.0.9", rangeEnd: "10.0.0.9" },
  { Subnet: "10.0.0.0/24", RANGES: [[{ SUBNET: "fd00::/126" }]] },
  { ranges: [[{ subnet: "10.0.0.0/24", rangeEnd: "10.0.0.9" }, { subnet: "10.0.0.0/24", rangeStart: "10.0.0.10" }]] },
];
for (const ipam of [...REFUSED_CONFIGS, ...ACCEPTED_CONFIGS]) {
  peerTest(`same judgement of ${JSON.stringify(ipam)}`, () => {
    const [ours, theirs] = [own, reference].map((plugin) => {
      using net = newHostLocalNetwork(ipam);
      return plugin.call(net, "ADD", ipam);
    });
    expect(ours).toEqual(theirs);
    expect(theirs === "refused").toBe(REFUSED_CONFIGS.includes(ipam));
  });
}

for (const [first, second] of [[own, reference], [reference, own]] as const) {
  peerTest(`${second.name} goes on where ${first.name} stopped, and removes what it reserved`, () => {
    using net = newHostLocalNetwork(DUAL);
    first.call(net, "ADD", DUAL, { id: "a" });
    first.call(net, "ADD", DUAL, { id: "a", ifname: "eth1" });
    // A second ADD of the same attachment, and a CHECK, see the reservation of the other.
    expect(second.call(net, "ADD", DUAL, { id: "a" })).toBe("refused");
    expect(second.call(net, "CHECK", DUAL, { id: "a" })).toEqual({});
    expect(second.call(net, "CHECK", DUAL, { id: "b" })).toBe("refused");
    expect(second.call(net, "ADD", DUAL, { id: "b" })).toMatchObject({
      ips: [{ address: "10.1.2.4/29" }, { address: "fd00:1::4/64" }],
    });
    expect(first.call(net, "ADD", DUAL, { id: "c" })).toMatchObject({
      ips: [{ address: "10.1.2.5/29" }, { address: "fd00:1::5/64" }],
    });
    expect(second.call(net, "ADD", DUAL, { id: "d", args: "IP=10.1.2.5" })).toBe("refused");
    second.call(net, "DEL", DUAL, { id: "a" });
    expect(Object.keys(files(net)).filter((name) => name.startsWith("10."))).toEqual([
      "10.1.2.3",
      "10.1.2.4",
      "10.1.2.5",
    ]);
    second.call(net, "DEL", DUAL, { id: "a", ifname: "eth1" });
    second.call(net, "DEL", DUAL, { id: "c" });
    first.call(net, "DEL", DUAL, { id: "b" });
    expect(readdirSync(net.directory).sort()).toEqual(["last_reserved_ip.0", "last_reserved_ip.1", "lock"]);
    expect(net.log).toEqual([]);
  });
}

peerTest("a file of an old version is released by either", () => {
  for (const plugin of [own, reference]) {
    using net = newHostLocalNetwork(DUAL);
    first(net);
    plugin.call(net, "DEL", DUAL, { id: "old" });
    expect(readdirSync(net.directory).sort()).toEqual(["10.1.2.3", "lock"]);
  }
  function first(net: HostLocalNetwork): void {
    own.call(net, "ADD", DUAL, { id: "x" });
    own.call(net, "DEL", DUAL, { id: "x" });
    for (const name of ["last_reserved_ip.0", "last_reserved_ip.1"]) Bun.spawnSync(["rm", join(net.directory, name)]);
    writeFileSync(join(net.directory, "10.1.2.2"), "old");
    writeFileSync(join(net.directory, "10.1.2.3"), "older");
  }
});
