/**
 * Published ports as the reference plugin sets them up, to be removed when a container of its is this program's to delete.
 *
 * With iptables: a chain `CNI-DN-<hash of network and container>` in table `nat`, to which rules of `CNI-HOSTPORT-DNAT` lead; before 0.8
 * also `CNI-SN-…`. With nft: rules in the tables `ip cni_hostport` and `ip6 cni_hostport`, whose comment is the container id and nothing
 * else.
 *
 * @module
 */
import type { Ip } from "../../ffi/address.ts";
import * as nft from "../../ffi/nft/objects.ts";
import type { Transaction } from "../../ffi/nft/transaction.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { addressesIn, targetOf } from "../lib/ruleset/foreign_rules.ts";
import type { Owner } from "../lib/protocol/owner.ts";
import {
  changeRuleset,
  deadIn,
  isNat,
  NAT_TABLES,
  presentTables,
  referenceChain,
  type ReferenceOwner,
  removeChains,
  removeRules,
} from "../lib/compat/reference_rules.ts";

/** Where a container's chains are entered; the second is of releases before 0.8. */
const ENTRIES = ["CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SNAT"];
/** Mark what is to be masqueraded, and masquerade what is marked. */
const MASQUERADING = ["CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"];
const BASES = ["PREROUTING", "OUTPUT", "POSTROUTING"];

const OWN_TABLES = [NFPROTO_IPV4, NFPROTO_IPV6].map((family) => ({ family, table: "cni_hostport" }));
const PER_CONTAINER = ["hostports", "hostip_hostports", "masquerading"];
const KNOWN = [...PER_CONTAINER, "hostports_all", "prerouting", "output"];

/**
 * Withdraws the ports of a container, whatever became of its namespace and result.
 *
 * @param addresses the container's, if known: they tell its networks apart where the comment does not
 * @throws {NetlinkError}
 */
export function removeReferencePorts(nl: Netlink, owner: Owner, addresses: readonly Ip[]): void {
  const tables = presentTables(nl, [...NAT_TABLES, ...OWN_TABLES])
    .filter((table) => !isNat(table) || nft.findChain(nl, table, referenceChain("CNI-DN-", owner)));
  if (tables.length === 0) return;
  const isOwn = (rule: nft.LazyRule) =>
    rule.comment === owner.containerId &&
    (addresses.length === 0 || addressesIn(rule).some((address) => addresses.includes(address)));
  changeRuleset(nl, (tx) => {
    for (const table of tables) {
      if (isNat(table)) withdraw(tx, nl, table, [owner]);
      else removeRules(tx, nl, table, { known: KNOWN, chains: PER_CONTAINER, goes: isOwn });
    }
  });
}

/** Those of the attachments that may have published ports. @throws {NetlinkError} */
export function withReferencePorts(nl: Netlink, owners: readonly Owner[]): ReadonlySet<Owner> {
  const tables = presentTables(nl, [...NAT_TABLES, ...OWN_TABLES]);
  if (tables.some((table) => !isNat(table))) return new Set(owners);
  const chains = new Set(tables.flatMap((table) => nft.listChains(nl, table).map(({ name }) => name)));
  return new Set(owners.filter((owner) => chains.has(referenceChain("CNI-DN-", owner))));
}

/**
 * Withdraws the ports of all containers of a network that are not among the valid ones.
 *
 * Not those in nft's tables: nothing there says which network a rule is of, and the container may live on another one.
 *
 * @throws {NetlinkError}
 */
export function collectReferencePorts(nl: Netlink, network: string, valid: readonly Omit<Owner, "network">[]): void {
  const tables = presentTables(nl, NAT_TABLES)
    .filter((table) => ENTRIES.some((chain) => nft.findChain(nl, table, chain)));
  if (tables.length === 0) return;
  changeRuleset(nl, (tx) => {
    for (const table of tables) {
      const entered = ENTRIES.flatMap((chain) => nft.listLazyRules(nl, table, chain));
      withdraw(tx, nl, table, deadIn(entered, network, valid));
    }
  });
}

/** Removes the chains of these containers; with the last of all, what leads to them. */
function withdraw(tx: Transaction, nl: Netlink, table: nft.TableKey, owners: readonly ReferenceOwner[]): void {
  const prefixes = ["CNI-DN-", "CNI-SN-"] as const;
  const chains = [...new Set(owners.flatMap((owner) => prefixes.map((prefix) => referenceChain(prefix, owner))))];
  if (isLast(nl, table, chains)) {
    removeChains(tx, nl, table, { chains: [...ENTRIES, ...chains, ...MASQUERADING], entries: BASES });
  } else removeChains(tx, nl, table, { chains, entries: ENTRIES });
}

/** True if no other container has ports, nor is about to: the reference makes a container's chain before it leads there. */
function isLast(nl: Netlink, table: nft.TableKey, going: readonly string[]): boolean {
  const leadsElsewhere = (rule: nft.LazyRule) => !going.includes(targetOf(rule) ?? "");
  if (ENTRIES.some((entry) => nft.listLazyRules(nl, table, entry).some(leadsElsewhere))) return false;
  return nft.listChains(nl, table).every(({ name = "" }) => !/^CNI-[DS]N-/.test(name) || going.includes(name));
}
