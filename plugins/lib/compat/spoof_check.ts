/**
 * MAC address checks (`macspoofchk`) of the reference's `bridge`.
 *
 * In `table bridge nat`, a PREROUTING rule for the container's port jumps to the chain
 * `cni-br-iface-<container>-<interface>`. That one jumps to another. Neither names the network.
 */
import * as nft from "../../../ffi/nft/objects.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";
import { NFPROTO_BRIDGE, NFT_META_IIFNAME } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { jumpTarget } from "../../../ffi/nft/rule_contents.ts";
import type { Owner } from "../model/owner.ts";
import { removeReferenceChains, updateRuleset } from "./reference_rules.ts";

const TABLE = { family: NFPROTO_BRIDGE, table: "nat" };
const PREROUTING = "PREROUTING";
const CHAIN_PREFIX = "cni-br-iface-";

const spoofChainName = ({ containerId, ifname }: Owner): string => `${CHAIN_PREFIX}${containerId}-${ifname}`;

export function removeReferenceSpoofCheck(nl: Netlink, owner: Owner): void {
  const chain = spoofChainName(owner);
  if (nft.findChain(nl, TABLE, chain)) updateRuleset(nl, (tx) => removeSpoofChains(tx, nl, new Set([chain])));
}

export function ownersWithReferenceSpoofCheck(nl: Netlink, owners: readonly Owner[]): ReadonlySet<Owner> {
  const chains = new Set(nft.listChains(nl, TABLE).map(({ name }) => name));
  return new Set(owners.filter((owner) => chains.has(spoofChainName(owner))));
}

export function gcReferenceSpoofChecks(nl: Netlink, linkExists: (name: string) => boolean): void {
  if (!nft.findChain(nl, TABLE, PREROUTING)) return;
  updateRuleset(nl, (tx) => {
    const staleChains = nft.listLazyRules(nl, TABLE, PREROUTING).flatMap((rule) => {
      const chain = jumpTarget(rule);
      const port = matchedPort(rule);
      return chain?.startsWith(CHAIN_PREFIX) && port !== undefined && !linkExists(port) ? [chain] : [];
    });
    if (staleChains.length > 0) removeSpoofChains(tx, nl, new Set(staleChains));
  });
}

/** Removes the table too if nothing else uses it. ebtables' table has more chains. */
function removeSpoofChains(tx: Transaction, nl: Netlink, removedChains: ReadonlySet<string>): void {
  const chains = [...removedChains].flatMap((name) => [name, `${name}-mac`]);
  const isForeignChain = ({ name = "" }: nft.Chain) => name !== PREROUTING && !chains.includes(name);
  const hasOtherJumps = nft.listLazyRules(nl, TABLE, PREROUTING).some((rule) =>
    !removedChains.has(jumpTarget(rule) ?? "")
  );
  if (hasOtherJumps || nft.listChains(nl, TABLE).some(isForeignChain)) {
    removeReferenceChains(tx, nl, TABLE, { chains, jumpingChains: [PREROUTING] });
  } else tx.deleteTable(TABLE);
}

function matchedPort(rule: nft.LazyRule): string | undefined {
  const expressions = rule.expressions();
  const metaPosition = expressions.findIndex((expression) =>
    expression.kind === "meta" && expression.key === NFT_META_IIFNAME
  );
  const comparison = expressions[metaPosition + 1];
  if (metaPosition < 0 || comparison?.kind !== "cmp") return undefined;
  return new TextDecoder().decode(comparison.data?.value).replace(/\0.*$/s, "");
}
