/**
 * Masquerading (`ipMasq`) as the reference plugins set it up, to be removed when a container of theirs is this program's to delete.
 *
 * With iptables: a chain `CNI-<hash of network and container>` in table `nat` that a rule of POSTROUTING leads to for each address. With
 * nft: a rule for each address in `table inet cni_plugins_masquerade`, whose comment begins with a hash of the network and one of the
 * interface and container.
 */
import { type Cidr, type Ip, ipOf } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { NFPROTO_INET } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { addressesIn, jumpTarget } from "../../../ffi/nft/rule_contents.ts";
import type { Owner } from "../protocol/owner.ts";
import {
  existingTables,
  isNatTable,
  NAT_TABLES,
  referenceChainName,
  removeReferenceChains,
  removeReferenceRules,
  type RuleRemoval,
  shortHash,
  staleOwnersIn,
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

/**
 * Stops masquerading for an attachment, whatever became of its namespace and result.
 *
 * @param addresses the attachment's, if known: where two interfaces of a container share a chain, the other's stay
 * @throws {NetlinkError}
 */
export function removeReferenceMasquerade(nl: Netlink, owner: Owner, addresses: readonly (Ip | Cidr)[] = []): void {
  const tables = tablesOf(nl, owner);
  if (tables.length === 0) return;
  const ownAddresses = new Set(addresses.map((element) => element.includes("/") ? ipOf(element as Cidr) : element));
  updateRuleset(nl, (tx) => {
    for (const table of tables) {
      if (isNatTable(table)) {
        const servesOtherAddress = (rule: nft.LazyRule) =>
          ownAddresses.size > 0 && addressesIn(rule).some((address) => !ownAddresses.has(address));
        const chains = [referenceChainName("CNI-", owner)];
        removeReferenceChains(tx, nl, table, {
          chains,
          jumpingChains: [POSTROUTING],
          shouldRemove: (rule) => !servesOtherAddress(rule),
        });
      } else removeReferenceRules(tx, nl, table, nftRuleRemoval((comment) => comment.startsWith(instanceHash(owner))));
    }
  });
}

/** Those of the attachments that may be masqueraded. @throws {NetlinkError} */
export function ownersWithReferenceMasquerade(nl: Netlink, owners: readonly Owner[]): ReadonlySet<Owner> {
  const tables = existingTables(nl, TABLES);
  if (tables.some((table) => !isNatTable(table))) return new Set(owners);
  const chains = new Set(tables.flatMap((table) => nft.listChains(nl, table).map(({ name }) => name)));
  return new Set(owners.filter((owner) => chains.has(referenceChainName("CNI-", owner))));
}

/** The addresses that an attachment is masqueraded for. @throws {NetlinkError} */
export function listReferenceMasquerade(nl: Netlink, owner: Owner): Ip[] {
  return tablesOf(nl, owner).flatMap((table) => {
    const chain = referenceChainName("CNI-", owner);
    const rules = isNatTable(table)
      ? nft.listLazyRules(nl, table, POSTROUTING).filter((rule) => jumpTarget(rule) === chain)
      : nft.listLazyRules(nl, table, MASQ_CHECKS_CHAIN).filter(({ comment }) =>
        comment.startsWith(instanceHash(owner))
      );
    // The first is the address; what may follow is the subnet.
    return rules.flatMap((rule) => addressesIn(rule).slice(0, 1));
  });
}

/** Stops masquerading for all attachments of a network that are not among the valid ones. @throws {NetlinkError} */
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

/** Where the owner may have something. */
function tablesOf(nl: Netlink, owner: Owner): nft.TableKey[] {
  return existingTables(nl, TABLES)
    .filter((table) => !isNatTable(table) || nft.findChain(nl, table, referenceChainName("CNI-", owner)));
}

function nftRuleRemoval(matchesComment: (comment: string) => boolean): RuleRemoval {
  return {
    knownChains: [MASQ_CHECKS_CHAIN, "postrouting"],
    chains: [MASQ_CHECKS_CHAIN],
    shouldRemove: ({ comment }) => matchesComment(comment),
  };
}

/** Also those that nothing leads to any more, as a DEL leaves them that did not come to its end. */
function staleChains(
  nl: Netlink,
  table: nft.TableKey,
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
): string[] {
  const names = nft.listChains(nl, table).map(({ name = "" }) => name).filter((name) =>
    /^CNI-[0-9a-f]{24}$/.test(name)
  );
  const staleOwners = [POSTROUTING, ...names].flatMap((name) =>
    staleOwnersIn(nft.listLazyRules(nl, table, name), network, validAttachments)
  );
  return [...new Set(staleOwners.map((owner) => referenceChainName("CNI-", owner)))];
}
