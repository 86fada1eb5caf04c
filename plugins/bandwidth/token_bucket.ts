/**
 * From a limit in bits to the token bucket in bytes that keeps it.
 *
 * @module
 */
import type { TokenBucket } from "../../ffi/route/qdisc.ts";
import type { Limit } from "./config.ts";

const U32_MAX = 0xffff_ffffn;
/** How long a packet may wait: what would wait longer is dropped, so that senders notice. */
const LATENCY_MS = 25n;
/** An Ethernet header, which counts and is not part of the MTU. */
const HEADER_BYTES = 14;

const larger = (a: bigint, b: bigint): bigint => a > b ? a : b;
const smaller = (a: bigint, b: bigint): bigint => a < b ? a : b;

/** The bucket that keeps a limit; where the limit is less than one byte, one byte. */
export function bucketOf({ rate, burst }: Limit): TokenBucket {
  const bytesPerSecond = larger(rate / 8n, 1n);
  const bytes = larger(burst / 8n, 1n);
  const waiting = bytesPerSecond * LATENCY_MS / 1000n + bytes;
  return { rate: bytesPerSecond, burst: Number(bytes), limit: Number(smaller(waiting, U32_MAX)) };
}

/** What the administrator should know of a limit that does not do what it seems to, or `undefined`. */
export function doubtOf({ rate, burst }: Limit, mtu: number): string | undefined {
  const { burst: bytes } = bucketOf({ rate, burst });
  if (bytes < mtu + HEADER_BYTES) {
    return `burst ${burst} bit is less than one packet of ${
      (mtu + HEADER_BYTES) * 8
    } bit (MTU ${mtu}): full-sized packets are dropped`;
  }
  if (burst <= rate) return undefined;
  const seconds = (Number(burst) / Number(rate)).toPrecision(3);
  return `burst ${burst} bit is ${seconds} seconds of traffic at ${rate} bit/s: after every pause, that much passes without a limit`;
}
