import { expect, test } from "bun:test";
import type { Effect } from "./effect.ts";
import { summarizeEffects } from "./summarize_effects.ts";

const sentencesOf = (effects: readonly Effect[]) => summarizeEffects(effects).map(({ sentence }) => sentence);
const file = (operation: "create" | "remove", path: string): Effect => ({
  ...{ kind: "file", action: operation === "remove" ? "remove" : "add", operation, target: path },
  ...{ object: path.endsWith("/") ? "directory" : "file", sentence: `${operation} "${path}"` },
});
const nft = (object: NonNullable<Effect["object"]>, target: string, more: Partial<Effect> = {}): Effect => ({
  ...{ kind: "nft", action: "add", netns: "host", object, target, sentence: `add ${object}` },
  ...more,
});
const link = (target: string, more: Partial<Effect> = {}): Effect => ({
  ...{ kind: "link", action: "remove", netns: "host", target, sentence: `remove link "${target}"` },
  ...more,
});

test("rules are counted by table, and published ports are named", () => {
  const port = (target: string, publishedPort: string) => nft("element", target, { publishedPort });
  expect(sentencesOf([
    nft("table", "inet cni"),
    nft("chain", "inet cni forward"),
    nft("rule", "inet cni forward"),
    nft("rule", "inet cni forward"),
    nft("element", "inet cni forward4"),
    nft("table", "ip filter"),
    nft("rule", "inet other forward"),
    nft("rule", "inet cni forward", { netns: "/run/netns/web" }),
    port("inet cni hostports4", "8080/tcp"),
    port("inet cni hostports6", "8080/tcp"),
    port("inet cni hostports4", "53/udp"),
  ])).toEqual([
    "publish ports 8080/tcp and 53/udp",
    'add table "inet cni" with 1 chain, 2 rules and 1 element',
    'add table "ip filter"',
    'add 1 rule to table "inet other"',
    'add 1 rule to table "inet cni" in /run/netns/web',
  ]);
  const withdrawn = nft("element", "inet cni hostports4", { action: "remove", publishedPort: "8080/tcp" });
  expect(sentencesOf([withdrawn, nft("element", "inet cni forward4", { action: "remove" })])).toEqual([
    "withdraw port 8080/tcp",
    'remove 1 element from table "inet cni"',
  ]);
});

test("files are named by directory, without locks, and what is many is counted", () => {
  const addresses = Array.from({ length: 8 }, (_, i) => file("remove", `/ipam/web/10.1.0.${i}`));
  expect(sentencesOf([
    file("create", "/cache/"),
    file("create", "/cache/.gc.lock"),
    ...addresses,
    file("create", "/ipam/"),
    file("remove", "/cache/results/web-c1-eth0"),
    ...Array.from({ length: 7 }, (_, i) => link(`veth${i}`)),
  ])).toEqual([
    ...Array.from({ length: 5 }, (_, i) => `remove link "veth${i}"`),
    "remove 2 more links",
    'create directories "/cache/" and "/ipam/"',
    'remove files in "/ipam/web": 10.1.0.0, 10.1.0.1, 10.1.0.2, 10.1.0.3, 10.1.0.4 and 3 more',
    'remove "/cache/results/web-c1-eth0"',
  ]);
});

test("changes of links that come or go are not told, those of others are", () => {
  const pair = link("veth1", { action: "add", peer: "eth0", sentence: "add pair" });
  const change = (target: string) => link(target, { action: "change", sentence: `change ${target}` });
  expect(sentencesOf([pair, change("veth1"), change("eth0"), change("lo")])).toEqual(["add pair", "change lo"]);
});
