/**
 * Queueing disciplines: what decides when a packet leaves a link.
 *
 * Used as a namespace: `import * as qdisc from "../ffi/route/qdisc.ts"`.
 *
 * @see linux/pkt_sched.h, net/sched/sch_api.c, net/sched/sch_tbf.c
 * @module
 */
import { attrs } from "../netlink/attrs.ts";
import { bytes, cstr, i32, type Out, Reader, struct, u16, u32, u64, u8, Writer } from "../netlink/codec.ts";
import { NetlinkError, purposed } from "../netlink/error.ts";
import { message, type MessageIn, type MessageOut, NLM_F_CREATE, NLM_F_EXCL, type Op } from "../netlink/message.ts";
import { dump, execute, type Netlink } from "../netlink/socket.ts";
import {
  RTM_DELQDISC,
  RTM_GETQDISC,
  RTM_NEWQDISC,
  TC_H_INGRESS,
  TC_H_ROOT,
  TC_LINKLAYER_ETHERNET,
  TCA_KIND,
  TCA_OPTIONS,
  TCA_TBF_BURST,
  TCA_TBF_PARMS,
  TCA_TBF_RATE64,
} from "./uapi.ts";

/** struct tcmsg */
export const tcmsg = struct({
  family: u8,
  pad1: u8,
  pad2: u16,
  index: i32,
  handle: u32,
  parent: u32,
  info: u32,
});

/** A queueing discipline, as in RTM_NEWQDISC and its relatives; the layout of `options` follows from `kind`. */
export const qdiscMessage = message("qdisc", tcmsg, {
  kind: [TCA_KIND, cstr],
  options: [TCA_OPTIONS, bytes],
});
/** A queueing discipline as the kernel reports it. */
export type Qdisc = MessageOut<typeof qdiscMessage>;
type QdiscOp = Op<typeof qdiscMessage>;
const NEW: QdiscOp = { name: "RTM_NEWQDISC", type: RTM_NEWQDISC, spec: qdiscMessage };
const DEL: QdiscOp = { name: "RTM_DELQDISC", type: RTM_DELQDISC, spec: qdiscMessage };
const GET: QdiscOp = { name: "RTM_GETQDISC", type: RTM_GETQDISC, spec: qdiscMessage };

/** struct tc_tbf_qopt, the two struct tc_ratespec in it written out. */
const parameters = struct({
  padCellLog: u8,
  linkLayer: u8,
  overhead: u16,
  padCellAlign: u16,
  mpu: u16,
  rate: u32,
  padPeak1: u32,
  padPeak2: u32,
  peakRate: u32,
  limit: u32,
  buffer: u32,
  mtu: u32,
});
const tbfOptions = attrs({
  parameters: [TCA_TBF_PARMS, parameters],
  rate64: [TCA_TBF_RATE64, u64],
  burst: [TCA_TBF_BURST, u32],
});

/** A token bucket filter. */
export interface TokenBucket {
  /** Bytes per second, from 1. */
  readonly rate: bigint;
  /** Bytes that may leave at once after a silence; larger packets never leave. */
  readonly burst: number;
  /** Bytes that may wait; what comes then is dropped. */
  readonly limit: number;
}

/** The kernel counts the time in which a bucket fills in these (PSCHED_SHIFT; the second number of /proc/net/psched). */
export const TICK_NS = 64;
const U32_MAX = 0xffff_ffff;

/** How long the bucket takes to fill, in ticks; what does not fit into 32 bits is cut off, as the kernel does when it reports it. */
export function bufferOf({ rate, burst }: Pick<TokenBucket, "rate" | "burst">): number {
  return Number(BigInt.asUintN(32, BigInt(burst) * 1_000_000_000n / (rate * BigInt(TICK_NS))));
}

