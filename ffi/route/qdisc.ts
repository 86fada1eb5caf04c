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
import { NetlinkError, withRequestPurpose } from "../netlink/error.ts";
import {
  message,
  type MessageIn,
  type MessageOut,
  NLM_F_ACK,
  NLM_F_CREATE,
  NLM_F_ECHO,
  NLM_F_EXCL,
  type Operation,
  readMessage,
} from "../netlink/message.ts";
import { exchange, execute, type Netlink, request } from "../netlink/socket.ts";
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
export const qdiscMessage = message("qdisc", tcmsg, () => ({
  kind: [TCA_KIND, cstr],
  options: [TCA_OPTIONS, bytes],
}));
/** A queueing discipline as the kernel reports it. */
export type Qdisc = MessageOut<typeof qdiscMessage>;
type QdiscOp = Operation<typeof qdiscMessage>;
const NEW: QdiscOp = { name: "RTM_NEWQDISC", type: RTM_NEWQDISC, spec: qdiscMessage };
const DEL: QdiscOp = { name: "RTM_DELQDISC", type: RTM_DELQDISC, spec: qdiscMessage };
const GET: QdiscOp = { name: "RTM_GETQDISC", type: RTM_GETQDISC, spec: qdiscMessage };

/** struct tc_tbf_qopt, the two struct tc_ratespec in it written out. */
const tbfQopt = struct({
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
const tbfOptions = attrs(() => ({
  parameters: [TCA_TBF_PARMS, tbfQopt],
  rate64: [TCA_TBF_RATE64, u64],
  burst: [TCA_TBF_BURST, u32],
}));

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
/** From here on, a part of a microsecond is nothing to a bucket. */
const LARGE_BURST_US = 1000;

/** The content of a token bucket's options, by which it holds the same as one of tc(8) and of the reference plugin. */
function writeTokenBucket({ rate, burst, limit }: TokenBucket): Uint8Array {
  const isLarge = rate > U32_MAX;
  // They count in whole microseconds.
  const us = BigInt(burst) * 1_000_000n / rate;
  const buffer = us * 1000n / BigInt(TICK_NS);
  const isExact = us >= LARGE_BURST_US && buffer <= U32_MAX;
  const w = new Writer();
  tbfOptions.write(w, {
    parameters: {
      linkLayer: TC_LINKLAYER_ETHERNET,
      rate: isLarge ? U32_MAX : Number(rate),
      limit,
      buffer: buffer > U32_MAX ? U32_MAX : Number(buffer),
    },
    ...isLarge ? { rate64: rate } : {},
    // Overrules `buffer`, where that is too coarse (less than a packet at 100 Gbit/s) or too small (274 s at most).
    ...isExact ? {} : { burst },
  });
  return w.written();
}

/** A token bucket as the kernel reports it: `buffer` in place of the burst. */
export interface ReportedTokenBucket {
  /** Bytes per second. */
  readonly rate: bigint;
  /** Bytes that may wait. */
  readonly limit: number;
  /** Ticks in which the bucket fills; the kernel reports the lower 32 bits. See {@linkcode matchesBurst}. */
  readonly buffer: number;
}

/** The state of a token bucket, or `undefined` if the discipline is of another kind. */
export function tokenBucketOf({ kind, options }: Qdisc): ReportedTokenBucket | undefined {
  if (kind !== "tbf" || !options) return undefined;
  const { parameters: reported, rate64 }: Out<typeof tbfOptions> = tbfOptions.read(new Reader(options));
  return reported && { rate: rate64 ?? BigInt(reported.rate), limit: reported.limit, buffer: reported.buffer };
}

/** True if a bucket that was reported holds what `wanted` says, but for a microsecond of traffic that different ways of rounding lose. */
export function matchesBurst({ buffer }: ReportedTokenBucket, { rate, burst }: TokenBucket): boolean {
  const ticks = BigInt(burst) * 1_000_000_000n / (rate * BigInt(TICK_NS));
  const missingTicks = BigInt.asUintN(32, ticks + 1n - BigInt(buffer));
  return missingTicks <= 1 + 1000 / TICK_NS + 1;
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
  withRequestPurpose(purpose, () => execute(nl, NEW, spec, NLM_F_CREATE | NLM_F_EXCL));
}

/** What decides what leaves a link; `undefined` if that is nothing that was put there, or there is no such link. @throws {NetlinkError} */
export function findRoot(nl: Netlink, index: number): Qdisc | undefined {
  return find(nl, index, TC_H_ROOT);
}

/** The place where what comes in over a link passes filters; `undefined` if there is none. @throws {NetlinkError} */
export function findIngress(nl: Netlink, index: number): Qdisc | undefined {
  return find(nl, index, TC_H_INGRESS);
}

/**
 * Asks for one: a list of all goes by the number of links, so that of two parts of it the second lacks some where a link was removed
 * in between, and nothing tells.
 */
function find(nl: Netlink, index: number, parent: number): Qdisc | undefined {
  // Older kernels answer only those that want to hear of what they did; of a default that has no content, none says anything.
  const echoRequest = request(GET, { index, parent }, NLM_F_ECHO | NLM_F_ACK);
  let found: Qdisc | undefined;
  ignoreAbsent(() =>
    withRequestPurpose(
      () => `find queueing discipline of link ${index}`,
      () =>
        exchange(nl, [echoRequest], (payload) => {
          found = readMessage(qdiscMessage, payload);
        }),
    )
  );
  return found;
}

/** Takes a link's own discipline away, so that it has the kernel's default again; false if it had none. @throws {NetlinkError} */
export function removeRoot(nl: Netlink, index: number): boolean {
  return remove(nl, index, TC_H_ROOT);
}

/** Takes the filters for incoming packets away with their place; false if there was none. @throws {NetlinkError} */
export function removeIngress(nl: Netlink, index: number): boolean {
  return remove(nl, index, TC_H_INGRESS);
}

/** The kernel's answers when there is nothing: no such discipline, the default one, no such link. */
const ABSENT_CODES = ["ENOENT", "EINVAL", "ENODEV"];

function ignoreAbsent<T>(call: () => T): T | undefined {
  try {
    return call();
  } catch (error) {
    if (error instanceof NetlinkError && ABSENT_CODES.includes(error.code)) return undefined;
    throw error;
  }
}

function remove(nl: Netlink, index: number, parent: number): boolean {
  const purpose = () => `remove queueing discipline of link ${index}`;
  return ignoreAbsent(() => (withRequestPurpose(purpose, () => execute(nl, DEL, { index, parent })), true)) ?? false;
}
