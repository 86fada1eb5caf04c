/**
 * Masquerading (`ipMasq`) of the reference plugins.
 *
 * With iptables: in table `nat`, a chain `CNI-<hash of network and container>`, and a POSTROUTING rule per address.
 * With nft: a rule per address in `table inet cni_plugins_masquerade`. Its comment starts with a hash of the network
 * and one of interface and container.
 */
import { type Cidr, type Ip, ipOf } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { NFPROTO_INET } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { addressesIn, containsText, jumpTarget } from "../../../ffi/nft/rule_contents.ts";
import type { Owner } from "../model/owner.ts";
import {
  existingTables,
  isNatTable,
  NAT_TABLES,
  ownersWithRulesIn,
  referenceChainName,
  removeReferenceChains,
  removeReferenceRules,
  type RuleRemoval,
  shortHash,
  staleOwnersIn,
  tablesWithRulesOf,
  updateRuleset,
} from "./reference_rules.ts";

const NFT_TABLE = { family: NFPROTO_INET, table: "cni_plugins_masquerade" };
const TABLES = [...NAT_TABLES, NFT_TABLE];
const MASQ_CHECKS_CHAIN = "masq_checks";
const POSTROUTING = "POSTROUTING";

const HASH_DIGITS = 16;

const networkHash = (network: string): string => `${shortHash(network, HASH_DIGITS)}-`;
const instanceHash = ({ network, containerId, ifname }: Owner): string =>
  `${networkHash(network)}${shortHash(`${ifname}:${containerId}`, HASH_DIGITS)},`;

/** @param addresses the attachment's, if known: two interfaces of a container share a chain */
export function removeReferenceMasquerade(nl: Netlink, owner: Owner, addresses: readonly Cidr[] = []): void {
  const tables = tablesWithRulesOf(nl, TABLES, "CNI-", owner);
  if (tables.length === 0) return;
  const ownAddresses = new Set(addresses.map(ipOf));
  updateRuleset(nl, (tx) => {
    for (const table of tables) {
      if (isNatTable(table)) {
        const chains = [referenceChainName("CNI-", owner)];
        const shouldRemove = (rule: nft.LazyRule) =>
          ownAddresses.size === 0 || addressesIn(rule).every((address) => ownAddresses.has(address));
        removeReferenceChains(tx, nl, table, { chains, jumpingChains: [POSTROUTING], shouldRemove });
      } else removeReferenceRules(tx, nl, table, nftRuleRemoval((comment) => comment.startsWith(instanceHash(owner))));
    }
  });
}

export const ownersWithReferenceMasquerade = (nl: Netlink, owners: readonly Owner[]): ReadonlySet<Owner> =>
  ownersWithRulesIn(nl, TABLES, "CNI-", owners);

export function listReferenceMasquerade(nl: Netlink, owner: Owner): Ip[] {
  return tablesWithRulesOf(nl, TABLES, "CNI-", owner).flatMap((table) => {
    const chain = referenceChainName("CNI-", owner);
    const rules = isNatTable(table)
      ? nft.listLazyRules(nl, table, POSTROUTING).filter((rule) =>
        containsText(rule, chain) && jumpTarget(rule) === chain
      )
      : nft.listLazyRules(nl, table, MASQ_CHECKS_CHAIN).filter(({ comment }) =>
        comment.startsWith(instanceHash(owner))
      );
    // A subnet may follow.
    return rules.flatMap((rule) => addressesIn(rule).slice(0, 1));
  });
}

export function gcReferenceMasquerade(
  nl: Netlink,
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
): void {
  const tables = existingTables(nl, TABLES);
  if (tables.length === 0) return;
  const validHashes = new Set(validAttachments.map((attachment) => instanceHash({ ...attachment, network })));
  const isStale = (comment: string) =>
    comment.startsWith(networkHash(network)) && !validHashes.has(comment.slice(0, comment.indexOf(",") + 1));
  updateRuleset(nl, (tx) => {
    for (const table of tables) {
      if (isNatTable(table)) {
        const chains = staleChains(nl, table, network, validAttachments);
        removeReferenceChains(tx, nl, table, { chains, jumpingChains: [POSTROUTING] });
      } else removeReferenceRules(tx, nl, table, nftRuleRemoval(isStale));
    }
  });
}

function nftRuleRemoval(matchesComment: (comment: string) => boolean): RuleRemoval {
  return {
    knownChains: [MASQ_CHECKS_CHAIN, "postrouting"],
    chains: [MASQ_CHECKS_CHAIN],
    shouldRemove: ({ comment }) => matchesComment(comment),
  };
}

/**
 * An interrupted DEL leaves chains without jumps to them. They are found beside others: most nodes have none, and
 * listing all chains takes long beside kube-proxy.
 */
function staleChains(
  nl: Netlink,
  table: nft.TableKey,
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
): string[] {
  const jumps = nft.listLazyRules(nl, table, POSTROUTING).filter((rule) => containsText(rule, "CNI-"));
  if (!jumps.some((rule) => isContainerChain(jumpTarget(rule)))) return [];
  const names = nft.listChains(nl, table).map(({ name = "" }) => name).filter(isContainerChain);
  const rules = [...jumps, ...names.flatMap((name) => nft.listLazyRules(nl, table, name))];
  const staleOwners = staleOwnersIn(rules, network, validAttachments);
  return [...new Set(staleOwners.map((owner) => referenceChainName("CNI-", owner)))];
}

const isContainerChain = (name = ""): boolean => /^CNI-[0-9a-f]{24}$/.test(name);
