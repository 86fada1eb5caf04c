/** Parts of a transaction: sets, chains and verdicts of policies. */
import { familyOf } from "../../../ffi/address.ts";
import type { Transaction } from "../../../ffi/nft/transaction.ts";
import { appendRules } from "../ruleset/chain_rules.ts";
import { policyTable } from "../ruleset/policy_tables.ts";
import type { PeerSet, PolicedPod, PolicyChain } from "./desired.ts";
import { peerSetName, policyChainName, shortComment } from "./object_names.ts";
import { peerElements, peerSetDefinition } from "./peer_elements.ts";
import { policyRules } from "./policy_rules.ts";
import { type AddressVerdict, closedVerdict } from "./verdicts.ts";

const FAMILIES = [4, 6] as const;

export function addPeerSet(tx: Transaction, key: string, set: PeerSet): void {
  for (const family of FAMILIES) {
    const { family: nfFamily, table } = policyTable;
    tx.addSet({ ...peerSetDefinition(key, set, family), family: nfFamily, table });
    addNonEmpty(tx, key, set, family);
  }
}

function addNonEmpty(tx: Transaction, key: string, set: PeerSet, family: 4 | 6): void {
  const elements = peerElements(set, family);
  if (elements.length > 0) tx.addElements(policyTable, peerSetName(key, family), elements);
}

export function changePeers(
  tx: Transaction,
  key: string,
  added: PeerSet | undefined,
  removed: PeerSet | undefined,
): void {
  for (const family of FAMILIES) {
    const gone = removed ? peerElements(removed, family) : [];
    if (gone.length > 0) tx.deleteElements(policyTable, peerSetName(key, family), gone);
    if (added) addNonEmpty(tx, key, added, family);
  }
}

export function addPolicyChain(tx: Transaction, chain: PolicyChain): void {
  const { family: nfFamily, table } = policyTable;
  for (const family of FAMILIES) {
    const name = policyChainName(chain.key, family);
    tx.addChain({ family: nfFamily, table, name, comment: shortComment(chain.key) });
    appendRules(tx, policyTable, name, policyRules(chain, family));
  }
}

/** What a pod's addresses lead to. */
export function verdictsOf({ owner, ips, isClosed, ingress, egress }: PolicedPod): AddressVerdict[] {
  const comment = shortComment(owner);
  if (isClosed) return ips.map((ip) => closedVerdict(ip, comment, undefined));
  return ips.map((ip) => {
    const chain = (key: string | undefined) => key && policyChainName(key, familyOf(ip));
    return { ip, ingress: chain(ingress), egress: chain(egress), comment };
  });
}
