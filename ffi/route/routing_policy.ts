/**
 * Rules of policy routing with all that they select, to follow a packet through them.
 *
 * @see linux/fib_rules.h, ip-rule(8)
 * @module
 */
import type { Cidr } from "../address.ts";
import { bytes, cstr, ipCodec, u32, u8 } from "../netlink/codec.ts";
import { message, type MessageOut } from "../netlink/message.ts";
import { dump, type Netlink } from "../netlink/socket.ts";
import { withPurpose } from "../sys/error.ts";
import { AF_INET, AF_INET6 } from "../sys/uapi.ts";
import { rtnetlinkOperations } from "./operations.ts";
import { prefixOf } from "./route.ts";
import { fibRuleHdr } from "./rule.ts";
import * as uapi from "./uapi.ts";

const policyMessage = message("rule", fibRuleHdr, () => ({
  src: [uapi.FRA_SRC, ipCodec],
  dst: [uapi.FRA_DST, ipCodec],
  priority: [uapi.FRA_PRIORITY, u32],
  table: [uapi.FRA_TABLE, u32],
  iif: [uapi.FRA_IIFNAME, cstr],
  oif: [uapi.FRA_OIFNAME, cstr],
  fwmark: [uapi.FRA_FWMARK, u32],
  fwmask: [uapi.FRA_FWMASK, u32],
  goto: [uapi.FRA_GOTO, u32],
  suppressPrefixLength: [uapi.FRA_SUPPRESS_PREFIXLEN, u32],
  suppressGroup: [uapi.FRA_SUPPRESS_IFGROUP, u32],
  l3mdev: [uapi.FRA_L3MDEV, u8],
  tunId: [uapi.FRA_TUN_ID, bytes],
  uidRange: [uapi.FRA_UID_RANGE, bytes],
  ipProto: [uapi.FRA_IP_PROTO, u8],
  sportRange: [uapi.FRA_SPORT_RANGE, bytes],
  dportRange: [uapi.FRA_DPORT_RANGE, bytes],
}));
const RULE = /* @__PURE__ */ rtnetlinkOperations("RULE", uapi.RTM_NEWRULE, policyMessage);

export interface RoutingRule {
  readonly family: 4 | 6;
  readonly priority: number;
  /** FR_ACT_… */
  readonly action: number;
  readonly table: number;
  readonly from?: Cidr;
  readonly to?: Cidr;
  readonly iif?: string;
  readonly oif?: string;
  readonly mark?: { readonly value: number; readonly mask: number };
  readonly isInverted: boolean;
  /** Routes with prefixes up to this length do not count. */
  readonly suppressPrefixLength?: number;
  /** Its action is to go on at this priority. */
  readonly goto?: number;
  /** It looks up the table of the packet's VRF. */
  readonly isL3mdev: boolean;
  /** It selects by what is not listed here, such as ports. */
  readonly hasOtherSelectors: boolean;
}

/** In the order in which the kernel asks them. */
export function listRoutingRules(nl: Netlink): RoutingRule[] {
  return [AF_INET, AF_INET6].flatMap((family) =>
    withPurpose("list rules", () => dump(nl, RULE.GET, { family })).map(toRoutingRule)
  );
}

const ABSENT = 0xffff_ffff;

function toRoutingRule(reply: MessageOut<typeof policyMessage>): RoutingRule {
  const { fwmark = 0, fwmask = ABSENT, suppressPrefixLength = ABSENT, suppressGroup = ABSENT } = reply;
  const others = [reply.tunId, reply.uidRange, reply.sportRange, reply.dportRange];
  return {
    family: reply.family === AF_INET ? 4 : 6,
    priority: reply.priority ?? 0,
    action: reply.action,
    table: reply.table ?? reply.shortTable,
    ...reply.srcLen > 0 && { from: prefixOf(reply.family, reply.src, reply.srcLen) },
    ...reply.dstLen > 0 && { to: prefixOf(reply.family, reply.dst, reply.dstLen) },
    ...reply.iif !== undefined && { iif: reply.iif },
    ...reply.oif !== undefined && { oif: reply.oif },
    ...reply.fwmark !== undefined && { mark: { value: fwmark, mask: fwmask } },
    isInverted: (reply.flags & uapi.FIB_RULE_INVERT) !== 0,
    ...suppressPrefixLength !== ABSENT && { suppressPrefixLength },
    ...reply.goto !== undefined && { goto: reply.goto },
    isL3mdev: (reply.l3mdev ?? 0) !== 0,
    hasOtherSelectors: reply.tos !== 0 || (reply.ipProto ?? 0) !== 0 || suppressGroup !== ABSENT ||
      others.some((each) => each !== undefined),
  };
}
