/**
 * A host's rules as nft(8) and iptables-save(8) show them.
 *
 * @module
 */
import type { Netns } from "../ffi/netns/netns.ts";
import { runInNetns, runShellInNetns } from "./netns.ts";

/** Has iptables drop what is forwarded, in both families. */
export const IPTABLES_DROPPING = "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP";

/** The whole ruleset, as `nft list ruleset` prints it. */
export const nftListRuleset = (host: Netns): string => runInNetns(host, "nft", "list", "ruleset");

/** The ruleset without our own tables, and without counts of packets. */
export function foreignRuleset(host: Netns): string {
  return nftListRuleset(host).replace(/^table (inet|bridge) cni \{\n[^]*?^\}\n/gm, "").replace(
    /packets \d+ bytes \d+/g,
    "",
  );
}

/** The elements of all maps, in the words of nft(8), as `map: element`, sorted. */
export function nftElements(host: Netns): string[] {
  return [...nftListRuleset(host).matchAll(/map (\S+) \{[^}]*?elements = \{ ([^}]*) \}/g)].flatMap(([, map, all]) =>
    all!.split(/,\s*/).map((element) => `${map}: ${element}`)
  ).sort();
}

/** The names of the chains that are one container's. */
export const containerChains = (host: Netns): string[] =>
  [...nftListRuleset(host).matchAll(/chain (\S*-\S+)/g)].map(([, name]) => name!);

/** The rules of iptables and ip6tables, without dates and counters. */
export function iptablesSave(host: Netns): string {
  return runShellInNetns(host, "iptables-save; ip6tables-save").replace(/^#.*\n/gm, "").replace(/\[\d+:\d+\]/g, "[]");
}

/** The rules of iptables and ip6tables that name a CNI chain, as `-S` prints them. */
export function iptablesCniRules(host: Netns): string[] {
  return runShellInNetns(host, "iptables -S; ip6tables -S").split("\n").filter((line) => line.includes("CNI"));
}

/** Leaves out the element that is of no attachment: see plugins/portmap/remembered_ports.ts. */
export function withoutMark(ruleset: string): string {
  const mark = String.raw`[^\s,{}][^,{}]* comment "published-ports-are-complete"`;
  return ruleset.replace(new RegExp(String.raw`elements = \{ ${mark} \}|${mark},\s*|,\s*${mark}`), "");
}
