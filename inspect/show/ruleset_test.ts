import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadPlugins } from "../../plugins/registry.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { newNamespaces, runInNetns, runIp } from "../../testing/netns.ts";
import { type PolicyPod, siteTest } from "../../testing/policy_site.ts";
import { newDesired, newPoliced, newPolicyChain } from "../../testing/policy_traffic.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { showRuleset } from "./ruleset.ts";

await loadPlugins();
const root = mkdtempSync(join(tmpdir(), "cni-show-"));
afterAll(() => rmSync(root, { recursive: true }));

const NETWORK = parseNetworkConfigList(JSON.stringify({
  cniVersion: "1.1.0",
  name: "web",
  plugins: [
    {
      type: "bridge",
      bridge: "web0",
      isGateway: true,
      ipMasq: true,
      macspoofchk: true,
      ipam: {
        type: "host-local",
        dataDir: join(root, "ipam"),
        // No whole number of bytes: nft(8) writes such a rule with a mask.
        ranges: [[{ subnet: "10.9.0.0/22" }], [{ subnet: "fd00:9::/64" }]],
      },
    },
    {
      type: "portmap",
      capabilities: { portMappings: true },
      conditionsV4: ["ip", "saddr", "!=", "192.0.2.0/24"],
    },
    { type: "firewall", ingressPolicy: "same-bridge" },
  ],
}));

/** Rules of each chain as `nft list` prints them. */
function nftRules(text: string): Record<string, string[]> {
  const chains = [...text.matchAll(/^\tchain (\S+) \{\n(.*?)^\t\}/gms)];
  return Object.fromEntries(chains.map(([, name = "", body = ""]) => [
    name,
    body.split("\n").map((line) => line.trim()).filter((line) => line !== "" && !/^(comment|type) /.test(line)),
  ]));
}

/** Elements of each set as `nft list` prints them, without comments. */
function nftElements(text: string): Record<string, string[]> {
  const sets = [...text.matchAll(/^\t(?:set|map) (\S+) \{\n(.*?)^\t\}/gms)];
  return Object.fromEntries(sets.flatMap(([, name = "", body = ""]) => {
    const [, elements] = /elements = \{(.*?)\}/s.exec(body) ?? [];
    const words = elements?.replace(/ comment "[^"]*"/g, "").replace(/\s+/g, " ").trim();
    return words === undefined || name === "owners" ? [] : [[name, words.split(", ").sort()]];
  }));
}

test("showRuleset() writes rules, elements and counters as nft(8) does", () => {
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  runIp(host, "link set lo up", "route add default dev lo");
  const owner = { network: "web", containerId: "c1", ifname: "eth0" };
  const runtime = new Runtime({ env: {}, cacheDirectory: root, pluginDirectories: [], log: () => {} });
  const portMappings = [
    { hostPort: 8080, containerPort: 80 },
    { hostIP: "127.0.0.1", hostPort: 53, containerPort: 5353, protocol: "udp" },
  ];
  host.run(() => {
    runtime.add(NETWORK, { ...owner, netns: container.path, capabilityArgs: { portMappings } });
  });
  const { tables, elementsOf, publishedPortsOf } = showRuleset(host.nft);
  const elements = elementsOf(owner);
  for (const [family, name] of [["inet", "cni"], ["bridge", "cni"]]) {
    const table = tables.find((each) => each.family === family && each.name === name)!;
    const listed = runInNetns(host, "nft", "list", "table", family!, name!);
    const rules = Object.fromEntries(table.chains.map(({ name, rules }) => [name, rules.map(({ text }) => text)]));
    expect(rules).toEqual(nftRules(listed));
    const owned = Map.groupBy(elements.filter(({ table }) => table === `${family} ${name}`), ({ set }) => set);
    const shared = ["ingress_bridges", "same_bridge_bridges"];
    const expected = Object.entries(nftElements(listed)).filter(([set]) => !shared.includes(set));
    expect(Object.fromEntries([...owned].map(([set, found]) => [set, found.map(({ element }) => element).sort()])))
      .toEqual(Object.fromEntries(expected));
    const counts = table.sets.filter(({ elements }) => elements > 0).map(({ name, elements }) => [name, elements]);
    expect(Object.fromEntries(counts)).toEqual(
      Object.fromEntries(Object.entries(nftElements(listed)).map(([set, { length }]) => [set, length])),
    );
  }
  expect(publishedPortsOf(owner)).toEqual([
    { protocol: "udp", hostAddress: "127.0.0.1", hostPort: 53, containerPort: 5353, containerAddresses: ["10.9.0.2"] },
    { protocol: "tcp", hostPort: 8080, containerPort: 80, containerAddresses: ["10.9.0.2", "fd00:9::2"] },
  ]);
  // One packet that iptables' tables forward.
  runInNetns(host, "nft", "add rule ip filter FORWARD counter packets 7 bytes 500 jump CNI-ADMIN");
  const forward = showRuleset(host.nft).tables.find(({ family, name }) => family === "ip" && name === "filter")!
    .chains.find(({ name }) => name === "FORWARD")!;
  expect(forward).toEqual({
    ...{ name: "FORWARD", type: "filter", hook: "forward", priority: 0, policy: "accept" },
    rules: [
      { text: "jump CNI-FORWARD", comment: "CNI firewall plugin rules", packets: 0, bytes: 0 },
      { text: "jump CNI-ADMIN", packets: 7, bytes: 500 },
    ],
  });
});

