/**
 * Statements of rules, with the expressions that nft(8) makes of the same words.
 *
 * ```ts
 * rule(saddrIn("10.1.0.0/16"), masquerade())       // ip saddr 10.1.0.0/16 masquerade
 * ```
 */
import { type Cidr, familyOf, type Ip, ipBytes, ipOf, networkOf, prefixLengthOf } from "../address.ts";
import { type ExpressionIn, register, type Verdict } from "./expressions.ts";
import * as uapi from "./uapi.ts";

export type RuleStatement = readonly ExpressionIn[];

export interface Selector {
  readonly size: number;
  load(slot: number): RuleStatement;
  /** NFPROTO_IPV4 or NFPROTO_IPV6 if only its packets have the field. */
  readonly family?: number;
}

export function rule(...parts: readonly RuleStatement[]): ExpressionIn[] {
  const expressions = parts.flat();
  const isNfprotoLoad = (candidate: ExpressionIn | undefined) =>
    candidate?.kind === "meta" && candidate.key === uapi.NFT_META_NFPROTO;
  const firstCheck = expressions.findIndex(isNfprotoLoad);
  // A check is a load and a comparison. Contradictory checks stay, so that the rule matches nothing.
  const isRepeated = (i: number) =>
    i > firstCheck && isNfprotoLoad(expressions[i]) && isSameFamily(expressions[firstCheck + 1], expressions[i + 1]);
  return expressions.filter((_, i) => !isRepeated(i) && !isRepeated(i - 1));
}

function isSameFamily(a: ExpressionIn | undefined, b: ExpressionIn | undefined): boolean {
  return a?.kind === "cmp" && b?.kind === "cmp" && a.data?.value?.[0] === b.data?.value?.[0];
}

const meta = (key: number, size: number): Selector => ({
  size,
  load: (slot) => [{ kind: "meta", key, dreg: register(slot) }],
});
const payload = (base: number, offset: number, size: number, family?: number): Selector => ({
  size,
  load: (slot) => [{ kind: "payload", dreg: register(slot), base, offset, length: size }],
  ...family === undefined ? {} : { family },
});
type AddressOffset = { readonly [family in 4 | 6]: number };
const SADDR_OFFSET: AddressOffset = { 4: 12, 6: 8 };
const DADDR_OFFSET: AddressOffset = { 4: 16, 6: 24 };
const sizeOf = (family: 4 | 6): number => (family === 4 ? 4 : 16);
const networkHeader = (family: 4 | 6, offset: AddressOffset): Selector =>
  payload(uapi.NFT_PAYLOAD_NETWORK_HEADER, offset[family], sizeOf(family), nfprotoOf(family));

export const saddr = (family: 4 | 6): Selector => networkHeader(family, SADDR_OFFSET);
export const daddr = (family: 4 | 6): Selector => networkHeader(family, DADDR_OFFSET);
export const l4proto = (): Selector => meta(uapi.NFT_META_L4PROTO, 1);
/** `@th,336,32`: bytes behind the start of the transport header, in other units than nft(8). */
export const transportBytes = (offset: number, size: number): Selector =>
  payload(uapi.NFT_PAYLOAD_TRANSPORT_HEADER, offset, size);
/** `ether daddr & 01:00:00:00:00:00 != 00:00:00:00:00:00`: to several hosts */
export const etherDaddrIsGroup = (): RuleStatement => [
  ...etherDaddr().load(0),
  ...maskRegister(6, Uint8Array.of(1, 0, 0, 0, 0, 0)),
  compare(new Uint8Array(6), true),
];
/** `ip saddr & 255.255.255.0` */
export function masked(field: Selector, prefixLength: number): Selector {
  const mask = prefixMask(field.size, prefixLength);
  return { ...field, load: (slot) => [...field.load(slot), ...maskRegister(field.size, mask, slot)] };
}
/** `ip6 hoplimit` */
export const hopLimit = (): Selector => payload(uapi.NFT_PAYLOAD_NETWORK_HEADER, 7, 1, uapi.NFPROTO_IPV6);
/** `ip6 hoplimit set 1`, after a look at the family. No checksum has it. */
export const setHopLimit = (limit: number): RuleStatement => [
  { kind: "immediate", dreg: register(0), data: { value: Uint8Array.of(limit) } },
  {
    kind: "payload",
    sreg: register(0),
    base: uapi.NFT_PAYLOAD_NETWORK_HEADER,
    offset: 7,
    length: 1,
    checksumType: uapi.NFT_PAYLOAD_CSUM_NONE,
  },
];
/** `th dport` */
export const dport = (): Selector => payload(uapi.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2);
/** `iif` */
export const iif = (): Selector => meta(uapi.NFT_META_IIF, 4);
export const iifname = (): Selector => meta(uapi.NFT_META_IIFNAME, 16);
export const oifname = (): Selector => meta(uapi.NFT_META_OIFNAME, 16);
/** `iifgroup`: 0 unless somebody has given the link another one. */
export const iifgroup = (): Selector => meta(uapi.NFT_META_IIFGROUP, 4);
/** `ether type`, without the tag of a VLAN. */
export const metaProtocol = (): Selector => meta(uapi.NFT_META_PROTOCOL, 2);
/** `ip saddr` in a table of family bridge, after a look at {@linkcode metaProtocol}. */
export const bridgedSaddr = (family: 4 | 6): Selector =>
  payload(uapi.NFT_PAYLOAD_NETWORK_HEADER, SADDR_OFFSET[family], sizeOf(family));
