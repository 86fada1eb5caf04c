/**
 * Policy routing: rules that choose routing tables.
 *
 * @see linux/fib_rules.h, ip-rule(8)
 * @module
 */
import { type Cidr, ipOf, prefixLengthOf } from "../address.ts";
import { bytes, cstr, ipCodec, struct, u32, u8 } from "../netlink/codec.ts";
import { message, type MessageIn, type MessageOut, NLM_F_CREATE, NLM_F_EXCL } from "../netlink/message.ts";
import { dump, execute, type Netlink } from "../netlink/socket.ts";
import { withPurpose } from "../sys/error.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { addressFamily } from "./address.ts";
import { rtnetlinkOperations } from "./operations.ts";
import { prefixOf, tableFields } from "./route.ts";
import * as uapi from "./uapi.ts";

export const fibRuleHdr = struct({
  family: u8,
  dstLen: u8,
  srcLen: u8,
  tos: u8,
  shortTable: u8,
  pad1: u8,
  pad2: u8,
  action: u8,
  flags: u32,
});

const otherSelectors = {
  iif: [uapi.FRA_IIFNAME, cstr],
  oif: [uapi.FRA_OIFNAME, cstr],
  fwmark: [uapi.FRA_FWMARK, u32],
  tunId: [uapi.FRA_TUN_ID, bytes],
  l3mdev: [uapi.FRA_L3MDEV, u8],
  uidRange: [uapi.FRA_UID_RANGE, bytes],
  ipProto: [uapi.FRA_IP_PROTO, u8],
  sportRange: [uapi.FRA_SPORT_RANGE, bytes],
  dportRange: [uapi.FRA_DPORT_RANGE, bytes],
  dscp: [uapi.FRA_DSCP, u8],
  flowLabel: [uapi.FRA_FLOWLABEL, bytes],
} as const;

export const fibRuleMessage = message("rule", fibRuleHdr, () => ({
  src: [uapi.FRA_SRC, ipCodec],
  dst: [uapi.FRA_DST, ipCodec],
  priority: [uapi.FRA_PRIORITY, u32],
  table: [uapi.FRA_TABLE, u32],
  ...otherSelectors,
}));
const RULE = /* @__PURE__ */ rtnetlinkOperations("RULE", uapi.RTM_NEWRULE, fibRuleMessage);

export interface SourceRule {
  readonly from: Cidr;
  readonly table: number;
  /** Lower wins. A new rule comes first by default. */
  readonly priority?: number;
}

export interface FibRule {
  readonly family: 4 | 6;
  readonly priority: number;
  /** Absent for rules that look up no table. */
  readonly table?: number;
  readonly from?: Cidr;
  readonly isSourceOnly: boolean;
}

export function add(nl: Netlink, rule: SourceRule): void {
  withPurpose(
    `add rule from ${rule.from} to table ${rule.table}`,
    () => execute(nl, RULE.NEW, fields(rule), NLM_F_CREATE | NLM_F_EXCL),
  );
}

export function remove(nl: Netlink, rule: SourceRule): void {
  withPurpose(`remove rule from ${rule.from} to table ${rule.table}`, () => execute(nl, RULE.DEL, fields(rule)));
}

export function list(nl: Netlink): FibRule[] {
  return [AF_INET, AF_INET6].flatMap((family) =>
    withPurpose("list rules", () => dump(nl, RULE.GET, { family })).map(toFibRule)
  );
}

function fields({ from, table, priority }: SourceRule): MessageIn<typeof fibRuleMessage> {
  return {
    family: addressFamily(from),
    srcLen: prefixLengthOf(from),
    action: uapi.FR_ACT_TO_TBL,
    src: ipOf(from),
    priority,
    ...tableFields(table),
  };
}

function toFibRule(reply: MessageOut<typeof fibRuleMessage>): FibRule {
  const hasOtherSelectors = reply.dstLen > 0 || reply.tos !== 0 || (reply.flags & uapi.FIB_RULE_INVERT) !== 0 ||
    (Object.keys(otherSelectors) as (keyof typeof otherSelectors)[]).some((name) =>
      reply[name] !== undefined && reply[name] !== 0
    );
  return {
    family: reply.family === AF_INET ? 4 : 6,
    // The kernel omits 0.
    priority: reply.priority ?? 0,
    ...reply.action === uapi.FR_ACT_TO_TBL && { table: reply.table ?? reply.shortTable },
    ...reply.srcLen > 0 && { from: prefixOf(reply.family, reply.src, reply.srcLen) },
    isSourceOnly: !hasOtherSelectors,
  };
}
