/**
 * The layouts of expressions that this program writes. Others are read as `{ kind: "unknown" }`.
 *
 * @see linux/netfilter/nf_tables.h
 */
import { attrs, variant } from "../netlink/attrs.ts";
import { be16, be32, be64, bei32, bytes, cstr, type In, type Out, u8 } from "../netlink/codec.ts";
import * as uapi from "./uapi.ts";

/** NF_DROP, NF_ACCEPT, NFT_RETURN; with a chain, NFT_JUMP or NFT_GOTO. */
export interface Verdict {
  readonly code: number;
  readonly chain?: string;
}

/** Values in registers have fields padded to 4 bytes. @see enum nft_data_attributes */
export const data = attrs(() => ({
  value: [uapi.NFTA_DATA_VALUE, bytes],
  verdict: [
    uapi.NFTA_DATA_VERDICT,
    attrs(() => ({ code: [uapi.NFTA_VERDICT_CODE, bei32], chain: [uapi.NFTA_VERDICT_CHAIN, cstr] })),
  ],
}));
export type Data = Out<typeof data>;

export const expression = variant({ kind: uapi.NFTA_EXPR_NAME, data: uapi.NFTA_EXPR_DATA }, () => ({
  meta: { key: [uapi.NFTA_META_KEY, be32], dreg: [uapi.NFTA_META_DREG, be32], sreg: [uapi.NFTA_META_SREG, be32] },
  cmp: { sreg: [uapi.NFTA_CMP_SREG, be32], op: [uapi.NFTA_CMP_OP, be32], data: [uapi.NFTA_CMP_DATA, data] },
  payload: {
    dreg: [uapi.NFTA_PAYLOAD_DREG, be32],
    base: [uapi.NFTA_PAYLOAD_BASE, be32],
    offset: [uapi.NFTA_PAYLOAD_OFFSET, be32],
    length: [uapi.NFTA_PAYLOAD_LEN, be32],
    // Instead of `dreg`, to write to the packet.
    sreg: [uapi.NFTA_PAYLOAD_SREG, be32],
    checksumType: [uapi.NFTA_PAYLOAD_CSUM_TYPE, be32],
    checksumOffset: [uapi.NFTA_PAYLOAD_CSUM_OFFSET, be32],
    checksumFlags: [uapi.NFTA_PAYLOAD_CSUM_FLAGS, be32],
  },
  bitwise: {
    sreg: [uapi.NFTA_BITWISE_SREG, be32],
    dreg: [uapi.NFTA_BITWISE_DREG, be32],
    op: [uapi.NFTA_BITWISE_OP, be32],
    length: [uapi.NFTA_BITWISE_LEN, be32],
    mask: [uapi.NFTA_BITWISE_MASK, data],
    xor: [uapi.NFTA_BITWISE_XOR, data],
  },
  range: {
    sreg: [uapi.NFTA_RANGE_SREG, be32],
    op: [uapi.NFTA_RANGE_OP, be32],
    from: [uapi.NFTA_RANGE_FROM_DATA, data],
    to: [uapi.NFTA_RANGE_TO_DATA, data],
  },
  immediate: { dreg: [uapi.NFTA_IMMEDIATE_DREG, be32], data: [uapi.NFTA_IMMEDIATE_DATA, data] },
  lookup: {
    set: [uapi.NFTA_LOOKUP_SET, cstr],
    sreg: [uapi.NFTA_LOOKUP_SREG, be32],
    dreg: [uapi.NFTA_LOOKUP_DREG, be32],
    setId: [uapi.NFTA_LOOKUP_SET_ID, be32],
    flags: [uapi.NFTA_LOOKUP_FLAGS, be32],
  },
  objref: { type: [uapi.NFTA_OBJREF_IMM_TYPE, be32] },
  fib: { dreg: [uapi.NFTA_FIB_DREG, be32], flags: [uapi.NFTA_FIB_FLAGS, be32], result: [uapi.NFTA_FIB_RESULT, be32] },
  ct: {
    dreg: [uapi.NFTA_CT_DREG, be32],
    key: [uapi.NFTA_CT_KEY, be32],
    direction: [uapi.NFTA_CT_DIRECTION, u8],
  },
  nat: {
    type: [uapi.NFTA_NAT_TYPE, be32],
    family: [uapi.NFTA_NAT_FAMILY, be32],
    addressMin: [uapi.NFTA_NAT_REG_ADDR_MIN, be32],
    addressMax: [uapi.NFTA_NAT_REG_ADDR_MAX, be32],
    portMin: [uapi.NFTA_NAT_REG_PROTO_MIN, be32],
    portMax: [uapi.NFTA_NAT_REG_PROTO_MAX, be32],
    flags: [uapi.NFTA_NAT_FLAGS, be32],
  },
  masq: {
    flags: [uapi.NFTA_MASQ_FLAGS, be32],
    portMin: [uapi.NFTA_MASQ_REG_PROTO_MIN, be32],
    portMax: [uapi.NFTA_MASQ_REG_PROTO_MAX, be32],
  },
  counter: { packets: [uapi.NFTA_COUNTER_PACKETS, be64], bytes: [uapi.NFTA_COUNTER_BYTES, be64] },
  // `unit` is in seconds.
  limit: {
    rate: [uapi.NFTA_LIMIT_RATE, be64],
    unit: [uapi.NFTA_LIMIT_UNIT, be64],
    burst: [uapi.NFTA_LIMIT_BURST, be32],
    type: [uapi.NFTA_LIMIT_TYPE, be32],
    flags: [uapi.NFTA_LIMIT_FLAGS, be32],
  },
  // Without a group, the kernel's own log.
  log: {
    prefix: [uapi.NFTA_LOG_PREFIX, cstr],
    group: [uapi.NFTA_LOG_GROUP, be16],
    snapLength: [uapi.NFTA_LOG_SNAPLEN, be32],
    queueThreshold: [uapi.NFTA_LOG_QTHRESHOLD, be16],
    level: [uapi.NFTA_LOG_LEVEL, be32],
  },
  notrack: {},
  // Extensions of iptables (nft_compat) with their structs.
  match: {
    name: [uapi.NFTA_MATCH_NAME, cstr],
    revision: [uapi.NFTA_MATCH_REV, be32],
    info: [uapi.NFTA_MATCH_INFO, bytes],
  },
  target: {
    name: [uapi.NFTA_MATCH_NAME, cstr],
    revision: [uapi.NFTA_MATCH_REV, be32],
    info: [uapi.NFTA_MATCH_INFO, bytes],
  },
}));

export type Expression = Out<typeof expression>;

export type ExpressionIn = In<typeof expression>;

/**
 * The number of register `slot` (0 to 15, 4 bytes each). Every fourth slot also has an older number, which the kernel
 * reports.
 */
export function register(slot: number): number {
  return slot % 4 === 0 ? uapi.NFT_REG_1 + slot / 4 : uapi.NFT_REG32_00 + slot;
}
