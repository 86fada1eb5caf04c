/**
 * Queueing disciplines: when packets leave a link.
 *
 * @see linux/pkt_sched.h, net/sched/sch_tbf.c
 * @module
 */
import { attrs } from "../netlink/attrs.ts";
import { bytes, cstr, i32, Reader, struct, u16, u32, u64, u8, Writer } from "../netlink/codec.ts";
import {
  message,
  type MessageIn,
  type MessageOut,
  NLM_F_ACK,
  NLM_F_CREATE,
  NLM_F_ECHO,
  NLM_F_EXCL,
  readMessage,
} from "../netlink/message.ts";
import { exchange, execute, type Netlink, request } from "../netlink/socket.ts";
import { ignoreErrors, withPurpose } from "../sys/error.ts";
import { rtnetlinkOperations } from "./operations.ts";
import * as uapi from "./uapi.ts";

export const tcmsg = struct({ family: u8, pad1: u8, pad2: u16, index: i32, handle: u32, parent: u32, info: u32 });
export const qdiscMessage = message("qdisc", tcmsg, () => ({
  kind: [uapi.TCA_KIND, cstr],
  options: [uapi.TCA_OPTIONS, bytes],
}));
export type Qdisc = MessageOut<typeof qdiscMessage>;
const QDISC = /* @__PURE__ */ rtnetlinkOperations("QDISC", uapi.RTM_NEWQDISC, qdiscMessage);

// struct tc_tbf_qopt with two struct tc_ratespec
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
  parameters: [uapi.TCA_TBF_PARMS, tbfQopt],
  rate64: [uapi.TCA_TBF_RATE64, u64],
  burst: [uapi.TCA_TBF_BURST, u32],
}));

export interface TokenBucket {
  /** In bytes per second, from 1. */
  readonly rate: bigint;
  /** Bytes that may leave at once after a silence. Larger packets are dropped. */
  readonly burst: number;
  /** Bytes that may wait; others are dropped. */
  readonly limit: number;
}

/** The kernel's unit of fill times (PSCHED_SHIFT; second number of /proc/net/psched). */
export const TICK_NS = 64;
const U32_MAX = 0xffff_ffff;
// Beyond this, fractions of a microsecond do not matter.
const LARGE_BURST_US = 1000;

/** Equal to the options of tc(8) and the reference plugin, which count whole microseconds. */
function writeTokenBucket({ rate, burst, limit }: TokenBucket): Uint8Array {
  const isLarge = rate > U32_MAX;
  const us = BigInt(burst) * 1_000_000n / rate;
  const buffer = us * 1000n / BigInt(TICK_NS);
  const isExact = us >= LARGE_BURST_US && buffer <= U32_MAX;
  const w = new Writer();
  tbfOptions.write(w, {
    parameters: {
      linkLayer: uapi.TC_LINKLAYER_ETHERNET,
      rate: isLarge ? U32_MAX : Number(rate),
      limit,
      buffer: buffer > U32_MAX ? U32_MAX : Number(buffer),
    },
    ...isLarge ? { rate64: rate } : {},
    // Overrides `buffer`, if too coarse (less than a packet at 100 Gbit/s) or too small (274 s at most).
    ...isExact ? {} : { burst },
  });
  return w.written();
}

export interface ReportedTokenBucket {
  readonly rate: bigint;
  readonly limit: number;
  /** The lower 32 bits of the fill time, in ticks. */
  readonly buffer: number;
}

export function tokenBucketOf({ kind, options }: Qdisc): ReportedTokenBucket | undefined {
  if (kind !== "tbf" || !options) return undefined;
  const { parameters: reported, rate64 } = tbfOptions.read(new Reader(options));
  return reported && { rate: rate64 ?? BigInt(reported.rate), limit: reported.limit, buffer: reported.buffer };
}

/** True if a bucket holds the wanted burst, less a microsecond of traffic for rounding. */
export function matchesBurst({ buffer }: ReportedTokenBucket, { rate, burst }: TokenBucket): boolean {
  const ticks = BigInt(burst) * 1_000_000_000n / (rate * BigInt(TICK_NS));
  const missingTicks = BigInt.asUintN(32, ticks + 1n - BigInt(buffer));
  return missingTicks <= 1 + 1000 / TICK_NS + 1;
}

/** `1:` */
const ROOT_HANDLE = 0x1_0000;
/** `ffff:` */
export const INGRESS_HANDLE = 0xffff_0000;

export function addTokenBucket(nl: Netlink, index: number, bucket: TokenBucket): void {
  const options = writeTokenBucket(bucket);
  add(nl, { index, handle: ROOT_HANDLE, parent: uapi.TC_H_ROOT, kind: "tbf", options });
}

/** Incoming packets then pass filters. */
export function addIngress(nl: Netlink, index: number): void {
  add(nl, { index, handle: INGRESS_HANDLE, parent: uapi.TC_H_INGRESS, kind: "ingress" });
}

function add(nl: Netlink, spec: MessageIn<typeof qdiscMessage>): void {
  withPurpose(
    `add queueing discipline "${spec.kind}" to link ${spec.index}`,
    () => execute(nl, QDISC.NEW, spec, NLM_F_CREATE | NLM_F_EXCL),
  );
}

/** The kernel's default counts as none. */
export function findRoot(nl: Netlink, index: number): Qdisc | undefined {
  return find(nl, index, uapi.TC_H_ROOT);
}

export function findIngress(nl: Netlink, index: number): Qdisc | undefined {
  return find(nl, index, uapi.TC_H_INGRESS);
}

/** A dump would skip links if others are removed meanwhile. */
function find(nl: Netlink, index: number, parent: number): Qdisc | undefined {
  // Old kernels answer only to NLM_F_ECHO. No kernel answers for an empty default, hence NLM_F_ACK.
  const echoRequest = request(QDISC.GET, { index, parent }, NLM_F_ECHO | NLM_F_ACK);
  let found: Qdisc | undefined;
  const onMessage = (payload: Reader) => {
    found = readMessage(qdiscMessage, payload);
  };
  ignoreErrors(
    ABSENT_CODES,
    () => withPurpose(`find queueing discipline of link ${index}`, () => exchange(nl, [echoRequest], onMessage)),
  );
  return found;
}

/** Restores the kernel's default; false if the link had it. */
export function removeRoot(nl: Netlink, index: number): boolean {
  return remove(nl, index, uapi.TC_H_ROOT);
}

export function removeIngress(nl: Netlink, index: number): boolean {
  return remove(nl, index, uapi.TC_H_INGRESS);
}

// No such discipline, the default, no such link.
const ABSENT_CODES = ["ENOENT", "EINVAL", "ENODEV"];

function remove(nl: Netlink, index: number, parent: number): boolean {
  return ignoreErrors(ABSENT_CODES, () => {
    withPurpose(`remove queueing discipline of link ${index}`, () => execute(nl, QDISC.DEL, { index, parent }));
    return true;
  }) ?? false;
}