export const etherDaddr = (): Selector => payload(uapi.NFT_PAYLOAD_LL_HEADER, 0, 6);
export const etherSaddr = (): Selector => payload(uapi.NFT_PAYLOAD_LL_HEADER, 6, 6);
/** `arp saddr ether`, after a look at {@linkcode metaProtocol}, for links of Ethernet and addresses of IPv4. */
export const arpSenderMac = (): Selector => payload(uapi.NFT_PAYLOAD_NETWORK_HEADER, 8, 6);
export const arpSenderIp = (): Selector => payload(uapi.NFT_PAYLOAD_NETWORK_HEADER, 14, 4);

export const metaNfproto = (family: 4 | 6): RuleStatement => nfprotoCheck(nfprotoOf(family));

/** `tcp dport 8000-8080` */
export function inRange(field: Selector, from: Uint8Array, to: Uint8Array): RuleStatement {
  const range = { sreg: register(0), op: uapi.NFT_RANGE_EQ, from: { value: from }, to: { value: to } };
  return [...nfprotoCheck(field.family), ...field.load(0), { kind: "range", ...range }];
}

/** Compares the field's beginning with `value`. */
export function equals(field: Selector, value: Uint8Array, not = false): RuleStatement {
  return [...nfprotoCheck(field.family), ...field.load(0), compare(value, not)];
}

function compare(value: Uint8Array, not: boolean): ExpressionIn {
  return { kind: "cmp", sreg: register(0), op: not ? uapi.NFT_CMP_NEQ : uapi.NFT_CMP_EQ, data: { value } };
}

/** Tables of family inet see both families. */
function nfprotoCheck(family: number | undefined): RuleStatement {
  if (family === undefined) return [];
  return [...meta(uapi.NFT_META_NFPROTO, 1).load(0), compare(Uint8Array.of(family), false)];
}

function addressIn(field: (family: 4 | 6) => Selector, cidr: Cidr, not: boolean): RuleStatement {
  const { size, load, family } = field(familyOf(cidr));
  const address = ipBytes(ipOf(networkOf(cidr)));
  const length = prefixLengthOf(cidr);
  // Whole bytes need no mask.
  if (length > 0 && length % 8 === 0) {
    const bytes = length / 8;
    const loads = load(0).map((load) => load.kind === "payload" ? { ...load, length: bytes } : load);
    return [...nfprotoCheck(family), ...loads, compare(address.subarray(0, bytes), not)];
  }
  const mask = prefixMask(address.length, length);
  return [...nfprotoCheck(family), ...load(0), ...maskRegister(size, mask), compare(address, not)];
}

function prefixMask(size: number, length: number): Uint8Array {
  return new Uint8Array(size).map((_, i) => 0xff << Math.max(0, Math.min(8, 8 * (i + 1) - length)) & 0xff);
}

function maskRegister(length: number, mask: Uint8Array, slot = 0): RuleStatement {
  const xor = { value: new Uint8Array(length) };
  return [{ kind: "bitwise", sreg: register(slot), dreg: register(slot), length, mask: { value: mask }, xor }];
}

