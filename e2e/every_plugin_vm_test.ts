/**
 * Every plugin as an engine calls it: the compiled binary, by its link, in a root with nothing else, on a kernel that has what any of
 * them needs. What the kernel shows tells whether it did what it is for, and whether it took that back.
 */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns.ts";
import { runInNetns } from "../testing/netns.ts";
import { pluginNames } from "../plugins/registry.ts";
import { type ConformanceNode, type JsonDocument, newConformanceNode, workingConfig } from "../testing/conformance.ts";
import { MINIMAL_ROOT_BIN, type MinimalRoot, newMinimalRoot } from "../testing/minimal_root.ts";

/** What is to be seen of a plugin's work. */
interface Case {
  readonly name: string;
  /** The plugin, if that is not its name. */
  readonly type?: string;
  /** Beside or instead of that with which it works everywhere. */
  readonly config?: object;
  /** What the host has before. */
  readonly host?: readonly string[];
  /** What the kernel shows, or what is in files below the root. */
  readonly look: (node: ConformanceNode, root: string) => unknown;
  /** That while the container is attached. Before and after, it is something else, and the same. */
  readonly attached: unknown;
}

const shown = (netns: Netns, ...words: string[]): JsonDocument[] => JSON.parse(runInNetns(netns, ...words) || "[]");
const linksOf = (netns: Netns): JsonDocument[] => shown(netns, "ip", "-j", "-d", "addr", "show");
const linkOf = (netns: Netns, name = "eth0"): JsonDocument => linksOf(netns).find(({ ifname }) => ifname === name);
const addressesOf = (link: JsonDocument): string[] =>
  link?.addr_info.filter(({ scope }: JsonDocument) => scope === "global").map(({ local }: JsonDocument) => local);
const portsOf = ({ host }: ConformanceNode): JsonDocument[] => linksOf(host).filter(({ master }) => master === "br5");
const rulesOf = ({ host }: ConformanceNode): string => runInNetns(host, "nft", "list", "ruleset");

/** The kind of the container's interface, what that kind knows of it, and its addresses. */
const kindOf = (...keys: readonly string[]) => ({ container }: ConformanceNode) => {
  const link = linkOf(container);
  const { info_kind: kind, info_data: data = {} } = link?.linkinfo ?? {};
  return [kind, ...keys.map((key) => data[key]), addressesOf(link)];
};

/** The VLANs of the bridge's ports: `100 PVID Egress Untagged`. */
const vlansOf = (node: ConformanceNode): string[][] =>
  portsOf(node).map(({ ifname }) =>
    shown(node.host, "bridge", "-j", "-compressvlans", "vlan", "show", "dev", ifname)[0]
      .vlans.map(({ vlan, vlanEnd, flags = [] }: JsonDocument) =>
        [vlanEnd ? `${vlan}-${vlanEnd}` : vlan, ...flags].join(" ")
      )
  );

const UNTAGGED = "PVID Egress Untagged";
const FIRST = ["10.5.0.2"];

/** Somebody at the other end of the wire. */
const HEARD = ["ip link set far0 addrgenmode none up"];

