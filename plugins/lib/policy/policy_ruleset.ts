/** The policies of this node in nf_tables. It keeps no state: what is there is read from the kernel. */
import * as nft from "../../../ffi/nft/objects.ts";
import { transaction } from "../../../ffi/nft/transaction.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { policyBridgeTable, policyTable } from "../ruleset/policy_tables.ts";
import { repairTable } from "../ruleset/repair.ts";
import { retryOnConflict } from "../ruleset/retry.ts";
import { createTable, describeTable } from "../ruleset/table.ts";
import { bridgePorts } from "./attached_pods.ts";
import type { DesiredPolicy, PolicyChange } from "./desired.ts";
import { peerSetName, policyChainName } from "./object_names.ts";
import { addPeerSet, addPolicyChain, changePeers, verdictsOf } from "./policy_objects.ts";
import { type SyncOptions, syncPolicies } from "./sync_policies.ts";
import { changeVerdicts } from "./verdicts.ts";

const FAMILIES = [4, 6] as const;

export class PolicyRuleset {
  readonly #nl: Netlink;

  constructor(nl: Netlink) {
    this.#nl = nl;
  }

  /**
   * Makes the kernel have exactly this. What is right stays as it is, and so does what attached pods have that are not
   * among these: their policies are not known yet.
   *
   * @returns what differed; `undefined` if nothing did
   */
  replace(desired: DesiredPolicy, options: SyncOptions = {}): string | undefined {
    const differences = [...repairTables(this.#nl), ...retryOnConflict(() => syncPolicies(this.#nl, desired, options))];
    return differences.length === 0 ? undefined : differences.join(", ");
  }

  /** @throws {NetlinkError} the kernel has something else than what is to change: only {@linkcode replace} helps */
  change(change: PolicyChange): void {
    retryOnConflict(() => {
      const tx = transaction(this.#nl);
      for (const [key, set] of change.setsAdded) addPeerSet(tx, key, set);
      for (const { set, added, removed } of change.elements) changePeers(tx, set, added, removed);
      for (const chain of change.chainsAdded) addPolicyChain(tx, chain);
      const verdicts = change.pods.flatMap(verdictsOf);
      if (verdicts.length > 0) {
        const ports = bridgePorts(this.#nl);
        changeVerdicts(this.#nl, tx, verdicts.map((verdict) => ({ ...verdict, port: ports.get(verdict.ip) })));
      }
      for (const key of change.chainsRemoved) {
        for (const family of FAMILIES) tx.deleteChain(policyTable, policyChainName(key, family));
      }
      for (const key of change.setsRemoved) {
        for (const family of FAMILIES) tx.deleteSet(policyTable, peerSetName(key, family));
      }
      tx.commit();
    });
  }
}

/** The plugin makes the bridge's table when the first pod on a bridge comes. */
function repairTables(nl: Netlink): string[] {
  if (nft.findTable(nl, policyTable)) {
    const hasBridges = nft.findTable(nl, policyBridgeTable) !== undefined;
    return [...repairTable(nl, policyTable), ...hasBridges ? repairTable(nl, policyBridgeTable) : []];
  }
  retryOnConflict(() => {
    if (!nft.findTable(nl, policyTable)) createTable(nl, policyTable);
  });
  return [describeTable(policyTable)];
}
