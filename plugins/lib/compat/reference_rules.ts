/**
 * What the reference plugins leave in the ruleset, by the names that they give it: how containers that they attached are found and removed.
 *
 * A node that never saw them pays one system call per DEL: which of these tables there are. Their iptables chains stand in tables that iptables makes
 * and that are everybody's; those stay, with the base chains that iptables makes in them. Tables of their own go with the last rule.
 *
 * @module
 */
import * as nft from "../../../ffi/nft/objects.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { ask, tableQuestion } from "../../../ffi/nft/queries.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { commentOf, holds, targetOf } from "../ruleset/foreign_rules.ts";
import { untilUndisturbed } from "../ruleset/retry.ts";
import type { Owner } from "../protocol/owner.ts";

/** What the reference knows an attachment by: in most places it does not look at the interface. */
export type ReferenceOwner = Pick<Owner, "network" | "containerId">;

/** Where iptables keeps what it translates. */
export const NAT_TABLES: readonly nft.TableKey[] = [
  { family: NFPROTO_IPV4, table: "nat" },
  { family: NFPROTO_IPV6, table: "nat" },
];
export const isNat = ({ table }: nft.TableKey): boolean => table === "nat";

/** The reference cuts SHA-512 as hexadecimal digits. */
export function shortHash(text: string, length: number): string {
  return new Bun.CryptoHasher("sha512").update(text).digest("hex").slice(0, length);
}

/** iptables takes 28 characters. */
const CHAIN_LENGTH = 28;

/** The name of a container's chain: the prefix says what for. */
export function referenceChain(
  prefix: "CNI-" | "CNI-DN-" | "CNI-SN-",
  { network, containerId }: ReferenceOwner,
): string {
  return prefix + shortHash(`${network}${containerId}`, CHAIN_LENGTH - prefix.length);
}

/** Whose the rule is, by the comment that the reference gives to iptables; names hold nothing that would have to be quoted. */
export function referenceOwner(rule: nft.LazyRule): ReferenceOwner | undefined {
  const [, network, containerId] = /^(?:dnat )?name: "([^"]+)" id: "([^"]+)"$/.exec(commentOf(rule)) ?? [];
  return network && containerId ? { network, containerId } : undefined;
}

/** The owners in a chain's rules that are of this network and live no more. */
export function deadIn(
  rules: readonly nft.LazyRule[],
  network: string,
  valid: readonly Omit<Owner, "network">[],
): ReferenceOwner[] {
  const living = new Set(valid.map(({ containerId }) => containerId));
  return rules.filter((rule) => holds(rule, `name: "${network}" id: "`)).flatMap((rule) => {
    const owner = referenceOwner(rule);
    return owner && owner.network === network && !living.has(owner.containerId) ? [owner] : [];
  });
}

/** Those of the tables that there are: nothing is asked about others, nor about rules. @throws {NetlinkError} */
export function presentTables(nl: Netlink, wanted: readonly nft.TableKey[]): nft.TableKey[] {
  const found = ask(nl, wanted.map(tableQuestion));
  return wanted.filter((_, i) => found[i]);
}

/** Reads and changes as one: begins anew if somebody else changed the ruleset meanwhile. @throws {NetlinkError} */
export function changeRuleset(nl: Netlink, plan: (tx: Transaction) => void): void {
  untilUndisturbed(() => {
    const generation = nft.generation(nl);
    const tx = transaction(nl);
    plan(tx);
    if (!tx.empty) tx.commit(generation);
  });
}

/** What is to go from a table. */
export interface Removal {
  /** Chains, those that lead to others before the others. */
  readonly chains: readonly string[];
  /** Chains that stay, in which rules lead to those that go. */
  readonly entries: readonly string[];
  /** Which of these rules go; all unless told. */
  goes?(rule: nft.LazyRule): boolean;
}

/** Removes chains with the rules that lead to them; a chain stays that somebody else's rule leads to. @throws {NetlinkError} */
export function removeChains(
  tx: Transaction,
  nl: Netlink,
  table: nft.TableKey,
  { chains, entries, goes = () => true }: Removal,
): void {
  const led = new Map<string, number>();
  const follow = (rule: nft.LazyRule): boolean => {
    const to = targetOf(rule);
    if (to === undefined || !chains.includes(to)) return false;
    led.set(to, (led.get(to) ?? 0) + 1);
    return true;
  };
  for (const entry of entries) {
    const leading = nft.listLazyRules(nl, table, entry).filter((rule) => chains.some((chain) => holds(rule, chain)));
    for (const rule of leading.filter(goes).filter(follow)) tx.deleteRule(table, entry, rule.handle);
  }
  for (const name of chains) {
    const use = nft.findChain(nl, table, name)?.use;
    if (use === undefined) continue;
    const rules = nft.listLazyRules(nl, table, name);
    if (use !== rules.length + (led.get(name) ?? 0)) continue;
    tx.deleteChain(table, name);
    rules.forEach(follow);
  }
}

/** Removes rules from a table that is the reference's own, and with the last of them the table. */
export interface OwnTableRemoval {
  /** All chains that the reference makes there; with another one, the table is somebody else's as well. */
  readonly known: readonly string[];
  /** Those of them that hold a rule per container. */
  readonly chains: readonly string[];
  goes(rule: nft.LazyRule): boolean;
}

/** @throws {NetlinkError} */
export function removeRules(
  tx: Transaction,
  nl: Netlink,
  table: nft.TableKey,
  { known, chains, goes }: OwnTableRemoval,
): void {
  let stays = 0;
  let gone = 0;
  for (const chain of chains) {
    for (const rule of nft.listLazyRules(nl, table, chain)) {
      if (!goes(rule)) {
        stays++;
        continue;
      }
      tx.deleteRule(table, chain, rule.handle);
      gone++;
    }
  }
  if (gone === 0 || stays > 0) return;
  if (nft.listChains(nl, table).every(({ name = "" }) => known.includes(name))) tx.deleteTable(table);
}
