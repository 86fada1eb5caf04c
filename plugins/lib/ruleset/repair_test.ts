import { expect, test } from "bun:test";
import { parseCidr, parseMac } from "../../../ffi/address.ts";
import { findChain, getGenerationId } from "../../../ffi/nft/objects.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { netnsTest, newNamespaces, runInNetns } from "../../../testing/netns.ts";
import { bridgeTable } from "./bridge_table.ts";
import { addMasquerade, checkMasquerade, restoreMasquerade } from "../veth/masquerade.ts";
import { ensureElements, restoreElements } from "./elements.ts";
import { ElementInUseError, type WantedElement } from "./wanted_elements.ts";
import { repairTable, TABLES } from "./repair.ts";
import { inetTable } from "./inet_table.ts";
import { bridgeIngressChain, hairpinChain, masqueradeChain } from "./inet_shared_chains.ts";
import type { SharedChain } from "./shared_chains.ts";
import { addSpoofCheck } from "../veth/spoof_check.ts";
import { policyTable } from "./policy_tables.ts";
import { checkStaticRules, createTable, listFormerRules, requireTable, type TableDefinition } from "./table.ts";

const A = { network: "web", containerId: "a", ifname: "eth0" };
const B = { ...A, containerId: "b" };
const address = parseCidr("10.88.0.2/16");
const nft = (host: Netns, ...words: string[]) => runInNetns(host, "nft", ...words);
const list = (host: Netns) => nft(host, "list", "ruleset");

/** `[table, chain, handles of its rules]` */
function chainsOf(host: Netns): [table: string, chain: string, handles: number[]][] {
  return [...nft(host, "-a", "list", "ruleset").matchAll(/^table (\S+ \S+) [^]*?^\}/gm)].flatMap(([text, table]) =>
    [...text.matchAll(/^\tchain (\S+) [^]*?^\t\}/gm)].map(([body, chain]): [string, string, number[]] => [
      table!,
      chain!,
      [...body.matchAll(/^\t\t.*# handle (\d+)$/gm)].map(([, handle]) => Number(handle)),
    ])
  );
}

netnsTest("a table that was emptied gets its rules back in one change, and its elements stay", ({ host }) => {
  addMasquerade(host.nft, A, [address]);
  addSpoofCheck(host.nft, A, "veth1", parseMac("0a:00:00:00:00:01"));
  const whole = list(host);
  nft(host, "flush table inet cni; flush table bridge cni");
  const before = getGenerationId(host.nft);
  const restored = repairTable(host.nft, inetTable);
  expect(getGenerationId(host.nft)).toBe(before + 1);
  expect(restored.sort()).toEqual(
    [
      ...["after_filter", "before_filter", "forward_mark", "forward_mark_inbound", "forward_mark_set"],
      ...[
        "hostports",
        "hostports_any_address",
        "ingress_policies",
        "output",
        "postrouting",
      ],
      "prerouting",
    ].map((chain) => `chain "${chain}" of table "inet cni"`),
  );
  expect(repairTable(host.nft, bridgeTable)).toEqual([
    'chain "prerouting" of table "bridge cni"',
    'chain "forward" of table "bridge cni"',
  ]);
  checkStaticRules(host.nft, inetTable);
  checkStaticRules(host.nft, bridgeTable);
  // What belongs to attachments comes back with them.
  expect(() => checkMasquerade(host.nft, A, [address])).toThrow(
    'Check failed: the ruleset\'s chain "masquerade-10.88.0.0/16" has 0 rules, expected 3',
  );
  expect(restoreMasquerade(host.nft, A, [address])).toEqual(["masquerading of 10.88.0.2"]);
  expect(list(host)).toBe(whole);
  const now = getGenerationId(host.nft);
  expect([repairTable(host.nft, inetTable), restoreMasquerade(host.nft, A, [address])]).toEqual([[], []]);
  expect(getGenerationId(host.nft)).toBe(now);
});

netnsTest("a table that is not there, or whole, is left as it is", ({ host }) => {
  const before = getGenerationId(host.nft);
  expect(repairTable(host.nft, inetTable)).toEqual([]);
  expect(list(host)).toBe("");
  addMasquerade(host.nft, A, [address]);
  nft(host, "add rule inet cni after_filter counter");
  const added = getGenerationId(host.nft);
  expect(added).toBeGreaterThan(before);
  expect(repairTable(host.nft, inetTable)).toEqual([]);
  expect(getGenerationId(host.nft)).toBe(added);
});

