/**
 * Masquerading (`ipMasq`) as the reference plugins set it up, to be removed when a container of theirs is this program's to delete.
 *
 * With iptables: a chain `CNI-<hash of network and container>` in table `nat` that a rule of POSTROUTING leads to for each address. With
 * nft: a rule for each address in `table inet cni_plugins_masquerade`, whose comment begins with a hash of the network and one of the
 * interface and container.
 *
 * @module
 */
import { type Cidr, type Ip, ipOf } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { NFPROTO_INET } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { addressesIn, targetOf } from "../ruleset/foreign_rules.ts";
import type { Owner } from "../protocol/owner.ts";
import {
  changeRuleset,
  deadIn,
  isNat,
  NAT_TABLES,
  type OwnTableRemoval,
  presentTables,
  referenceChain,
  removeChains,
  removeRules,
  shortHash,
} from "./reference_rules.ts";

const OWN_TABLE = { family: NFPROTO_INET, table: "cni_plugins_masquerade" };
const TABLES = [...NAT_TABLES, OWN_TABLE];
const CHECKS = "masq_checks";
const POSTROUTING = "POSTROUTING";

const DIGITS = 16;

const networkHash = (network: string): string => `${shortHash(network, DIGITS)}-`;
const instanceHash = ({ network, containerId, ifname }: Owner): string =>
  `${networkHash(network)}${shortHash(`${ifname}:${containerId}`, DIGITS)},`;

/**
 * Stops masquerading for an attachment, whatever became of its namespace and result.
 *
 * @param addresses the attachment's, if known: where two interfaces of a container share a chain, the other's stay
 * @throws {NetlinkError}
 */
export function removeReferenceMasquerade(nl: Netlink, owner: Owner, addresses: readonly (Ip | Cidr)[] = []): void {
  const tables = tablesOf(nl, owner);
  if (tables.length === 0) return;
  const own = new Set(addresses.map((each) => each.includes("/") ? ipOf(each as Cidr) : each));
  changeRuleset(nl, (tx) => {
    for (const table of tables) {
      if (isNat(table)) {
        const others = (rule: nft.LazyRule) => own.size > 0 && addressesIn(rule).some((address) => !own.has(address));
        const chains = [referenceChain("CNI-", owner)];
        removeChains(tx, nl, table, { chains, entries: [POSTROUTING], goes: (rule) => !others(rule) });
      } else removeRules(tx, nl, table, ownRemoval((comment) => comment.startsWith(instanceHash(owner))));
    }
  });
}

/** Those of the attachments that may be masqueraded. @throws {NetlinkError} */
export function withReferenceMasquerade(nl: Netlink, owners: readonly Owner[]): ReadonlySet<Owner> {
  const tables = presentTables(nl, TABLES);
  if (tables.some((table) => !isNat(table))) return new Set(owners);
  const chains = new Set(tables.flatMap((table) => nft.listChains(nl, table).map(({ name }) => name)));
  return new Set(owners.filter((owner) => chains.has(referenceChain("CNI-", owner))));
}

/** The addresses that an attachment is masqueraded for. @throws {NetlinkError} */
export function listReferenceMasquerade(nl: Netlink, owner: Owner): Ip[] {
  return tablesOf(nl, owner).flatMap((table) => {
    const chain = referenceChain("CNI-", owner);
    const rules = isNat(table)
      ? nft.listLazyRules(nl, table, POSTROUTING).filter((rule) => targetOf(rule) === chain)
      : nft.listLazyRules(nl, table, CHECKS).filter(({ comment }) => comment.startsWith(instanceHash(owner)));
    // The first is the address; what may follow is the subnet.
    return rules.flatMap((rule) => addressesIn(rule).slice(0, 1));
  });
}

/** Stops masquerading for all attachments of a network that are not among the valid ones. @throws {NetlinkError} */
export function collectReferenceMasquerade(
  nl: Netlink,
  network: string,
  valid: readonly Omit<Owner, "network">[],
): void {
  const tables = presentTables(nl, TABLES);
  if (tables.length === 0) return;
  const living = new Set(valid.map((each) => instanceHash({ ...each, network })));
  const isDead = (comment: string) =>
    comment.startsWith(networkHash(network)) && !living.has(comment.slice(0, comment.indexOf(",") + 1));
  changeRuleset(nl, (tx) => {
    for (const table of tables) {
      if (isNat(table)) {
        const chains = deadChains(nl, table, network, valid);
        removeChains(tx, nl, table, { chains, entries: [POSTROUTING] });
      } else removeRules(tx, nl, table, ownRemoval(isDead));
    }
  });
}

/** Where the owner may have something. */
function tablesOf(nl: Netlink, owner: Owner): nft.TableKey[] {
  return presentTables(nl, TABLES)
    .filter((table) => !isNat(table) || nft.findChain(nl, table, referenceChain("CNI-", owner)));
}

function ownRemoval(goes: (comment: string) => boolean): OwnTableRemoval {
  return { known: [CHECKS, "postrouting"], chains: [CHECKS], goes: ({ comment }) => goes(comment) };
}

/** Also those that nothing leads to any more, as a DEL leaves them that did not come to its end. */
function deadChains(
  nl: Netlink,
  table: nft.TableKey,
  network: string,
  valid: readonly Omit<Owner, "network">[],
): string[] {
  const names = nft.listChains(nl, table).map(({ name = "" }) => name).filter((name) =>
    /^CNI-[0-9a-f]{24}$/.test(name)
  );
  const dead = [POSTROUTING, ...names].flatMap((name) => deadIn(nft.listLazyRules(nl, table, name), network, valid));
  return [...new Set(dead.map((owner) => referenceChain("CNI-", owner)))];
}