/** `ip saddr 10.1.0.0/16` */
export const saddrIn = (cidr: Cidr, not = false): RuleStatement => addressIn(saddr, cidr, not);
/** `ip daddr 10.1.0.0/16` */
export const daddrIn = (cidr: Cidr, not = false): RuleStatement => addressIn(daddr, cidr, not);
/** `iifname "eth0"`, `iifname "eth*"` */
export function iifnameIs(name: string, not = false): RuleStatement {
  const prefix = name.endsWith("*");
  const text = new TextEncoder().encode(prefix ? name.slice(0, -1) : name);
  if (text.length > 15) throw new RangeError(`Cannot match interface "${name}": names have 15 bytes at most`);
  return equals(iifname(), prefix ? text : padTo(text, 16), not);
}
/** `oifname "lo"` */
export const oifnameIs = (name: string, not = false): RuleStatement => equals(oifname(), ifnameField(name), not);
export function fibDaddrLocal(): RuleStatement {
  const result = uapi.NFT_FIB_RESULT_ADDRTYPE;
  return [
    { kind: "fib", dreg: register(0), flags: uapi.NFTA_FIB_F_DADDR, result },
    compare(u32HostOrder(uapi.RTN_LOCAL), false),
  ];
}

/** `fib daddr . iif type local`: the link that the packet came by has the address. */
export function fibDaddrOfInputLink(not = false): RuleStatement {
  const flags = uapi.NFTA_FIB_F_DADDR | uapi.NFTA_FIB_F_IIF;
  return [
    { kind: "fib", dreg: register(0), flags, result: uapi.NFT_FIB_RESULT_ADDRTYPE },
    compare(u32HostOrder(uapi.RTN_LOCAL), not),
  ];
}

/** `fib saddr . iif oif missing`: answers to the source would not leave by the link that the packet came from. */
export function fibReversePathMissing(): RuleStatement {
  const flags = uapi.NFTA_FIB_F_SADDR | uapi.NFTA_FIB_F_IIF | uapi.NFTA_FIB_F_PRESENT;
  return [
    { kind: "fib", dreg: register(0), flags, result: uapi.NFT_FIB_RESULT_OIF },
    compare(u32HostOrder(0), false),
  ];
}

function ctHasAny(key: number, bits: number, not = false): RuleStatement {
  const zero = new Uint8Array(4);
  return [{ kind: "ct", dreg: register(0), key }, ...maskRegister(4, u32HostOrder(bits)), compare(zero, !not)];
}
export const ctMarkHas = (bits: number, not = false): RuleStatement => ctHasAny(uapi.NFT_CT_MARK, bits, not);
export const ctStatusDnat = (): RuleStatement => ctHasAny(uapi.NFT_CT_STATUS, uapi.IPS_DST_NAT);
const ESTABLISHED_RELATED = uapi.NF_CT_STATE_ESTABLISHED | uapi.NF_CT_STATE_RELATED;
export const ctStateEstablishedRelated = (not = false): RuleStatement =>
  ctHasAny(uapi.NFT_CT_STATE, ESTABLISHED_RELATED, not);
export function ctDirectionReply(): RuleStatement {
  return [
    { kind: "ct", dreg: register(0), key: uapi.NFT_CT_DIRECTION },
    compare(Uint8Array.of(uapi.IP_CT_DIR_REPLY), false),
  ];
}
const ctAddress = (family: 4 | 6, key4: number, key6: number, direction: number): Selector => ({
  size: sizeOf(family),
  load: (slot) => [{ kind: "ct", dreg: register(slot), key: family === 4 ? key4 : key6, direction }],
});
/** `ct original ip saddr`: who called, before any translation. The other family's packets have none. */
export const ctOriginalSaddr = (family: 4 | 6): Selector =>
  ctAddress(family, uapi.NFT_CT_SRC_IP, uapi.NFT_CT_SRC_IP6, uapi.IP_CT_DIR_ORIGINAL);
/** `ct reply ip daddr`: whom the called one answers. */
export const ctReplyDaddr = (family: 4 | 6): Selector =>
  ctAddress(family, uapi.NFT_CT_DST_IP, uapi.NFT_CT_DST_IP6, uapi.IP_CT_DIR_REPLY);
/** `ct original ip saddr 127.0.0.0/8` */
export const ctOriginalSaddrIn = (cidr: Cidr): RuleStatement => addressIn(ctOriginalSaddr, cidr, false);

