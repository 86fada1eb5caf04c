import { expect } from "bun:test";
import { ipBytes, parseCidr, parseIp } from "../../../ffi/address.ts";
import { ipv4Addr, namedSet, setOf } from "../../../ffi/nft/datatypes.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { daddr, drop, inSet, rule } from "../../../ffi/nft/statements.ts";
import { NF_INET_FORWARD, NF_IP_PRI_FILTER } from "../../../ffi/nft/uapi.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { netnsTest, newNamespaces, runInNetns } from "../../../testing/netns.ts";
import { addMasquerade, removeMasquerade } from "../veth/masquerade.ts";
import { checkElements, ensureElements, removeElementsOf, restoreElements } from "./elements.ts";
import { inetTable } from "./inet_table.ts";
import { repairTable } from "./repair.ts";
import { checkStaticRules, extendTable, requireTable } from "./table.ts";
import type { WantedElement } from "./wanted_elements.ts";

const A = { network: "web", containerId: "a", ifname: "eth0" };
const ADDRESS = parseCidr("10.88.0.2/16");

/** As a plugin's folder declares it. */
const partOf = (name: string) =>
  extendTable(inetTable, {
    objects: () => ({
      sets: [namedSet(name, setOf([ipv4Addr]), "Hidden addresses")],
      chains: [{ name, type: "filter", hook: { number: NF_INET_FORWARD, priority: NF_IP_PRI_FILTER } }],
    }),
    rules: () => [{ chain: name, expressions: rule(inSet([daddr(4)], name), drop()) }],
    purposes: { [name]: [name] },
    uses: { [name]: { [name]: 1 } },
  });

const HIDING = partOf("hiding");
const OTHER = partOf("other");
const wanted = (set: string): WantedElement[] => [
  { set, key: ipBytes(parseIp("10.9.0.1")), title: "the hidden address" },
];
const list = (host: Netns): string => runInNetns(host, "nft", "list", "ruleset");

netnsTest(
  "the first ADD of a plugin makes what it declares, silently, and leaves what others have made",
  ({ host }) => {
    const log: string[] = [];
    const options = { log: (line: string) => void log.push(line) };
    addMasquerade(host.nft, A, [ADDRESS]);
    const handles = runInNetns(host, "nft", "-a", "list", "chain", "inet", "cni", "postrouting");
    const generation = nft.getGenerationId(host.nft);
    ensureElements(host.nft, HIDING, A, wanted("hiding"), options);
    ensureElements(host.nft, OTHER, A, wanted("other"), options);
    expect(log).toEqual([]);
    // A transaction for the part, and one for its element.
    expect(nft.getGenerationId(host.nft)).toBe(generation + 4);
    expect(runInNetns(host, "nft", "-a", "list", "chain", "inet", "cni", "postrouting")).toBe(handles);
    checkElements(host.nft, HIDING, A, wanted("hiding"));
    checkElements(host.nft, OTHER, A, wanted("other"));
    // A plugin that declares nothing finds its table whole.
    checkStaticRules(host.nft, inetTable);
    expect(repairTable(host.nft, inetTable)).toEqual([]);
  },
);

netnsTest("without a table, the first ADD makes one with all that every plugin may need", ({ host }) => {
  ensureElements(host.nft, HIDING, A, wanted("hiding"));
  const before = nft.getGenerationId(host.nft);
  addMasquerade(host.nft, A, [ADDRESS]);
  expect(nft.getGenerationId(host.nft)).toBe(before + 1);
  using namespaces = newNamespaces();
  const second = namespaces.host;
  addMasquerade(second.nft, A, [ADDRESS]);
  ensureElements(second.nft, HIDING, A, wanted("hiding"));
  const sorted = (text: string) => text.split("\n").sort();
  expect(sorted(list(host))).toEqual(sorted(list(second)));
});

