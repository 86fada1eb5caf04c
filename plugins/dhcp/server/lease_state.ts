import type { Netns } from "../../../ffi/netns/netns.ts";
import { leaseKey, type LeaseSettings } from "../protocol.ts";
import type { LeaseDevice } from "./device.ts";
import type { Exchange } from "./exchange.ts";
import type { MessageType } from "./message.ts";
import type { LeaseRecord, LeaseStore } from "./store.ts";
import type { LeaseTerms } from "./terms.ts";

type LeaseState =
  | ("selecting" | "requesting" | "probing" | "pausing")
  | ("bound" | "renewing" | "rebinding")
  | "ended";

/** Times are milliseconds since the boot. */
export interface Lease {
  readonly settings: LeaseSettings;
  /** In milliseconds since 1970, as GC compares it with the time at which a runtime listed attachments. */
  readonly createdAt: number;
  state: LeaseState;
  device: LeaseDevice | undefined;
  /** What the server granted, or offered. */
  terms: LeaseTerms | undefined;
  /** When the REQUEST was sent that the server granted. */
  requestedAt: number;
  /** The server may count the address as ours. */
  isGranted: boolean;
  /** An earlier address was lost: the interface has none. */
  isWithdrawn: boolean;
  acquiringSince: number;
  /** How often an address was in use by others. */
  declines: number;
  exchange: (Exchange & { readonly openedAt: number }) | undefined;
  sends: number;
  nextSendAt: number;
  /** When {@linkcode wakeLease} is due. */
  wakeAt: number;
}

/** Times are in milliseconds, as `dhcp daemon` takes them. */
export interface LeaseTiming {
  /** In this time, a message is sent about every second; then ever less often. While an ADD waits, at least so often. */
  readonly timeoutMs: number;
  readonly resendMaxMs: number;
  /** After this time, an ADD fails. */
  readonly resendTimeoutMs: number;
}

export interface LeaseContext {
  readonly host: Netns;
  readonly store: LeaseStore;
  readonly timing: LeaseTiming;
  readonly hostPrefix: string;
  /** All servers are to answer by broadcast. */
  readonly broadcast: boolean;
  now(): number;
  log(message: string): void;
  countMessage(type: MessageType): void;
  /** Whether an ADD waits for it. */
  isAwaited(lease: Lease): boolean;
  /** The ADD that waits is over. */
  settle(lease: Lease, error?: Error): void;
  forget(lease: Lease): void;
}

export function newLease(settings: LeaseSettings, now: number): Lease {
  return {
    settings,
    createdAt: Date.now(),
    state: "pausing",
    device: undefined,
    terms: undefined,
    requestedAt: 0,
    isGranted: false,
    isWithdrawn: false,
    acquiringSince: now,
    declines: 0,
    exchange: undefined,
    sends: 0,
    nextSendAt: now,
    wakeAt: now,
  };
}

export function leaseFromRecord(record: LeaseRecord): Lease {
  const { settings, createdAt, state, isWithdrawn, device, terms, requestedAt } = record;
  const isGranted = state !== "selecting";
  const restored = { createdAt, device, terms: terms as LeaseTerms, requestedAt, isGranted, isWithdrawn };
  const lease: Lease = { ...newLease(settings, 0), ...restored };
  return state === "bound" ? { ...lease, state, wakeAt: deadlines(lease).renew } : lease;
}

export const leaseDescriptors = ({ exchange }: Lease): number[] =>
  exchange ? [exchange.socket.fd, ...exchange.arp ? [exchange.arp.fd] : []] : [];

export const describeLease = ({ settings }: Lease): string => leaseKey(settings);

export const isAcquiring = ({ state }: Lease): boolean =>
  ["selecting", "requesting", "probing", "pausing"].includes(state);

export function closeExchange(lease: Lease): void {
  lease.exchange?.arp?.[Symbol.dispose]();
  lease.exchange?.socket[Symbol.dispose]();
  lease.exchange = undefined;
}

export function saveLease(lease: Lease, { store }: LeaseContext, state: LeaseRecord["state"]): void {
  const { settings, createdAt, isWithdrawn, device, terms, requestedAt } = lease;
  const times = { createdAt, requestedAt: Math.floor(requestedAt) };
  store.write({ settings, state, isWithdrawn, device: device!, terms: terms!, ...times });
}

export function deadlines(
  { terms, requestedAt }: Lease,
): { readonly renew: number; readonly rebind: number; readonly expiry: number } {
  const duration = terms?.duration;
  if (!duration) return { renew: Infinity, rebind: Infinity, expiry: Infinity };
  return {
    renew: requestedAt + duration.renewMs,
    rebind: requestedAt + duration.rebindMs,
    expiry: requestedAt + duration.expiryMs,
  };
}
