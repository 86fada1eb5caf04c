/** Notices what others remove from the tables of policies. @module */
import { ipFromBytes } from "../ffi/address.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import { isChangeOf, openRulesetMonitor, type RulesetChange, type RulesetMonitor } from "../ffi/nft/ruleset_monitor.ts";
import * as uapi from "../ffi/nft/uapi.ts";
import { readGuard } from "../plugins/lib/policy/attached_pods.ts";
import { isPeerSet } from "../plugins/lib/policy/object_names.ts";
import { directionMap, policyBridgeTable, policyTable } from "../plugins/lib/ruleset/policy_tables.ts";

const MONITOR_BYTES = 16 * 1024 * 1024;
const OBJECT_REMOVALS: readonly number[] = [
  uapi.NFT_MSG_DELTABLE,
  uapi.NFT_MSG_DELCHAIN,
  uapi.NFT_MSG_DELRULE,
  uapi.NFT_MSG_DELSET,
];
const VERDICT_MAPS = (["ingress", "egress"] as const).flatMap((direction) =>
  ([4, 6] as const).map((family) => directionMap(direction, family))
);

export class RulesetLosses implements Disposable {
  readonly #nl: Netlink;
  readonly #monitor: RulesetMonitor;

  /** @param nl its changes are no losses */
  constructor(nl: Netlink) {
    this.#nl = nl;
    this.#monitor = openRulesetMonitor(MONITOR_BYTES, mayBeLoss, () => nl.portId!());
  }

  [Symbol.dispose](): void {
    this.#monitor[Symbol.dispose]();
  }

  /** @returns whether the kernel may have less since the last look than it was told */
  look(): boolean {
    let isLost = false;
    const unmapped = new Set<string>();
    const isComplete = this.#monitor.read(({ changes }) => {
      for (const change of changes) {
        const isOfMap = change.operation === uapi.NFT_MSG_DELSETELEM && VERDICT_MAPS.includes(change.name);
        if (!isOfMap) isLost = true;
        else for (const { key } of change.elements()) unmapped.add(ipFromBytes(key));
      }
    });
    // DEL removes a pod from the guard first.
    return !isComplete || isLost ||
      unmapped.size > 0 && readGuard(this.#nl).attached.some(({ ip }) => unmapped.has(ip));
  }
}

const isOfPolicies = isChangeOf([policyTable, policyBridgeTable]);

/** Plugins remove elements of pods that end. */
const mayBeLoss = (change: RulesetChange): boolean =>
  isOfPolicies(change) && (OBJECT_REMOVALS.includes(change.operation) ||
    change.operation === uapi.NFT_MSG_DELSETELEM && (isPeerSet(change.name) || VERDICT_MAPS.includes(change.name)));
