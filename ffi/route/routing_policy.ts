/**
 * Rules of policy routing with all that they select, to follow a packet through them.
 *
 * @see linux/fib_rules.h, ip-rule(8)
 * @module
 */
import type { Cidr } from "../address.ts";
import { be32, be64, cstr, ipCodec, struct, u16, u32, u8 } from "../netlink/codec.ts";
import { message, type MessageOut } from "../netlink/message.ts";
import { dump, type Netlink } from "../netlink/socket.ts";
import { withPurpose } from "../sys/error.ts";
import { AF_INET, AF_INET6, IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_TCP, IPPROTO_UDP } from "../sys/uapi.ts";
import { rtnetlinkOperations } from "./operations.ts";
import { prefixOf } from "./route.ts";
import { fibRuleHdr } from "./rule.ts";
import * as uapi from "./uapi.ts";

// struct fib_rule_port_range
const portRange = struct({ start: u16, end: u16 });
// struct fib_rule_uid_range
const uidRange = struct({ start: u32, end: u32 });

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
  tunId: [uapi.FRA_TUN_ID, be64],
  uidRange: [uapi.FRA_UID_RANGE, uidRange],
  ipProto: [uapi.FRA_IP_PROTO, u8],
  sportRange: [uapi.FRA_SPORT_RANGE, portRange],
  dportRange: [uapi.FRA_DPORT_RANGE, portRange],
  dscp: [uapi.FRA_DSCP, u8],
  flowLabel: [uapi.FRA_FLOWLABEL, be32],
}));
const RULE = /* @__PURE__ */ rtnetlinkOperations("RULE", uapi.RTM_NEWRULE, policyMessage);

export interface RoutingRule {
  readonly family: 4 | 6;
  readonly priority: number;
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
  /** What else it selects by, in words of ip-rule(8): `ipproto`, `tcp`, `dport`, `80-90`. */
  readonly otherSelectors: readonly string[];
}

/** The order is that in which the kernel asks them. */
export function listRoutingRules(nl: Netlink): RoutingRule[] {
  return [AF_INET, AF_INET6].flatMap((family) =>
    withPurpose("list rules", () => dump(nl, RULE.GET, { family })).map(toRoutingRule)
  );
}

const ABSENT = 0xffff_ffff;

function toRoutingRule(reply: MessageOut<typeof policyMessage>): RoutingRule {
  const { fwmark = 0, fwmask = ABSENT, suppressPrefixLength = ABSENT } = reply;
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
    otherSelectors: describeOtherSelectors(reply),
  };
}

const PROTOCOL_NAMES: Readonly<Record<number, string>> = {
  [IPPROTO_ICMP]: "icmp",
  [IPPROTO_TCP]: "tcp",
  [IPPROTO_UDP]: "udp",
  [IPPROTO_ICMPV6]: "ipv6-icmp",
};

function describeOtherSelectors(reply: MessageOut<typeof policyMessage>): string[] {
  const { tos, ipProto = 0, sportRange, dportRange, dscp, flowLabel, tunId, uidRange } = reply;
  const { suppressGroup = ABSENT } = reply;
  const values: Readonly<Record<string, string | undefined>> = {
    tos: tos === 0 ? undefined : formatHex(tos),
    dscp: dscp === undefined ? undefined : formatHex(dscp),
    flowlabel: flowLabel === undefined ? undefined : formatHex(flowLabel),
    tun_id: tunId === undefined ? undefined : `${tunId}`,
    uidrange: uidRange === undefined ? undefined : `${uidRange.start}-${uidRange.end}`,
    ipproto: ipProto === 0 ? undefined : PROTOCOL_NAMES[ipProto] ?? `${ipProto}`,
    sport: formatPorts(sportRange),
    dport: formatPorts(dportRange),
    suppress_ifgroup: suppressGroup === ABSENT ? undefined : `${suppressGroup}`,
  };
  return Object.entries(values).flatMap(([word, value]) => value === undefined ? [] : [word, value]);
}

const formatHex = (value: number): string => `0x${value.toString(16)}`;

function formatPorts(range: { readonly start: number; readonly end: number } | undefined): string | undefined {
  if (range === undefined) return undefined;
  return range.start === range.end ? `${range.start}` : `${range.start}-${range.end}`;
}
