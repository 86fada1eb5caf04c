/**
 * Rules that choose a routing table for a packet: policy routing.
 *
 * Used as a namespace: `import * as rule from "../ffi/route/rule.ts"`.
 *
 * @see linux/fib_rules.h, ip-rule(8)
 * @module
 */
import { type Cidr, type Ip, ipOf, prefixLengthOf, toCidr } from "../address.ts";
import { bytes, cstr, ipCodec, struct, u32, u8 } from "../netlink/codec.ts";
import { withRequestPurpose } from "../netlink/error.ts";
import {
  message,
  type MessageIn,
  type MessageOut,
  NLM_F_CREATE,
  NLM_F_EXCL,
  type Operation,
} from "../netlink/message.ts";
import { dump, execute, type Netlink } from "../netlink/socket.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { addressFamily } from "./address.ts";
import {
  FR_ACT_TO_TBL,
  FRA_DPORT_RANGE,
  FRA_DST,
  FRA_FWMARK,
  FRA_IIFNAME,
  FRA_IP_PROTO,
  FRA_L3MDEV,
  FRA_OIFNAME,
  FRA_PRIORITY,
  FRA_SPORT_RANGE,
  FRA_SRC,
  FRA_TABLE,
  FRA_TUN_ID,
  FRA_UID_RANGE,
  RT_TABLE_UNSPEC,
  RTM_DELRULE,
  RTM_GETRULE,
  RTM_NEWRULE,
} from "./uapi.ts";

/** struct fib_rule_hdr */
const fibRuleHdr = struct({
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

/** What a rule may ask for besides addresses; here it matters only whether it does. */
const otherSelectors = {
  iif: [FRA_IIFNAME, cstr],
  oif: [FRA_OIFNAME, cstr],
  fwmark: [FRA_FWMARK, u32],
  tunId: [FRA_TUN_ID, bytes],
  l3mdev: [FRA_L3MDEV, u8],
  uidRange: [FRA_UID_RANGE, bytes],
  ipProto: [FRA_IP_PROTO, u8],
  sportRange: [FRA_SPORT_RANGE, bytes],
  dportRange: [FRA_DPORT_RANGE, bytes],
} as const;

/** A rule, as in RTM_NEWRULE and its relatives. */
export const fibRuleMessage = message("rule", fibRuleHdr, () => ({
  src: [FRA_SRC, ipCodec],
  dst: [FRA_DST, ipCodec],
  priority: [FRA_PRIORITY, u32],
  table: [FRA_TABLE, u32],
  ...otherSelectors,
}));
type RuleOp = Operation<typeof fibRuleMessage>;
const NEW: RuleOp = { name: "RTM_NEWRULE", type: RTM_NEWRULE, spec: fibRuleMessage };
const DEL: RuleOp = { name: "RTM_DELRULE", type: RTM_DELRULE, spec: fibRuleMessage };
const GET: RuleOp = { name: "RTM_GETRULE", type: RTM_GETRULE, spec: fibRuleMessage };

/** Packets from these addresses are routed by this table. */
export interface SourceRule {
  readonly from: Cidr;
  readonly table: number;
  /** Of two rules that fit the lower is asked first; one that is new comes before all others unless told. */
  readonly priority?: number;
}

/** A rule as the kernel has it. */
export interface FibRule {
  readonly family: 4 | 6;
  readonly priority: number;
  /** The table to look into; absent for a rule that does something else. */
  readonly table?: number;
  /** Absent for packets from anywhere. */
  readonly from?: Cidr;
  /** True if it asks for nothing but where packets are from. */
  readonly isSourceOnly: boolean;
}

/** Adds a rule; the kernel takes several that differ in nothing but their priority. @throws {NetlinkError} `EEXIST` if there is one like it */
export function add(nl: Netlink, rule: SourceRule): void {
  withRequestPurpose(
    () => `add rule from ${rule.from} to table ${rule.table}`,
    () => execute(nl, NEW, fields(rule), NLM_F_CREATE | NLM_F_EXCL),
  );
}

/** Removes a rule. @throws {NetlinkError} `ENOENT` if there is none */
export function remove(nl: Netlink, rule: SourceRule): void {
  withRequestPurpose(
    () => `remove rule from ${rule.from} to table ${rule.table}`,
    () => execute(nl, DEL, fields(rule)),
  );
}

/** The rules of IPv4 and IPv6, in the order in which they are asked. @throws {NetlinkError} */
export function list(nl: Netlink): FibRule[] {
  return [AF_INET, AF_INET6].flatMap((family) =>
    withRequestPurpose(() => "list rules", () => dump(nl, GET, { family })).map(toFibRule)
  );
}

function fields({ from, table, priority }: SourceRule): MessageIn<typeof fibRuleMessage> {
  return {
    family: addressFamily(from),
    srcLen: prefixLengthOf(from),
    shortTable: table < 256 ? table : RT_TABLE_UNSPEC,
    action: FR_ACT_TO_TBL,
    src: ipOf(from),
    ...priority === undefined ? {} : { priority },
    ...table < 256 ? {} : { table },
  };
}

function toFibRule(reply: MessageOut<typeof fibRuleMessage>): FibRule {
  const hasOtherSelectors = reply.dstLen > 0 || reply.tos !== 0 ||
    (Object.keys(otherSelectors) as (keyof typeof otherSelectors)[]).some((name) =>
      reply[name] !== undefined && reply[name] !== 0
    );
  const unspecified = (reply.family === AF_INET ? "0.0.0.0" : "::") as Ip;
  return {
    family: reply.family === AF_INET ? 4 : 6,
    // The kernel does not say it of the first rule, whose it is to be 0.
    priority: reply.priority ?? 0,
    ...reply.action === FR_ACT_TO_TBL && { table: reply.table ?? reply.shortTable },
    ...reply.srcLen > 0 && { from: toCidr(reply.src ?? unspecified, reply.srcLen) },
    isSourceOnly: !hasOtherSelectors,
  };
}