netnsTest("DEL removes the elements of its plugin alone", ({ host }) => {
  addMasquerade(host.nft, A, [ADDRESS]);
  ensureElements(host.nft, HIDING, A, wanted("hiding"));
  ensureElements(host.nft, OTHER, A, wanted("other"));
  removeElementsOf(host.nft, HIDING, "hiding", A);
  expect(nft.listElements(host.nft, HIDING, "hiding")).toEqual([]);
  checkElements(host.nft, OTHER, A, wanted("other"));
  removeMasquerade(host.nft, A);
  removeElementsOf(host.nft, OTHER, "other", A);
  expect(nft.listElements(host.nft, inetTable, "owners")).toEqual([]);
});

netnsTest(
  "CHECK names a chain of the plugin that lost its rule, and ADD and restore say that it is back",
  ({ host }) => {
    ensureElements(host.nft, HIDING, A, wanted("hiding"));
    runInNetns(host, "nft", "flush", "chain", "inet", "cni", "hiding");
    expect(() => checkElements(host.nft, HIDING, A, wanted("hiding"))).toThrow(
      'chain "hiding" has 0 rules, expected 1',
    );
    const log: string[] = [];
    ensureElements(host.nft, HIDING, A, wanted("hiding"), { log: (line) => void log.push(line) });
    expect(log).toEqual([expect.stringMatching(/^Restored chain "hiding" of table "inet cni"/)]);
    checkElements(host.nft, HIDING, A, wanted("hiding"));
    runInNetns(host, "nft", "flush", "chain", "inet", "cni", "hiding");
    expect(restoreElements(host.nft, HIDING, A, wanted("hiding"))).toEqual(['chain "hiding" of table "inet cni"']);
  },
);

/** As after a copy by a version of nft(8) that drops comments. */
function loseComment(host: Netns, listing: string): void {
  const text = listing.replaceAll(/^\tcomment .*\n/gm, "");
  const { stderr } = host.run(() =>
    Bun.spawnSync(["nft", "-f", "-"], { stdin: Buffer.from(`flush ruleset\n${text}`) })
  );
  expect(stderr.toString()).toBe("");
}

netnsTest("a whole table that lost its comment gets what a plugin declares", ({ host }) => {
  addMasquerade(host.nft, A, [ADDRESS]);
  loseComment(host, list(host));
  requireTable(host.nft, HIDING);
  ensureElements(host.nft, HIDING, A, wanted("hiding"));
  checkElements(host.nft, HIDING, A, wanted("hiding"));
  runInNetns(host, "nft", "flush", "chain", "inet", "cni", "hiding");
  expect(() => requireTable(host.nft, HIDING)).toThrow('chain "hiding" has 0 rules, expected 1');
  expect(() => repairTable(host.nft, HIDING)).toThrow('Cannot repair table "inet cni"');
});

netnsTest("what a plugin has added to a table of all is lost, not new, while elements need it", ({ host }) => {
  const table = extendTable(inetTable, {
    objects: () => ({ sets: [], chains: HIDING.ownPart!.objects().chains }),
    rules: () => [{ chain: "hiding", expressions: rule(inSet([daddr(4)], "forward4"), drop()) }],
    purposes: {},
    uses: { ingress: { ...inetTable.uses["ingress"], hiding: 1 } },
  });
  const log: string[] = [];
  ensureElements(host.nft, table, A, wanted("forward4"), { log: (line) => void log.push(line) });
  runInNetns(host, "nft", "flush chain inet cni hiding; delete chain inet cni hiding");
  expect(repairTable(host.nft, table)).toEqual(['chain "hiding" of table "inet cni"']);
  runInNetns(host, "nft", "flush set inet cni forward4; flush chain inet cni hiding; delete chain inet cni hiding");
  expect(repairTable(host.nft, table)).toEqual([]);
  expect(log).toEqual([]);
});

netnsTest("STATUS tries what a plugin declares, also after the table of all", ({ host }) => {
  const refused = extendTable(inetTable, {
    ...HIDING.ownPart!,
    rules: () => [{ chain: "absent", expressions: rule(drop()) }],
  });
  requireTable(host.nft, inetTable);
  expect(() => requireTable(host.nft, refused)).toThrow("Cannot use nf_tables of this kernel");
});
