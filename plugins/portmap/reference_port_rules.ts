/**
 * Removes ports that the reference plugin published.
 *
 * With iptables: rules of `CNI-HOSTPORT-DNAT` in table `nat` jump to a chain `CNI-DN-<hash of network and container>`; before 0.8 also to
 * `CNI-SN-…`. With nft: rules in the tables `ip cni_hostport` and `ip6 cni_hostport`, with the container id as comment.
 */
import type { Ip } from "../../ffi/address.ts";
import * as nft from "../../ffi/nft/objects.ts";
import type { Transaction } from "../../ffi/nft/transaction.ts";
import { NFPROTO_IPV4, NFPROTO_IPV6 } from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { addressesIn, jumpTarget } from "../../ffi/nft/rule_contents.ts";
import type { Owner } from "../lib/model/owner.ts";
import {
  existingTables,
  isNatTable,
  NAT_TABLES,
  ownersWithRulesIn,
  referenceChainName,
  type ReferenceOwner,
  removeReferenceChains,
  removeReferenceRules,
  staleOwnersIn,
  tablesWithRulesOf,
  updateRuleset,
} from "../lib/compat/reference_rules.ts";

/** The second is of releases before 0.8. */
const ENTRY_CHAINS = ["CNI-HOSTPORT-DNAT", "CNI-HOSTPORT-SNAT"];

const MASQUERADE_CHAINS = ["CNI-HOSTPORT-MASQ", "CNI-HOSTPORT-SETMARK"];
const BASE_CHAINS = ["PREROUTING", "OUTPUT", "POSTROUTING"];

const NFT_TABLES = [NFPROTO_IPV4, NFPROTO_IPV6].map((family) => ({ family, table: "cni_hostport" }));
const TABLES = [...NAT_TABLES, ...NFT_TABLES];
const CONTAINER_CHAINS = ["hostports", "hostip_hostports", "masquerading"];
const NFT_CHAINS = {
  chains: CONTAINER_CHAINS,
  knownChains: [...CONTAINER_CHAINS, "hostports_all", "prerouting", "output"],
};

/** @param addresses the container's, if known: comments of nft rules do not name the network */
export function removeReferencePorts(nl: Netlink, owner: Owner, addresses: readonly Ip[]): void {
  const tables = tablesWithRulesOf(nl, TABLES, "CNI-DN-", owner);
  if (tables.length === 0) return;
  const isOwned = (rule: nft.LazyRule) =>
    rule.comment === owner.containerId &&
    (addresses.length === 0 || addressesIn(rule).some((address) => addresses.includes(address)));
  updateRuleset(nl, (tx) => {
    for (const table of tables) {
      if (isNatTable(table)) removeContainerChains(tx, nl, table, [owner]);
      else removeReferenceRules(tx, nl, table, { ...NFT_CHAINS, shouldRemove: isOwned });
    }
  });
}

export const ownersWithReferencePorts = (nl: Netlink, owners: readonly Owner[]): ReadonlySet<Owner> =>
  ownersWithRulesIn(nl, TABLES, "CNI-DN-", owners);

/** Leaves out nft rules: they do not name the network. */
export function gcReferencePorts(nl: Netlink, network: string, valid: readonly Omit<Owner, "network">[]): void {
  const tables = existingTables(nl, NAT_TABLES)
    .filter((table) => ENTRY_CHAINS.some((chain) => nft.findChain(nl, table, chain)));
  if (tables.length === 0) return;
  updateRuleset(nl, (tx) => {
    for (const table of tables) {
      const entryRules = ENTRY_CHAINS.flatMap((chain) => nft.listLazyRules(nl, table, chain));
      removeContainerChains(tx, nl, table, staleOwnersIn(entryRules, network, valid));
    }
  });
}

/** With the last container, also removes the common chains. */
function removeContainerChains(
  tx: Transaction,
  nl: Netlink,
  table: nft.TableKey,
  owners: readonly ReferenceOwner[],
): void {
  const prefixes = ["CNI-DN-", "CNI-SN-"] as const;
  const chains = [...new Set(owners.flatMap((owner) => prefixes.map((prefix) => referenceChainName(prefix, owner))))];
  if (isLastContainer(nl, table, chains)) {
    removeReferenceChains(tx, nl, table, {
      chains: [...ENTRY_CHAINS, ...chains, ...MASQUERADE_CHAINS],
      jumpingChains: BASE_CHAINS,
    });
  } else removeReferenceChains(tx, nl, table, { chains, jumpingChains: ENTRY_CHAINS });
}

/** The reference plugin creates a container's chain before the jump to it, so a chain without a jump counts. */
function isLastContainer(nl: Netlink, table: nft.TableKey, removed: readonly string[]): boolean {
  const jumpsElsewhere = (rule: nft.LazyRule) => !removed.includes(jumpTarget(rule) ?? "");
  if (ENTRY_CHAINS.some((entry) => nft.listLazyRules(nl, table, entry).some(jumpsElsewhere))) return false;
  return nft.listChains(nl, table).every(({ name = "" }) => !/^CNI-[DS]N-/.test(name) || removed.includes(name));
}
