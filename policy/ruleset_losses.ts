/** Notices what others remove from the tables of policies. @module */
import { ipFromBytes } from "../ffi/address.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import type { Element, TableKey } from "../ffi/nft/objects.ts";
import { isChangeOf, openRulesetMonitor, type RulesetChange, type RulesetMonitor } from "../ffi/nft/ruleset_monitor.ts";
import * as uapi from "../ffi/nft/uapi.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { type Owner, ownerText, parseOwner } from "../plugins/lib/model/owner.ts";
import { linkNameIn, listBridgedPods, listRecordedPods, readGuard } from "../plugins/lib/policy/attached_pods.ts";
import { isPeerSet } from "../plugins/lib/policy/object_names.ts";
import { directionMap, ISOLATED_PORTS, policyBridgeTable, policyTable } from "../plugins/lib/ruleset/policy_tables.ts";

const MONITOR_BYTES = 16 * 1024 * 1024;
const REMOVALS: readonly number[] = [
  uapi.NFT_MSG_DELTABLE,
  uapi.NFT_MSG_DELCHAIN,
  uapi.NFT_MSG_DELRULE,
  uapi.NFT_MSG_DELSET,
  uapi.NFT_MSG_DELSETELEM,
];
const VERDICT_MAPS = (["ingress", "egress"] as const).flatMap((direction) =>
  ([4, 6] as const).map((family) => directionMap(direction, family))
);

/** What others have removed since the last look. */
export type RulesetRemovals = "nothing" | "what ended pods had" | "more";

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

  /** @returns `more` if the kernel may have less than it was told */
  look(): RulesetRemovals {
    let isLost = false;
    const losers = new Set<string>();
    const isComplete = this.#monitor.read(({ changes }) => {
      for (const change of changes) {
        if (change.operation !== uapi.NFT_MSG_DELSETELEM || isPeerSet(change.name)) isLost = true;
        else for (const element of change.elements()) losers.add(podOf(change, element));
      }
    });
    if (!isComplete || isLost || losers.size > 0 && this.#isAnyAttached(losers)) return "more";
    return losers.size > 0 ? "what ended pods had" : "nothing";
  }

  /** DEL removes all that a table has of a pod at once, and its verdicts last. */
  #isAnyAttached(pods: ReadonlySet<string>): boolean {
    try {
      return this.#attachedPods().some((each) => pods.has(each));
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      // A list that keeps changing may lack something.
      return true;
    }
  }

  #attachedPods(): string[] {
    const { attached } = readGuard(this.#nl);
    return [
      ...attached.flatMap((each) => [each.ip, each.interface, ownerIn(policyTable, each)]),
      ...listBridgedPods(this.#nl).map((each) => ownerIn(policyBridgeTable, each)),
      ...[policyTable, policyBridgeTable].flatMap((table) =>
        listRecordedPods(this.#nl, table).map((owner) => ownerIn(table, owner))
      ),
    ];
  }
}

/** An element of policies has the pod's address, that of an isolated port its link, and others its owner. */
function podOf(change: RulesetChange, { key, comment = "" }: Element): string {
  if (VERDICT_MAPS.includes(change.name)) return ipFromBytes(key);
  if (change.name === ISOLATED_PORTS) return linkNameIn(key);
  const owner = parseOwner(comment);
  return owner ? ownerIn(change, owner) : "";
}

const ownerIn = ({ family }: Pick<TableKey, "family">, owner: Owner): string => `${family} ${ownerText(owner)}`;

const isOfPolicies = isChangeOf([policyTable, policyBridgeTable]);

const mayBeLoss = (change: RulesetChange): boolean => isOfPolicies(change) && REMOVALS.includes(change.operation);