const CASES: readonly Case[] = [
  {
    name: "bandwidth",
    // The limit of the other direction is the cable's, and goes with it.
    config: { ingressRate: 0, ingressBurst: 0, egressRate: 8e6, egressBurst: 8e6 },
    look: ({ host }) =>
      shown(host, "tc", "-j", "qdisc", "show").filter(({ kind }) => kind === "tbf").map(({ options }) => options.rate),
    attached: [1e6],
  },
  {
    name: "bridge",
    look: (node) => [
      portsOf(node).length,
      addressesOf(linkOf(node.container)),
      runInNetns(node.container, "ip", "route", "show", "default").trim(),
    ],
    attached: [1, FIRST, "default via 10.5.0.1 dev eth0"],
  },
  {
    name: "bridge with vlan",
    type: "bridge",
    config: { isGateway: false, vlan: 100 },
    look: vlansOf,
    attached: [[`100 ${UNTAGGED}`]],
  },
  {
    name: "bridge with vlanTrunk",
    type: "bridge",
    config: { vlanTrunk: [{ id: 101 }, { minID: 200, maxID: 210 }] },
    look: vlansOf,
    attached: [[`1 ${UNTAGGED}`, "101", "200-210"]],
  },
  {
    name: "bridge with preserveDefaultVlan",
    type: "bridge",
    config: { isGateway: false, vlan: 100, preserveDefaultVlan: true },
    look: vlansOf,
    attached: [["1 Egress Untagged", `100 ${UNTAGGED}`]],
  },
  { name: "dummy", look: kindOf(), attached: ["dummy", FIRST] },
  {
    name: "firewall",
    host: ["nft add table ip own", "nft 'add chain ip own pass { type filter hook forward priority 0; policy drop; }'"],
    look: (node) => rulesOf(node).match(/ip [sd]addr 10\.5\.0\.9 .*accept/g)?.length,
    attached: 3,
  },
  {
    name: "host-device",
    look: ({ host, container }) => [linkOf(host, "nic5")?.operstate, addressesOf(linkOf(container))],
    attached: [undefined, FIRST],
  },
  {
    name: "host-local",
    look: (node, root) => reservations(join(root, node.directory, "ipam/net")),
    attached: ["10.5.0.2"],
  },
  { name: "ipvlan", host: HEARD, look: kindOf("mode"), attached: ["ipvlan", "l2", FIRST] },
  { name: "loopback", look: ({ container }) => linkOf(container, "lo").flags.includes("UP"), attached: true },
  { name: "macvlan", host: HEARD, look: kindOf("mode"), attached: ["macvlan", "bridge", FIRST] },
  { name: "portmap", look: (node) => rulesOf(node).includes("10.5.0.9 . 80"), attached: true },
  {
    name: "ptp",
    look: (node) => [
      runInNetns(node.host, "ip", "route", "show", "10.5.0.2").replace(/veth\w+/, "veth").trim(),
      addressesOf(linkOf(node.container)),
      rulesOf(node).includes('10.5.0.2 comment "net c1 eth0"'),
    ],
    attached: ["10.5.0.2 dev veth scope host", FIRST, true],
  },
  {
    name: "sbr",
    look: ({ container }) => runInNetns(container, "ip", "rule").match(/from 10\.5\.0\.9 lookup .*\d/),
    attached: ["from 10.5.0.9 lookup 100"],
  },
  // It makes nothing: that its answer has the address is all there is.
  { name: "static", look: () => undefined, attached: undefined },
  {
    name: "tap",
    look: (node) => [kindOf("type")(node), linkOf(node.container)?.address],
    attached: [["tun", "tap", FIRST], "0a:00:00:00:00:07"],
  },
  {
    name: "tuning",
    look: ({ container }) => {
      const { mtu, address } = linkOf(container);
      return [mtu, address, runInNetns(container, "cat", "/proc/sys/net/core/somaxconn").trim()];
    },
    attached: [1400, "0a:00:00:00:00:07", "500"],
  },
  { name: "vlan", host: HEARD, look: kindOf("id"), attached: ["vlan", 5, FIRST] },
  {
    name: "vrf",
    look: ({ container }) => [linkOf(container).master, linkOf(container, "red")?.linkinfo.info_kind],
    attached: ["red", "vrf"],
  },
];

function reservations(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory).filter((name) => /^\d/.test(name)) : [];
}

let thin: MinimalRoot;
beforeAll(() => {
  thin = newMinimalRoot();
  // What engines give besides, for tap.
  Bun.spawnSync(["sh", "-ec", 'mkdir "$1/dev/net"; mknod "$1/dev/net/tun" c 10 200', "sh", thin.root]);
});
afterAll(() => thin[Symbol.dispose]());

/** Has the plugin do something for the container of the node; what it prints, parsed, `undefined` for nothing. */
function caller(node: ConformanceNode, type: string, config: object, ifname: string) {
  return (verb: string, more: object = {}) => {
    const { exitCode, stdout, stderr } = thin.run(node.host, type, [], {
      env: {
        CNI_COMMAND: verb,
        CNI_CONTAINERID: "c1",
        CNI_NETNS: node.container.path,
        CNI_IFNAME: ifname,
        CNI_PATH: MINIMAL_ROOT_BIN,
      },
      stdin: JSON.stringify({ cniVersion: "1.1.0", name: "net", type, ...config, ...more }),
    });
    return { exitCode, stderr, answer: stdout === "" ? undefined : JSON.parse(stdout) };
  };
}

const SILENT = { exitCode: 0, stderr: "", answer: undefined };

for (const { name, type = name, config: more, host = [], look, attached } of CASES) {
  test(`${name}: VERSION, STATUS, ADD, CHECK, DEL and GC of the compiled binary, and what the kernel shows`, () => {
    using node = newConformanceNode();
    const { config, options: { ifname = "eth0" } } = workingConfig(type, node);
    for (const line of host) runInNetns(node.host, "sh", "-ec", line);
    const call = caller(node, type, { ...config, ...more }, ifname);
    const seen = () => look(node, thin.root);
    const before = seen();

    expect(call("VERSION").answer.supportedVersions).toContain("1.1.0");
    expect(call("STATUS")).toEqual(SILENT);
    const added = call("ADD");
    expect(added).toMatchObject({ exitCode: 0, stderr: "", answer: { cniVersion: "1.1.0" } });
    expect(seen()).toEqual(attached);
    if (attached !== undefined) expect(before).not.toEqual(attached);
    expect(call("CHECK", { prevResult: added.answer })).toEqual(SILENT);

    expect(call("DEL", { prevResult: added.answer })).toEqual(SILENT);
    expect(seen()).toEqual(before);
    if (attached !== undefined) expect(call("CHECK", { prevResult: added.answer }).exitCode).toBe(1);
    // Once more, as an engine does that has not heard of the first.
    expect(call("DEL")).toEqual(SILENT);
    expect(call("GC", { "cni.dev/valid-attachments": [] })).toEqual(SILENT);
  });
}

test("no plugin is forgotten here", () => {
  expect([...new Set(CASES.map(({ name, type = name }) => type))].sort()).toEqual(pluginNames());
});
