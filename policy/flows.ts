/** Tracked flows of this node's pods, judged by what policy says now. @module */
import { dumpFlowsInPieces, setFlowMarks, type TrackedFlow } from "../ffi/conntrack/conntrack.ts";
import { type Ip, ipFromBytes, ipOf } from "../ffi/address.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { listElements } from "../ffi/nft/objects.ts";
import * as address from "../ffi/route/address.ts";
import type { PolicyDirection } from "../plugins/lib/policy/desired.ts";
import { CUT_MARK, directionMap, policyTable } from "../plugins/lib/ruleset/policy_tables.ts";
import type { PolicyCompiler } from "./compiler.ts";
import { allowsFlow, type Supposed } from "./flow_verdict.ts";

export interface FlowSource {
  readonly host: Netns;
  /** A socket that nobody else uses. */
  readonly dump: Netlink;
  readonly compiler: PolicyCompiler;
  /** Whether pods of these namespaces may be missing. */
  mayLack(namespaces: ReadonlySet<string>): boolean;
}

const FAMILIES = [4, 6] as const;

/**
 * Cuts what is forbidden, and lets go on what is allowed again. What depends on something that is not known yet stays as
 * it is. Between two pieces, anything may change.
 *
 * @returns how many flows are cut now
 */
export function* judgeFlows({ host, dump, compiler, mayLack }: FlowSource): Generator<void, number> {
  const { nft, route } = host;
  // A pod and its own node always reach each other.
  const own = new Set(address.list(route).map(({ address: each }) => ipOf(each)));
  const isolated = isolatedAddresses(nft);
  // The kernel keeps what pods have whose names are not known yet.
  const least: Supposed = { passes: (direction, ip) => !isolated.get(direction)!.has(ip), isPeer: () => false };
  const most: Supposed = { passes: () => true, isPeer: ({ scope }) => mayLack(scope.members) };
  let cut = 0;
  const forbidden: TrackedFlow[] = [];
  const allowed: TrackedFlow[] = [];
  const pieces = dumpFlowsInPieces(dump, () => cut = 0, (flow) => {
    const { source, replySource, protocol, replySourcePort: port, mark } = flow;
    const isCut = (mark & CUT_MARK) !== 0;
    // The destination that counts is the one behind a Service.
    const ends = { source, destination: replySource, protocol, port };
    const passes = (supposed: Supposed) => allowsFlow(compiler, ends, supposed);
    if (own.has(source) || own.has(replySource) || passes(least)) {
      if (isCut) allowed.push(flow);
    } else if (isCut) cut++;
    else if (!passes(most)) {
      forbidden.push(flow);
      cut++;
    }
  });
  for (const _ of pieces) {
    setFlowMarks(nft, forbidden.splice(0), { mark: CUT_MARK, mask: CUT_MARK });
    setFlowMarks(nft, allowed.splice(0), { mark: 0, mask: CUT_MARK });
    yield;
  }
  return cut;
}

function isolatedAddresses(nl: Netlink): ReadonlyMap<PolicyDirection, ReadonlySet<Ip>> {
  return new Map((["ingress", "egress"] as const).map((direction) => {
    const elements = FAMILIES.flatMap((family) => listElements(nl, policyTable, directionMap(direction, family)));
    return [direction, new Set(elements.map(({ key }) => ipFromBytes(key)))];
  }));
}
