/**
 * What rules are made of: one table with the layout of every expression that this program writes.
 *
 * Registers hold 4 bytes each: {@linkcode register} gives their numbers. What this table does not name is read as `{ kind: "unknown" }`.
 *
 * @see linux/netfilter/nf_tables.h
 * @module
 */
import { attrs, variant } from "../netlink/attrs.ts";
import { be32, be64, bei32, bytes, cstr, type In, type Out, u8 } from "../netlink/codec.ts";
import {
  NFT_REG32_00,
  NFT_REG_1,
  NFTA_BITWISE_DREG,
  NFTA_BITWISE_LEN,
  NFTA_BITWISE_MASK,
  NFTA_BITWISE_OP,
  NFTA_BITWISE_SREG,
  NFTA_BITWISE_XOR,
  NFTA_CMP_DATA,
  NFTA_CMP_OP,
  NFTA_CMP_SREG,
  NFTA_COUNTER_BYTES,
  NFTA_COUNTER_PACKETS,
  NFTA_CT_DIRECTION,
  NFTA_CT_DREG,
  NFTA_CT_KEY,
  NFTA_DATA_VALUE,
  NFTA_DATA_VERDICT,
  NFTA_EXPR_DATA,
  NFTA_EXPR_NAME,
  NFTA_FIB_DREG,
  NFTA_FIB_FLAGS,
  NFTA_FIB_RESULT,
  NFTA_IMMEDIATE_DATA,
  NFTA_IMMEDIATE_DREG,
  NFTA_LOOKUP_DREG,
  NFTA_LOOKUP_FLAGS,
  NFTA_LOOKUP_SET,
  NFTA_LOOKUP_SET_ID,
  NFTA_LOOKUP_SREG,
  NFTA_MASQ_FLAGS,
  NFTA_MASQ_REG_PROTO_MAX,
  NFTA_MASQ_REG_PROTO_MIN,
  NFTA_MATCH_INFO,
  NFTA_MATCH_NAME,
  NFTA_MATCH_REV,
  NFTA_META_DREG,
  NFTA_META_KEY,
  NFTA_META_SREG,
  NFTA_NAT_FAMILY,
  NFTA_NAT_FLAGS,
  NFTA_NAT_REG_ADDR_MAX,
  NFTA_NAT_REG_ADDR_MIN,
  NFTA_NAT_REG_PROTO_MAX,
  NFTA_NAT_REG_PROTO_MIN,
  NFTA_NAT_TYPE,
  NFTA_PAYLOAD_BASE,
  NFTA_PAYLOAD_CSUM_FLAGS,
  NFTA_PAYLOAD_CSUM_OFFSET,
  NFTA_PAYLOAD_CSUM_TYPE,
  NFTA_PAYLOAD_DREG,
  NFTA_PAYLOAD_LEN,
  NFTA_PAYLOAD_OFFSET,
  NFTA_PAYLOAD_SREG,
  NFTA_RANGE_FROM_DATA,
  NFTA_RANGE_OP,
  NFTA_RANGE_SREG,
  NFTA_RANGE_TO_DATA,
  NFTA_VERDICT_CHAIN,
  NFTA_VERDICT_CODE,
} from "./uapi.ts";

/** What happens to a packet: NF_DROP, NF_ACCEPT, NFT_RETURN; with a chain, NFT_JUMP or NFT_GOTO. */
export interface Verdict {
  readonly code: number;
  readonly chain?: string;
}

/** A value in registers (each field padded to 4 bytes), or a verdict. @see enum nft_data_attributes */
export const data = attrs(() => ({
  value: [NFTA_DATA_VALUE, bytes],
  verdict: [
    NFTA_DATA_VERDICT,
    attrs(() => ({ code: [NFTA_VERDICT_CODE, bei32], chain: [NFTA_VERDICT_CHAIN, cstr] })),
  ],
}));
export type Data = Out<typeof data>;