/** An element that leads to a chain, wherever that is. */
const leading = (set: string, key: Uint8Array, chain: SharedChain): WantedElement => ({ set, key, chain, title: set });
const SHARED: readonly WantedElement[] = [
  leading("masquerade4", Uint8Array.of(10, 88, 0, 2), masqueradeChain(address)),
  leading("hairpin4", Uint8Array.of(10, 88, 0, 2), hairpinChain(address)),
  leading("ingress4", Uint8Array.of(10, 88, 0, 2), bridgeIngressChain("same-bridge", "br0")),
];

test("every rule is known again: what is left of a chain is neither doubled nor put into another order", () => {
  using namespaces = newNamespaces();
  const { host } = namespaces;
  ensureElements(host.nft, inetTable, A, SHARED);
  addSpoofCheck(host.nft, A, "veth1", parseMac("0a:00:00:00:00:01"));
  const whole = list(host);
  const chains = chainsOf(host);
  expect(chains.flatMap(([, , handles]) => handles).length).toBeGreaterThan(25);
  for (const [table, chain, handles] of chains) {
    for (let i = 0; i < handles.length; i++) {
      // By now every rule has another handle.
      const [, , now] = chainsOf(host).find(([t, c]) => t === table && c === chain)!;
      nft(host, `delete rule ${table} ${chain} handle ${now[i]}`);
      repairTable(host.nft, inetTable);
      repairTable(host.nft, bridgeTable);
      restoreElements(host.nft, inetTable, A, SHARED);
      expect(list(host)).toBe(whole);
    }
  }
});

const EARLIER = new URL("../../../testdata/rulesets/cni-forward.nft", import.meta.url).pathname;

/** By chain, as nft(8) prints them. */
const rulesByChain = (host: Netns, { table }: TableDefinition): Record<string, string[]> =>
  Object.fromEntries(
    [...nft(host, "list", "table", "inet", table).matchAll(/^\tchain (\S+) [^]*?^\t\}/gm)].map(([body, chain]) => [
      chain!,
      body.match(/^\t\t(?!type |comment ).*$/gm) ?? [],
    ]),
  );

for (
  const [table, chain, command] of [
    [policyTable, "forward", "insert rule inet cni_policy forward"],
    [inetTable, "after_filter", "add rule inet cni after_filter"],
    [inetTable, "forward_mark_inbound", "add rule inet cni forward_mark_inbound"],
  ] as const
) {
  netnsTest(`an upgrade beside a rule of others has every new rule: ${command}`, ({ host }) => {
    nft(host, "-f", EARLIER);
    nft(host, `${command} counter comment "mine"`);
    expect(repairTable(host.nft, table)).toEqual([]);
    const upgraded = rulesByChain(host, table);
    expect(upgraded[chain]!.join()).toContain("mine");
    nft(host, "delete table inet", table.table);
    createTable(host.nft, table);
    for (const [name, rules] of Object.entries(rulesByChain(host, table))) {
      // A rule for neighbour discovery stays in front: nft(8) has loaded it with its expressions in another order.
      expect([name, upgraded[name]!.slice(-rules.length)]).toEqual([name, rules]);
    }
  });
}

netnsTest("a table of an earlier release that lost its comment is upgraded", ({ host }) => {
  nft(host, "-f", EARLIER);
  const text = list(host).replaceAll(/^\tcomment .*\n/gm, "");
  host.run(() => Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(`flush ruleset\n${text}`) }));
  expect(list(host)).toBe(text);
  for (const table of [inetTable, policyTable]) {
    requireTable(host.nft, table);
    expect(repairTable(host.nft, table)).toEqual([]);
    checkStaticRules(host.nft, table);
    expect(listFormerRules(host.nft, table)).toEqual([]);
  }
  // This rule alone may be anybody's.
  nft(host, "flush ruleset; add table inet cni; add chain inet cni forward");
  nft(host, "add rule inet cni forward ct state established,related accept");
  expect(() => repairTable(host.nft, inetTable)).toThrow('Cannot repair table "inet cni"');
});

netnsTest("rules of others in our chains stay where they are", ({ host }) => {
  addMasquerade(host.nft, A, [address]);
  nft(host, "flush chain inet cni postrouting");
  nft(host, 'add rule inet cni postrouting counter comment "mine"');
  const chain = "masquerade-10.88.0.0/16";
  nft(host, `flush chain inet cni ${chain}; add rule inet cni ${chain} counter comment "mine as well"`);
  expect(repairTable(host.nft, inetTable)).toEqual(['chain "postrouting" of table "inet cni"']);
  restoreMasquerade(host.nft, A, [address]);
  const rules = (name: string) =>
    nft(host, "list", "chain", "inet", "cni", name).match(/^\t\t(?!type |comment ).*$/gm)!;
  expect(rules("postrouting")).toHaveLength(7);
  expect(rules("postrouting")[0]).toContain("mine");
  expect(rules(chain)).toHaveLength(4);
  expect(rules(chain)[0]).toContain("mine as well");
});