/** `-m conntrack --ctstate RELATED,ESTABLISHED`: iptables cannot read `ct state`. */
export function xtCtstateEstablishedRelated(): RuleStatement {
  // struct xt_conntrack_mtinfo3 (linux/netfilter/xt_conntrack.h), aligned to 8 bytes.
  const info = new Uint8Array(168);
  const MATCH_FLAGS = 146;
  const STATE_MASK = 150;
  const XT_CONNTRACK_STATE = 1;
  info[MATCH_FLAGS] = XT_CONNTRACK_STATE;
  info[STATE_MASK] = ESTABLISHED_RELATED;
  return [{ kind: "match", name: "conntrack", revision: 3, info }];
}
/** `meta mark & 0x20 == 0x20` */
export function markHas(bits: number): RuleStatement {
  return [
    ...meta(uapi.NFT_META_MARK, 4).load(0),
    ...maskRegister(4, u32HostOrder(bits)),
    compare(u32HostOrder(bits), false),
  ];
}
/** `-m mark --mark 0x20/0x20`: iptables before 1.8.8 cannot read {@linkcode markHas}. */
export function xtMarkHas(bits: number): RuleStatement {
  // struct xt_mark_mtinfo1 (linux/netfilter/xt_mark.h), aligned to 8 bytes.
  const info = new Uint8Array(16);
  info.set(u32HostOrder(bits), 0);
  info.set(u32HostOrder(bits), 4);
  return [{ kind: "match", name: "mark", revision: 1, info }];
}
/** `meta mark set meta mark | 0x20` */
export const setMark = (bits: number): RuleStatement => changeMark(~bits, bits);
/** `meta mark set meta mark & 0xffffffdf` */
export const clearMark = (bits: number): RuleStatement => changeMark(~bits, 0);
function changeMark(mask: number, xor: number): RuleStatement {
  const bitwise = { sreg: register(0), dreg: register(0), length: 4 };
  return [
    ...meta(uapi.NFT_META_MARK, 4).load(0),
    { kind: "bitwise", ...bitwise, mask: { value: u32HostOrder(mask) }, xor: { value: u32HostOrder(xor) } },
    { kind: "meta", key: uapi.NFT_META_MARK, sreg: register(0) },
  ];
}
/** `meta pkttype set host`: a bridge hands the packet to this host. */
export const setPacketTypeHost = (): RuleStatement => [
  { kind: "immediate", dreg: register(0), data: { value: Uint8Array.of(uapi.PACKET_HOST) } },
  { kind: "meta", key: uapi.NFT_META_PKTTYPE, sreg: register(0) },
];
export const counter = (): RuleStatement => [{ kind: "counter" }];
/** `limit rate 10/second`: no more packets match, but for the five at once that nft(8) allows, too. */
export const limitPerSecond = (rate: number): RuleStatement => [
  { kind: "limit", rate: BigInt(rate), unit: 1n, burst: 5 },
];
/** `log prefix "…" group 1`: packets go to who has bound the group. */
export const logToGroup = (group: number, prefix: string): RuleStatement => [
  { kind: "log", prefix, group },
];

function lookupIn(
  fields: readonly Selector[],
  set: string,
  result: { readonly dreg?: number; readonly flags?: number },
): RuleStatement {
  const family = fields.find((field) => field.family !== undefined)?.family;
  let slot = 0;
  const loads: ExpressionIn[] = [];
  for (const field of fields) {
    loads.push(...field.load(slot));
    slot += registersFor(field.size);
  }
  return [...nfprotoCheck(family), ...loads, { kind: "lookup", set, sreg: register(0), ...result }];
}