/** In tables of others, administrators write any rules. */
const OTHER_RULES = [
  "meta mark set meta mark ^ 0x00000001",
  "meta mark set meta mark & 0x000000ff | 0x00000100",
  "meta mark set meta mark | 0x00000100",
  "meta mark set 0x00000007",
  "meta mark != 0x00000001 accept",
  "meta mark & 0x000000ff == 0x00000001 accept",
  "th dport > 1024 th sport <= 80 drop",
  'iifname "eth*" oifname != "lo" return',
  "ip saddr 10.0.0.1 ip daddr != 10.0.0.0/9 drop",
  "ip saddr 10.0.0.1 ip daddr 10.0.0.2 accept",
  "ct state ! established notrack",
  "ct state invalid,new,untracked drop",
  "ct mark 0x00000007 accept",
  "fib daddr type != local return",
  'limit rate 5/second log prefix "a b" group 7 snaplen 80 queue-threshold 2',
  'log prefix "c" level debug drop',
  "log drop",
  "limit rate over 10/minute burst 7 packets drop",
];

test("showRuleset() writes rules of others as nft(8) does", () => {
  using namespaces = newNamespaces();
  const { host } = namespaces;
  runInNetns(host, "nft", "add table ip other; add chain ip other CNI-TEST; add chain ip other quiet");
  for (const rule of OTHER_RULES) runInNetns(host, "nft", `add rule ip other CNI-TEST ${rule}`);
  const { "CNI-TEST": expected } = nftRules(runInNetns(host, "nft", "list", "table", "ip", "other"));
  expect(expected).toHaveLength(OTHER_RULES.length);
  const [table] = showRuleset(host.nft).tables;
  expect(table!.chains.map(({ name }) => name)).toEqual(["CNI-TEST"]);
  expect(table!.chains[0]!.rules.map(({ text }) => text)).toEqual(expected!);
  // What is unknown stands in brackets.
  const unknown = [
    ["quota 5 bytes accept", "[quota] accept"],
    ["@nh,96,64 0x0a0000010a000002 accept", "[bytes 1+12] 0x0a0000010a000002 accept"],
    ["tcp flags syn accept", "meta l4proto 6 [bytes 2+13] & 0x02 != 0x00 accept"],
    ["ct status snat accept", "ct status & 0x00000010 != 0x00000000 accept"],
    ["ip saddr & 255.0.255.0 == 10.0.1.0 accept", "ip saddr & 0xff00ff00 == 10.0.1.0 accept"],
  ];
  for (const [rule, text] of unknown) {
    runInNetns(host, "nft", `flush chain ip other CNI-TEST; add rule ip other CNI-TEST ${rule}`);
    expect(showRuleset(host.nft).tables[0]!.chains[0]!.rules).toEqual([{ text: text! }]);
  }
});

test("showRuleset() is empty without rules", () => {
  using namespaces = newNamespaces();
  expect(showRuleset(namespaces.host.nft).tables).toEqual([]);
});

test("showRuleset() shows a set that one plugin alone knows", () => {
  using namespaces = newNamespaces();
  const { host } = namespaces;
  const set = 'set hiding { type ipv4_addr; elements = { 10.9.0.1 comment "web c1 eth0" }; }';
  runInNetns(host, "nft", `table inet cni { ${set}; chain c { ip saddr { 10.9.0.2, 10.9.0.3 } drop; }; }`);
  const { tables, elementsOf } = showRuleset(host.nft);
  expect(tables[0]?.sets.map(({ name, elements }) => [name, elements])).toEqual([["hiding", 1]]);
  expect(elementsOf({ network: "web", containerId: "c1", ifname: "eth0" })).toEqual([
    { table: "inet cni", set: "hiding", element: "10.9.0.1" },
  ]);
});

siteTest("bridged", "showRuleset() shows which pods policies isolate", (site, ruleset) => {
  const [both, ingress, open, closed] = [2, 3, 4, 5].map((n) => site.newPod(n)) as [
    PolicyPod,
    PolicyPod,
    PolicyPod,
    PolicyPod,
  ];
  for (const pod of [both, ingress, open, closed]) site.add(pod);
  ruleset.replace(newDesired(
    [newPoliced(both, { ingress: "in", egress: "out" }), newPoliced(ingress, { ingress: "in" }), newPoliced(open)],
    [newPolicyChain("in", "ingress"), newPolicyChain("out", "egress")],
  ));
  const { policyOf } = showRuleset(site.host.nft);
  const ofPod = ({ n }: PolicyPod) => policyOf({ network: "pods", containerId: `c${n}`, ifname: "eth0" });
  expect([both, ingress, open, closed].map(ofPod)).toEqual([
    { ingress: "isolated", egress: "isolated" },
    { ingress: "isolated", egress: "open" },
    { ingress: "open", egress: "open" },
    { ingress: "closed", egress: "closed" },
  ]);
  expect(policyOf({ network: "other", containerId: "c2", ifname: "eth0" })).toBeUndefined();
});
