/** The rules of a chain of policies. */
import type { ExpressionIn } from "../../../ffi/nft/expressions.ts";
import {
  daddr,
  dport,
  equals,
  gotoChain,
  inRange,
  inSet,
  l4proto,
  portField,
  returnFromChain,
  rule,
  type RuleStatement,
  saddr,
} from "../../../ffi/nft/statements.ts";
import { deniedChain } from "../ruleset/policy_tables.ts";
import type { PolicyChain, PortMatch } from "./desired.ts";
import { peerSetName } from "./object_names.ts";

/** A match returns to the chain that asks the next direction. What matches nothing is dropped, counted for all pods. */
export function policyRules({ direction, rules }: PolicyChain, family: 4 | 6): (readonly ExpressionIn[])[] {
  const peer = direction === "ingress" ? saddr(family) : daddr(family);
  const matches = rules.flatMap(({ peers, ports }) => {
    const peerMatches = peers?.map((key) => inSet([peer], peerSetName(key, family))) ?? [[]];
    const portMatches = ports?.map((port) => portMatch(port, family)) ?? [[]];
    return peerMatches.flatMap((ofPeer) => portMatches.map((ofPort) => rule(ofPeer, ofPort, returnFromChain())));
  });
  return [...matches, rule(gotoChain(deniedChain(direction)))];
}

function portMatch(match: PortMatch, family: 4 | 6): RuleStatement {
  if ("named" in match) return inSet([daddr(family), l4proto(), dport()], peerSetName(match.named, family));
  const ofProtocol = equals(l4proto(), Uint8Array.of(match.protocol));
  if ("ranges" in match) return [...ofProtocol, ...inSet([dport()], peerSetName(match.ranges, family))];
  const { first, last = first } = match;
  if (first === undefined || last === undefined) return ofProtocol;
  const ports = first === last
    ? equals(dport(), portField(first))
    : inRange(dport(), portField(first), portField(last));
  return [...ofProtocol, ...ports];
}
