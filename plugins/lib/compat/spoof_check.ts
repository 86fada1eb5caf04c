/**
 * The check of hardware addresses (`macspoofchk`) as the reference's `bridge` sets it up, to be removed when a container of its is this
 * program's to delete.
 *
 * In `table bridge nat`: a chain `cni-br-iface-<container>-<interface>` that a rule of PREROUTING leads to for the container's port, and one
 * behind it. Neither says which network it is of, but the rule names the port.
 *
 * @module
 */
import * as nft from "../../../ffi/nft/objects.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";
import { NFPROTO_BRIDGE, NFT_META_IIFNAME } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { targetOf } from "../ruleset/foreign_rules.ts";
import type { Owner } from "../protocol/owner.ts";
import { changeRuleset, removeChains } from "./reference_rules.ts";

const TABLE = { family: NFPROTO_BRIDGE, table: "nat" };
const PREROUTING = "PREROUTING";
const PREFIX = "cni-br-iface-";

const chainOf = ({ containerId, ifname }: Owner): string => `${PREFIX}${containerId}-${ifname}`;

/** Ends the check for an attachment. @throws {NetlinkError} */
export function removeReferenceSpoofCheck(nl: Netlink, owner: Owner): void {
  const chain = chainOf(owner);
  if (nft.findChain(nl, TABLE, chain)) changeRuleset(nl, (tx) => remove(tx, nl, new Set([chain])));
}

/** Those of the attachments that are checked. @throws {NetlinkError} */
export function withReferenceSpoofCheck(nl: Netlink, owners: readonly Owner[]): ReadonlySet<Owner> {
  const chains = new Set(nft.listChains(nl, TABLE).map(({ name }) => name));
  return new Set(owners.filter((owner) => chains.has(chainOf(owner))));
}

/**
 * Ends the checks of ports that are no more.
 *
 * @param isThere whether there is a link of this name
 * @throws {NetlinkError}
 */
export function collectReferenceSpoofChecks(nl: Netlink, isThere: (name: string) => boolean): void {
  if (!nft.findChain(nl, TABLE, PREROUTING)) return;
  changeRuleset(nl, (tx) => {
    const gone = nft.listLazyRules(nl, TABLE, PREROUTING).flatMap((rule) => {
      const chain = targetOf(rule);
      const port = portOf(rule);
      return chain?.startsWith(PREFIX) && port !== undefined && !isThere(port) ? [chain] : [];
    });
    if (gone.length > 0) remove(tx, nl, new Set(gone));
  });
}

/** Removes chains, and the table if there is nothing else in it: that of ebtables has more chains from the beginning. */
function remove(tx: Transaction, nl: Netlink, going: ReadonlySet<string>): void {
  const chains = [...going].flatMap((name) => [name, `${name}-mac`]);
  const isOthers = ({ name = "" }: nft.Chain) => name !== PREROUTING && !chains.includes(name);
  const stays = nft.listLazyRules(nl, TABLE, PREROUTING).some((rule) => !going.has(targetOf(rule) ?? ""));
  if (stays || nft.listChains(nl, TABLE).some(isOthers)) {
    removeChains(tx, nl, TABLE, { chains, entries: [PREROUTING] });
  } else tx.deleteTable(TABLE);
}

/** The link that the rule is about. */
function portOf(rule: nft.LazyRule): string | undefined {
  const all = rule.expressions();
  const at = all.findIndex((one) => one.kind === "meta" && one.key === NFT_META_IIFNAME);
  const compared = all[at + 1];
  if (at < 0 || compared?.kind !== "cmp") return undefined;
  return new TextDecoder().decode(compared.data?.value).replace(/\0.*$/s, "");
}
