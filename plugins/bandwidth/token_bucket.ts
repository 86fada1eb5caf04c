import type { TokenBucket } from "../../ffi/route/qdisc.ts";
import type { Limit } from "./config.ts";

const U32_MAX = 0xffff_ffffn;
/** Packets that would wait longer are dropped, so that senders notice. */
const MAX_LATENCY_MS = 25n;
/** The MTU does not count it. */
const ETHERNET_HEADER_BYTES = 14;

const max = (a: bigint, b: bigint): bigint => a > b ? a : b;
const min = (a: bigint, b: bigint): bigint => a < b ? a : b;

/** Amounts are in bytes, at least one. */
export function tokenBucketFor({ rate, burst }: Limit): TokenBucket {
  const bytesPerSecond = max(rate / 8n, 1n);
  const burstBytes = max(burst / 8n, 1n);
  const queueBytes = bytesPerSecond * MAX_LATENCY_MS / 1000n + burstBytes;
  return { rate: bytesPerSecond, burst: Number(burstBytes), limit: Number(min(queueBytes, U32_MAX)) };
}

export function limitWarning({ rate, burst }: Limit, mtu: number): string | undefined {
  const { burst: burstBytes } = tokenBucketFor({ rate, burst });
  if (burstBytes < mtu + ETHERNET_HEADER_BYTES) {
    return `burst ${burst} bit is less than one packet of ${
      (mtu + ETHERNET_HEADER_BYTES) * 8
    } bit (MTU ${mtu}): full-sized packets are dropped`;
  }
  if (burst <= rate) return undefined;
  const seconds = (Number(burst) / Number(rate)).toPrecision(3);
  return `burst ${burst} bit is ${seconds} seconds of traffic at ${rate} bit/s: after every pause, that much passes without a limit`;
}
