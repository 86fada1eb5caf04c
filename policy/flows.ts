/** Tracked flows of this node's pods, judged by what policy says now. @module */
import { dumpFlows, setFlowMarks, type TrackedFlow } from "../ffi/conntrack/conntrack.ts";
import { ipOf } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import * as address from "../ffi/route/address.ts";
import { CUT_MARK } from "../plugins/lib/ruleset/policy_tables.ts";
import type { PolicyCompiler } from "./compiler.ts";

/** Cuts what is forbidden, and lets go on what is allowed again. @returns how many flows are cut now */
export function judgeFlows({ nft: nl, route }: Netns, compiler: PolicyCompiler): number {
  // A pod and its own node always reach each other.
  const own = new Set(address.list(route).map(({ address: each }) => ipOf(each)));
  let cut = 0;
  for (const family of [4, 6] as const) {
    let count = 0;
    let forbidden: TrackedFlow[] = [];
    let allowed: TrackedFlow[] = [];
    const begin = () => {
      count = 0;
      forbidden = [];
      allowed = [];
    };
    dumpFlows(nl, family, begin, (flow) => {
      const isCut = (flow.mark & CUT_MARK) !== 0;
      // The destination that counts is the one behind a Service.
      const isAllowed = own.has(flow.source) || own.has(flow.replySource) ||
        compiler.allows(flow.source, flow.replySource, flow.protocol, flow.replySourcePort);
      if (!isAllowed) count++;
      if (isAllowed && isCut) allowed.push(flow);
      else if (!isAllowed && !isCut) forbidden.push(flow);
    });
    setFlowMarks(nl, forbidden, { mark: CUT_MARK, mask: CUT_MARK });
    setFlowMarks(nl, allowed, { mark: 0, mask: CUT_MARK });
    cut += count;
  }
  return cut;
}