netnsTest("a table of somebody else's that has the same name is refused and left as it is", ({ host }) => {
  nft(host, "add table inet cni; add chain inet cni postrouting; add rule inet cni postrouting drop");
  const before = list(host);
  expect(() => repairTable(host.nft, inetTable)).toThrow(
    'Cannot repair table "inet cni": it was not made by this program',
  );
  expect(list(host)).toBe(before);
});

netnsTest("chains and sets that were deleted are made again", ({ host }) => {
  addMasquerade(host.nft, A, [address]);
  const sorted = () => list(host).split("\n").sort();
  const whole = sorted();
  nft(host, "flush chain inet cni before_filter; delete chain inet cni before_filter");
  nft(host, "flush chain inet cni ingress_policies; delete map inet cni ingress4");
  expect(repairTable(host.nft, inetTable).sort()).toEqual(
    ["before_filter", "ingress_policies"].map((chain) => `chain "${chain}" of table "inet cni"`),
  );
  expect(sorted()).toEqual(whole);
  checkStaticRules(host.nft, inetTable);
});

netnsTest("what belongs to a chain comes back with it", ({ host }) => {
  ensureElements(host.nft, inetTable, A, SHARED);
  const whole = list(host);
  nft(host, "delete element inet cni ingress_bridges { br0 }; flush map inet cni same_bridge_bridges");
  expect(restoreElements(host.nft, inetTable, A, SHARED)).toEqual(["ingress4"]);
  expect(list(host)).toBe(whole);
});

netnsTest("what another attachment has by now is not taken from it", ({ host }) => {
  addMasquerade(host.nft, A, [address]);
  addMasquerade(host.nft, B, [address]);
  const before = getGenerationId(host.nft);
  expect(() => restoreMasquerade(host.nft, A, [address])).toThrow(ElementInUseError);
  expect(restoreMasquerade(host.nft, B, [address])).toEqual([]);
  expect(getGenerationId(host.nft)).toBe(before);
});

netnsTest("an ADD puts back the rules of a chain that it leads to", ({ host }) => {
  addMasquerade(host.nft, A, [address]);
  nft(host, "flush chain inet cni masquerade-10.88.0.0/16");
  addMasquerade(host.nft, B, [parseCidr("10.88.0.3/16")]);
  checkMasquerade(host.nft, A, [address]);
});

const ALL: readonly (readonly [table: TableDefinition, purpose: string])[] = TABLES.flatMap((table) =>
  Object.keys(table.purposes).map((purpose) => [table, purpose] as const)
);

netnsTest("an ADD expects as many uses of a chain as a new table has", ({ host }) => {
  for (const table of TABLES) createTable(host.nft, table);
  for (const [table, purpose] of ALL) {
    const uses = Object.keys(table.uses[purpose]!).map((name) => [name, findChain(host.nft, table, name)?.use]);
    expect([purpose, Object.fromEntries(uses)]).toEqual([purpose, table.uses[purpose]]);
  }
});

netnsTest("an ADD repairs a table that was emptied, says so, and changes nothing while it is whole", ({ host }) => {
  const log: string[] = [];
  const options = { log: (line: string) => void log.push(line) };
  const add = (n: number) =>
    addMasquerade(host.nft, { ...A, containerId: `c${n}` }, [parseCidr(`10.88.0.${n}/16`)], undefined, options);
  add(2);
  const whole = list(host);
  nft(host, "flush table inet cni");
  add(2);
  expect(list(host)).toBe(whole);
  expect(log).toEqual([
    expect.stringMatching(
      /^Restored (?:chain "\w+" of table "inet cni", ){2}chain "\w+" of table "inet cni" and \d+ more; for other containers, put back what is missing: cni run restore$/,
    ),
  ]);
  const handles = nft(host, "-a", "list", "chain", "inet", "cni", "postrouting");
  const generation = getGenerationId(host.nft);
  add(3);
  expect(getGenerationId(host.nft)).toBe(generation + 1);
  expect(nft(host, "-a", "list", "chain", "inet", "cni", "postrouting")).toBe(handles);
  expect(log).toHaveLength(1);
});