/** One expression of a rule. */
export const expression = variant({ kind: NFTA_EXPR_NAME, data: NFTA_EXPR_DATA }, () => ({
  meta: { key: [NFTA_META_KEY, be32], dreg: [NFTA_META_DREG, be32], sreg: [NFTA_META_SREG, be32] },
  cmp: { sreg: [NFTA_CMP_SREG, be32], op: [NFTA_CMP_OP, be32], data: [NFTA_CMP_DATA, data] },
  payload: {
    dreg: [NFTA_PAYLOAD_DREG, be32],
    base: [NFTA_PAYLOAD_BASE, be32],
    offset: [NFTA_PAYLOAD_OFFSET, be32],
    length: [NFTA_PAYLOAD_LEN, be32],
    // In the place of `dreg` where the packet is written to.
    sreg: [NFTA_PAYLOAD_SREG, be32],
    checksumType: [NFTA_PAYLOAD_CSUM_TYPE, be32],
    checksumOffset: [NFTA_PAYLOAD_CSUM_OFFSET, be32],
    checksumFlags: [NFTA_PAYLOAD_CSUM_FLAGS, be32],
  },
  bitwise: {
    sreg: [NFTA_BITWISE_SREG, be32],
    dreg: [NFTA_BITWISE_DREG, be32],
    op: [NFTA_BITWISE_OP, be32],
    length: [NFTA_BITWISE_LEN, be32],
    mask: [NFTA_BITWISE_MASK, data],
    xor: [NFTA_BITWISE_XOR, data],
  },
  range: {
    sreg: [NFTA_RANGE_SREG, be32],
    op: [NFTA_RANGE_OP, be32],
    from: [NFTA_RANGE_FROM_DATA, data],
    to: [NFTA_RANGE_TO_DATA, data],
  },
  immediate: { dreg: [NFTA_IMMEDIATE_DREG, be32], data: [NFTA_IMMEDIATE_DATA, data] },
  lookup: {
    set: [NFTA_LOOKUP_SET, cstr],
    sreg: [NFTA_LOOKUP_SREG, be32],
    dreg: [NFTA_LOOKUP_DREG, be32],
    setId: [NFTA_LOOKUP_SET_ID, be32],
    flags: [NFTA_LOOKUP_FLAGS, be32],
  },
  fib: { dreg: [NFTA_FIB_DREG, be32], flags: [NFTA_FIB_FLAGS, be32], result: [NFTA_FIB_RESULT, be32] },
  ct: {
    dreg: [NFTA_CT_DREG, be32],
    key: [NFTA_CT_KEY, be32],
    direction: [NFTA_CT_DIRECTION, u8],
  },
  nat: {
    type: [NFTA_NAT_TYPE, be32],
    family: [NFTA_NAT_FAMILY, be32],
    addressMin: [NFTA_NAT_REG_ADDR_MIN, be32],
    addressMax: [NFTA_NAT_REG_ADDR_MAX, be32],
    portMin: [NFTA_NAT_REG_PROTO_MIN, be32],
    portMax: [NFTA_NAT_REG_PROTO_MAX, be32],
    flags: [NFTA_NAT_FLAGS, be32],
  },
  masq: {
    flags: [NFTA_MASQ_FLAGS, be32],
    portMin: [NFTA_MASQ_REG_PROTO_MIN, be32],
    portMax: [NFTA_MASQ_REG_PROTO_MAX, be32],
  },
  counter: { packets: [NFTA_COUNTER_PACKETS, be64], bytes: [NFTA_COUNTER_BYTES, be64] },
  notrack: {},
  // What iptables has no expression for: its extensions, with their structs as they are (nft_compat).
  match: { name: [NFTA_MATCH_NAME, cstr], revision: [NFTA_MATCH_REV, be32], info: [NFTA_MATCH_INFO, bytes] },
  target: { name: [NFTA_MATCH_NAME, cstr], revision: [NFTA_MATCH_REV, be32], info: [NFTA_MATCH_INFO, bytes] },
}));

/** An expression as the kernel reports it. */
export type Expression = Out<typeof expression>;
/** An expression to send. */
export type ExpressionIn = In<typeof expression>;

/**
 * The number of the register at `slot` (0 to 15, 4 bytes each).
 *
 * Every fourth has a second number, from the time when registers had 16 bytes; the kernel reports that one, so it is sent as well.
 */
export function register(slot: number): number {
  return slot % 4 === 0 ? NFT_REG_1 + slot / 4 : NFT_REG32_00 + slot;
}