/** The content of a token bucket's options. */
export function writeTokenBucket(bucket: TokenBucket): Uint8Array {
  const { rate, burst, limit } = bucket;
  const isLarge = rate > U32_MAX;
  const w = new Writer();
  tbfOptions.write(w, {
    parameters: {
      linkLayer: TC_LINKLAYER_ETHERNET,
      rate: isLarge ? U32_MAX : Number(rate),
      limit,
      // Overruled by `burst`, which holds where ticks are too coarse (1 packet at 100 Gbit/s) or too many (more than 274 s).
      buffer: bufferOf(bucket),
    },
    ...isLarge ? { rate64: rate } : {},
    burst,
  });
  return w.written();
}

/** A token bucket as the kernel reports it: `buffer` in place of the burst. */
export interface TokenBucketState {
  /** Bytes per second. */
  readonly rate: bigint;
  /** Bytes that may wait. */
  readonly limit: number;
  /** See {@linkcode bufferOf}. */
  readonly buffer: number;
}

/** The state of a token bucket, or `undefined` if the discipline is of another kind. */
export function tokenBucketOf({ kind, options }: Qdisc): TokenBucketState | undefined {
  if (kind !== "tbf" || !options) return undefined;
  const { parameters: found, rate64 }: Out<typeof tbfOptions> = tbfOptions.read(new Reader(options));
  return found && { rate: rate64 ?? BigInt(found.rate), limit: found.limit, buffer: found.buffer };
}

/** The handle of a root discipline: `1:`. */
const ROOT_HANDLE = 0x1_0000;
/** The handle of the place where incoming packets pass filters: `ffff:`. */
export const INGRESS_HANDLE = 0xffff_0000;

/** Puts a token bucket before the link `index`, in place of the kernel's default. @throws {NetlinkError} `EEXIST` if it has a discipline */
export function addTokenBucket(nl: Netlink, index: number, bucket: TokenBucket): void {
  const options = writeTokenBucket(bucket);
  add(nl, { index, handle: ROOT_HANDLE, parent: TC_H_ROOT, kind: "tbf", options });
}

/** Lets incoming packets of the link `index` pass filters. @throws {NetlinkError} `EEXIST` if they do already */
export function addIngress(nl: Netlink, index: number): void {
  add(nl, { index, handle: INGRESS_HANDLE, parent: TC_H_INGRESS, kind: "ingress" });
}

function add(nl: Netlink, spec: MessageIn<typeof qdiscMessage>): void {
  const purpose = () => `add queueing discipline "${spec.kind}" to link ${spec.index}`;
  purposed(purpose, () => execute(nl, NEW, spec, NLM_F_CREATE | NLM_F_EXCL));
}

/** The disciplines of all links; the kernel gives them all, whatever it is asked. @throws {NetlinkError} */
export function list(nl: Netlink): Qdisc[] {
  return purposed(() => "list queueing disciplines", () => dump(nl, GET, {}));
}

/** True for the discipline that decides what leaves its link. */
export function isRoot({ parent }: Qdisc): boolean {
  return parent === TC_H_ROOT;
}

/** True for the place where what comes in over its link passes filters. */
export function isIngress({ parent }: Qdisc): boolean {
  return parent === TC_H_INGRESS;
}

/** Takes a link's own discipline away, so that it has the kernel's default again; false if it had none. @throws {NetlinkError} */
export function removeRoot(nl: Netlink, index: number): boolean {
  return remove(nl, index, TC_H_ROOT);
}

/** Takes the filters for incoming packets away with their place; false if there was none. @throws {NetlinkError} */
export function removeIngress(nl: Netlink, index: number): boolean {
  return remove(nl, index, TC_H_INGRESS);
}

/** The kernel's answers when there is nothing to remove: no such discipline, the default one, no such link. */
const ABSENT = ["ENOENT", "EINVAL", "ENODEV"];

function remove(nl: Netlink, index: number, parent: number): boolean {
  try {
    purposed(() => `remove queueing discipline of link ${index}`, () => execute(nl, DEL, { index, parent }));
    return true;
  } catch (error) {
    if (error instanceof NetlinkError && ABSENT.includes(error.code)) return false;
    throw error;
  }
}