/** `ip saddr . th dport @set` */
export function inSet(fields: readonly Selector[], set: string, not = false): RuleStatement {
  return lookupIn(fields, set, not ? { flags: uapi.NFT_LOOKUP_F_INV } : {});
}
/** `ip saddr . th dport vmap @map` */
export function vmap(fields: readonly Selector[], map: string): RuleStatement {
  return lookupIn(fields, map, { dreg: uapi.NFT_REG_VERDICT });
}
/** `dnat ip to … map @map`, which holds an address and a port. */
export function dnatMap(family: 4 | 6, fields: readonly Selector[], map: string): RuleStatement {
  const port = register(registersFor(family === 4 ? 4 : 16));
  // The kernel ignores the other family's packets (net/netfilter/nft_nat.c nft_nat_inet_eval()).
  const to = { type: uapi.NFT_NAT_DNAT, family: nfprotoOf(family), addressMin: register(0), portMin: port };
  return [...lookupIn(fields, map, { dreg: register(0) }), { kind: "nat", ...to }];
}
/** `ip saddr set … map @map` */
export function saddrFromMap(fields: readonly Selector[], map: string): RuleStatement {
  return [...lookupIn(fields, map, { dreg: register(0) }), writeAddress(4, SADDR_OFFSET)];
}
/** `ether daddr set … map @map` */
export function etherDaddrFromMap(fields: readonly Selector[], map: string): RuleStatement {
  const destination = {
    base: uapi.NFT_PAYLOAD_LL_HEADER,
    offset: 0,
    length: 6,
    checksumType: uapi.NFT_PAYLOAD_CSUM_NONE,
  };
  return [...lookupIn(fields, map, { dreg: register(0) }), { kind: "payload", sreg: register(0), ...destination }];
}
/** `ip daddr set 127.0.0.1` */
export function setDaddr(ip: Ip): RuleStatement {
  return [{ kind: "immediate", dreg: register(0), data: { value: ipBytes(ip) } }, writeAddress(4, DADDR_OFFSET)];
}
/** `ip daddr set ct original ip saddr` */
export function setDaddrTo(family: 4 | 6, value: (family: 4 | 6) => Selector): RuleStatement {
  return [...nfprotoCheck(nfprotoOf(family)), ...value(family).load(0), writeAddress(family, DADDR_OFFSET)];
}

/** `ip6 saddr set @th,64,128`, after a look at the family */
export const saddrFromTransport = (offset: number): RuleStatement => [
  ...transportBytes(offset, sizeOf(6)).load(0),
  writeAddress(6, SADDR_OFFSET),
];

/** Writes a register to the header and updates the checksums. Only IPv4's header has one. */
function writeAddress(family: 4 | 6, offset: AddressOffset): ExpressionIn {
  const CHECKSUM_OFFSET = 10;
  const headerChecksum = { checksumType: uapi.NFT_PAYLOAD_CSUM_INET, checksumOffset: CHECKSUM_OFFSET };
  return {
    kind: "payload",
    sreg: register(0),
    base: uapi.NFT_PAYLOAD_NETWORK_HEADER,
    offset: offset[family],
    length: sizeOf(family),
    ...family === 4 && headerChecksum,
    checksumFlags: uapi.NFT_PAYLOAD_L4CSUM_PSEUDOHDR,
  };
}
export const masquerade = (): RuleStatement => [{ kind: "masq" }];
/** What is neither tracked nor translated. */
export const notrack = (): RuleStatement => [{ kind: "notrack" }];

const nfprotoOf = (family: 4 | 6): number => (family === 4 ? uapi.NFPROTO_IPV4 : uapi.NFPROTO_IPV6);

function verdict(value: Verdict): RuleStatement {
  return [{ kind: "immediate", dreg: uapi.NFT_REG_VERDICT, data: { verdict: value } }];
}
export const accept = (): RuleStatement => verdict({ code: uapi.NF_ACCEPT });
export const drop = (): RuleStatement => verdict({ code: uapi.NF_DROP });
export const returnFromChain = (): RuleStatement => verdict({ code: uapi.NFT_RETURN });
export const jump = (chain: string): RuleStatement => verdict({ code: uapi.NFT_JUMP, chain });
export const gotoChain = (chain: string): RuleStatement => verdict({ code: uapi.NFT_GOTO, chain });

const registersFor = (size: number): number => (size + 3) >> 2;

export const u32HostOrder = (value: number): Uint8Array => new Uint8Array(Uint32Array.of(value).buffer);

function padTo(value: Uint8Array, size: number): Uint8Array {
  const out = new Uint8Array(size);
  out.set(value);
  return out;
}

/** A set's key or data: fields, each padded to 4 bytes unless alone. */
export function concatenation(...fields: readonly Uint8Array[]): Uint8Array {
  if (fields.length === 1) return fields[0]!;
  const out = new Uint8Array(fields.reduce((sum, field) => sum + registersFor(field.length) * 4, 0));
  let at = 0;
  for (const field of fields) {
    out.set(field, at);
    at += registersFor(field.length) * 4;
  }
  return out;
}

export const portField = (port: number): Uint8Array => Uint8Array.of(port >> 8, port & 0xff);

export const ifnameField = (name: string): Uint8Array => padTo(new TextEncoder().encode(name), 16);
