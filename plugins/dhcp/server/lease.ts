/**
 * A lease, from the first DISCOVER to its end: a state machine that the server's loop drives. Nothing here waits.
 *
 * A socket keeps the container's namespace alive. So it is open only while an answer may come.
 *
 * @see RFC 2131 §4.4
 * @module
 */
import { type Ip, ipBytes } from "../../../ffi/address.ts";
import { type ArpSocket, openArpSocket, PROBE_COUNT, PROBE_WAIT_MS } from "../../../ffi/packet/arp.ts";
import { decodeUdpFrame } from "../../../ffi/packet/udp_frame.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { applyTerms, DeviceGoneError, openDevice, withdrawAddress } from "./device.ts";
import { frameOf, newXid, openExchange, sendRelease } from "./exchange.ts";
import { decodeReply, type DhcpReply, type DhcpRequest, type MessageType, SERVER_PORT } from "./message.ts";
import { findOption, OPTION } from "./options.ts";
import {
  closeExchange,
  deadlines,
  describeLease,
  isAcquiring,
  type Lease,
  type LeaseContext,
  saveLease,
} from "./lease_state.ts";
import { type LeaseTerms, termsOf } from "./terms.ts";

/** A DISCOVER may be lost while a bridge learns of its new port. */
const FIRST_RESENDS_MS = [250, 500];
const RESEND_MS = 1000;
/** A request to extend a lease may be lost, as when many leases are due at once. RFC 2131 tells later intervals. */
const FIRST_EXTENSION_RESENDS_MS = [4000, 8000];
const MAX_REQUESTS = 4;
/** For so long, a lease whose ADD is over listens for an answer. */
const LISTEN_MS = 10_000;
/** Doubles with each address in use. */
const DECLINE_PAUSE_MS = 1000;
const RETRY_MS = 10_000;
/** Others get their turn, however many answers come to one lease. */
const MAX_FRAMES_PER_TURN = 32;
const MAX_MESSAGE_BYTES = [5, 220];

export function wakeLease(lease: Lease, context: LeaseContext): void {
  attempt(lease, context, () => {
    const now = context.now();
    if (
      isAcquiring(lease) && context.isAwaited(lease) && now - lease.acquiringSince >= context.timing.resendTimeoutMs
    ) {
      return giveUp(lease, context, noMoreTriesError(lease));
    }
    if (lease.state === "probing") return continueProbing(lease, context);
    if (lease.state !== "bound" && lease.state !== "pausing" && now < lease.nextSendAt) {
      closeExchange(lease);
      return wakeAt(lease, context, lease.nextSendAt);
    }
    switch (lease.state) {
      case "selecting":
        return discover(lease, context);
      case "requesting":
        return lease.sends < MAX_REQUESTS ? request(lease, context) : startSelecting(lease, context);
      case "pausing":
        return startSelecting(lease, context);
      case "bound":
      case "renewing":
      case "rebinding":
        return extend(lease, context);
    }
  });
}

export function receiveForLease(lease: Lease, context: LeaseContext): void {
  attempt(lease, context, () => {
    const exchange = lease.exchange!;
    if (lease.state === "probing") return readProbes(lease, context);
    for (let frames = 0; frames < MAX_FRAMES_PER_TURN; frames++) {
      const frame = ignoreErrors(["ENETDOWN"], () => exchange.socket.receive());
      if (frame === undefined) return;
      const datagram = decodeUdpFrame(frame);
      const reply = datagram && datagram.source.port === SERVER_PORT ? decodeReply(datagram.payload) : undefined;
      if (reply?.xid !== exchange.xid || reply.chaddr !== lease.device!.mac) continue;
      context.countMessage(reply.type);
      handleReply(lease, context, reply, termsOf(reply, datagram!.source.mac));
      if (lease.exchange !== exchange) return;
    }
  });
}

/** Ends the lease if its interface is gone. */
export function verifyLease(lease: Lease, context: LeaseContext): void {
  attempt(lease, context, () => {
    using _ = openDevice(context.host, lease.settings, context.hostPrefix, lease.device?.index);
  });
}

export function endLease(lease: Lease, context: LeaseContext): void {
  closeExchange(lease);
  releaseAddress(lease, context);
  lease.state = "ended";
  lease.wakeAt = Infinity;
  context.store.remove(lease.settings);
  context.forget(lease);
}

export function releaseAddress(lease: Lease, context: LeaseContext): void {
  if (!lease.isGranted) return;
  lease.isGranted = false;
  const { address, serverId } = lease.terms!;
  const options: readonly RawOption[] = [[OPTION.serverId, ipBytes(serverId)]];
  const frame = frameOf(messageOf(lease, context, "release", newXid(), options, address), lease.terms);
  const how = sendRelease(context.host, lease.settings, context.hostPrefix, lease.device!, frame)
    ? "released"
    : "given up, but no way leads to the server to tell it";
  context.log(`${describeLease(lease)}: ${address} is ${how}`);
}

/** Errors of the kernel and the network must not end the server. */
function attempt(lease: Lease, context: LeaseContext, action: () => void): void {
  try {
    action();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const awaited = context.isAwaited(lease);
    if (error instanceof DeviceGoneError || awaited) {
      if (!awaited) context.log(`${describeLease(lease)}: the lease ends, as ${error.message}`);
      return giveUp(lease, context, error);
    }
    context.log(`${describeLease(lease)}: ${error.message}; trying again in ${RETRY_MS / 1000} s`);
    closeExchange(lease);
    if (isAcquiring(lease)) lease.state = "pausing";
    lease.nextSendAt = context.now() + RETRY_MS;
    lease.wakeAt = lease.nextSendAt;
  }
}

function giveUp(lease: Lease, context: LeaseContext, error: Error): void {
  context.settle(lease, error);
  if (lease.state !== "ended") endLease(lease, context);
}

function noMoreTriesError({ settings: { ifname }, declines }: Lease): CniError {
  const reason = declines > 0
    ? `each address that a server offered on the network of "${ifname}" was in use already (${declines} declined)`
    : `no DHCP server on the network of "${ifname}" gave an address: none answers, or its pool is exhausted`;
  return new CniError(Code.TryAgainLater, "no more tries", { details: reason });
}

/** Goes on with the exchange, if there is one: a server that is slow may still acknowledge. */
function startSelecting(lease: Lease, context: LeaseContext): void {
  context.log(`${describeLease(lease)}: asks for an address`);
  lease.state = "selecting";
  lease.sends = 0;
  discover(lease, context);
}

function discover(lease: Lease, context: LeaseContext): void {
  const wanted = lease.terms?.address;
  send(lease, context, "discover", { options: wanted ? [[OPTION.requestedAddress, ipBytes(wanted)]] : [] });
}

function request(lease: Lease, context: LeaseContext): void {
  const { address, serverId } = lease.terms!;
  send(lease, context, "request", {
    options: [
      [OPTION.requestedAddress, ipBytes(address)],
      [OPTION.serverId, ipBytes(serverId)],
    ],
  });
}

/** Renews, rebinds, or gives up the address, as the time says. */
function extend(lease: Lease, context: LeaseContext): void {
  const now = context.now();
  const { rebind, expiry } = deadlines(lease);
  if (now >= expiry) return withdraw(lease, context, "has expired");
  const state = now >= rebind ? "rebinding" : "renewing";
  if (lease.state !== state) lease.sends = 0;
  lease.state = state;
  send(lease, context, "request", {
    ciaddr: lease.terms!.address,
    isUnicast: state === "renewing",
    until: state === "renewing" ? rebind : expiry,
  });
}

type RawOption = readonly [number, Uint8Array];

interface SendOptions {
  readonly ciaddr?: Ip;
  readonly isUnicast?: boolean;
  readonly options?: readonly RawOption[];
  /** When another state begins: no message of this one is sent later. */
  readonly until?: number;
}

function send(
  lease: Lease,
  context: LeaseContext,
  type: MessageType,
  { ciaddr, isUnicast = false, options = [], until }: SendOptions,
): void {
  const { settings } = lease;
  if (!lease.exchange) {
    const opened = openExchange(context.host, settings, context.hostPrefix, lease.device?.index);
    lease.device = opened.device;
    lease.exchange = { ...opened.exchange, openedAt: context.now() };
  }
  const { exchange } = lease;
  const provided = settings.provided.map(({ code, value }) => [code, Uint8Array.fromHex(value)] as const);
  const message = messageOf(lease, context, type, exchange.xid, [
    [OPTION.maxMessageSize, Uint8Array.from(MAX_MESSAGE_BYTES)],
    ...settings.requested.length > 0
      ? [[OPTION.parameterRequestList, Uint8Array.from(settings.requested)] as const]
      : [],
    ...provided,
    ...options,
  ], ciaddr);
  exchange.socket.send(frameOf(message, isUnicast ? lease.terms : undefined));
  const now = context.now();
  const intervalMs = until === undefined
    ? resendIntervalMs(lease, context, now)
    : extensionIntervalMs(lease, until - now);
  lease.sends++;
  lease.nextSendAt = now + intervalMs;
  const listensUntil = context.isAwaited(lease) ? Infinity : now + LISTEN_MS;
  wakeAt(lease, context, Math.min(lease.nextSendAt, listensUntil));
}

/** An ADD that waits is over in time. */
function wakeAt(lease: Lease, context: LeaseContext, at: number): void {
  const isAwaited = isAcquiring(lease) && context.isAwaited(lease);
  lease.wakeAt = isAwaited ? Math.min(at, lease.acquiringSince + context.timing.resendTimeoutMs) : at;
}

/** RFC 2131 §4.4.5: half of the time that remains. */
function extensionIntervalMs({ sends }: Lease, remainingMs: number): number {
  const early = (FIRST_EXTENSION_RESENDS_MS[sends] ?? Infinity) * randomFactor();
  return Math.min(remainingMs, Math.max(RESEND_MS, Math.min(remainingMs / 2, early)));
}

/** Containers that began together do not send together. */
const randomFactor = (): number => 0.9 + Math.random() * 0.2;

function resendIntervalMs(lease: Lease, context: LeaseContext, now: number): number {
  const { sends, acquiringSince, state } = lease;
  const { timeoutMs, resendMaxMs } = context.timing;
  const elapsed = now - acquiringSince;
  const first = FIRST_RESENDS_MS[sends];
  if (first !== undefined) return first * randomFactor();
  if (elapsed < timeoutMs || state === "requesting") return RESEND_MS * randomFactor();
  // Doubles with each message: as long as the time before it. An ADD is not to miss an address that becomes free.
  const longest = context.isAwaited(lease) ? Math.min(timeoutMs, resendMaxMs) : resendMaxMs;
  return Math.min(longest, Math.max(RESEND_MS, elapsed)) * randomFactor();
}

function messageOf(
  { device, settings, acquiringSince }: Lease,
  context: LeaseContext,
  type: MessageType,
  xid: number,
  options: readonly RawOption[],
  ciaddr?: Ip,
): DhcpRequest {
  const { mac, broadcast } = device!;
  context.countMessage(type);
  const clientId: RawOption = [OPTION.clientId, Uint8Array.fromHex(settings.clientId)];
  return {
    type,
    xid,
    chaddr: mac,
    secs: ciaddr ? 0 : Math.floor((context.now() - acquiringSince) / 1000),
    broadcast: ciaddr === undefined && (broadcast || context.broadcast),
    ...ciaddr && { ciaddr },
    options: new Map([...options, clientId]),
  };
}

function handleReply(
  lease: Lease,
  context: LeaseContext,
  { type, options }: DhcpReply,
  terms: LeaseTerms | undefined,
): void {
  const { state } = lease;
  const serverId = findOption(options, "serverId");
  if (state === "selecting" && type === "ack" && isOfLastRequest(lease, terms)) {
    lease.state = "requesting";
    return handleAck(lease, context, terms!);
  }
  // Only in these states, any server may answer.
  if (state !== "selecting" && state !== "rebinding" && serverId !== lease.terms!.serverId) return;
  if (state === "selecting" && type === "offer" && terms) return acceptOffer(lease, context, terms);
  if (state === "selecting") return;
  if (type === "nak") return handleNak(lease, context, findOption(options, "message"));
  if (type === "ack" && terms) return handleAck(lease, context, terms);
}

/** It came after the last try, and the server counts the address as ours. */
const isOfLastRequest = ({ isGranted, terms: requested }: Lease, terms: LeaseTerms | undefined): boolean =>
  isGranted && terms?.serverId === requested!.serverId && terms.address === requested!.address;

function acceptOffer(lease: Lease, context: LeaseContext, terms: LeaseTerms): void {
  lease.terms = terms;
  lease.state = "requesting";
  lease.sends = 0;
  lease.requestedAt = context.now();
  lease.isGranted = true;
  saveLease(lease, context, "requesting");
  request(lease, context);
}

function handleNak(lease: Lease, context: LeaseContext, message = "without a reason"): void {
  const { address, serverId } = lease.terms!;
  context.log(`${describeLease(lease)}: server ${serverId} refuses ${address}: ${JSON.stringify(message)}`);
  if (lease.state !== "requesting") return withdraw(lease, context, "is refused by the server");
  lease.terms = undefined;
  lease.isGranted = false;
  // Others that were offered the same address do not ask again at the same time.
  pause(lease, context.now() + Math.random() * RESEND_MS);
}

function handleAck(lease: Lease, context: LeaseContext, terms: LeaseTerms): void {
  if (terms.cidr === undefined) {
    const error = new CniError(Code.Internal, "DHCP option Subnet Mask not found in DHCPACK");
    if (lease.state === "requesting") return giveUp(lease, context, error);
    context.log(`${describeLease(lease)}: ${error.message}`);
    // More of them would fill the log.
    return closeExchange(lease);
  }
  if (lease.state === "requesting") {
    lease.terms = terms;
    return startProbing(lease, context);
  }
  const before = lease.terms!;
  lease.terms = terms;
  // The server counts from its answer, which came later.
  lease.requestedAt = lease.exchange!.openedAt;
  if (!isSameConfiguration(before, terms)) replaceConfiguration(lease, context, before);
  bind(lease, context);
}

/** Asks whether another host has the address (RFC 5227). */
function startProbing(lease: Lease, context: LeaseContext): void {
  const { index, mac } = lease.device!;
  using opened = openDevice(context.host, lease.settings, context.hostPrefix, index);
  const arp = opened.netns.run<ArpSocket>(() => openArpSocket(index, mac));
  lease.exchange = { ...lease.exchange!, arp };
  lease.state = "probing";
  lease.sends = 0;
  continueProbing(lease, context);
}

function continueProbing(lease: Lease, context: LeaseContext): void {
  if (lease.sends === PROBE_COUNT) return bind(lease, context);
  lease.exchange!.arp!.sendProbe([lease.terms!.address]);
  lease.sends++;
  lease.nextSendAt = context.now() + PROBE_WAIT_MS;
  lease.wakeAt = lease.nextSendAt;
}

function readProbes(lease: Lease, context: LeaseContext): void {
  const { exchange, terms } = lease;
  // Replies that come late are of no use, but keep the descriptor readable.
  for (let frames = 0; frames < MAX_FRAMES_PER_TURN; frames++) {
    if (!ignoreErrors(["ENETDOWN"], () => exchange!.socket.receive())) break;
  }
  const claim = exchange!.arp!.receiveClaim([terms!.address]);
  if (!claim) return;
  context.log(`${describeLease(lease)}: ${terms!.address} is in use by ${claim.mac}, so it is declined`);
  const decline = messageOf(lease, context, "decline", exchange!.xid, [
    [OPTION.requestedAddress, ipBytes(terms!.address)],
    [OPTION.serverId, ipBytes(terms!.serverId)],
  ]);
  exchange!.socket.send(frameOf(decline));
  lease.isGranted = false;
  saveLease(lease, context, "selecting");
  lease.terms = undefined;
  pause(lease, context.now() + DECLINE_PAUSE_MS * 2 ** Math.min(lease.declines++, 6));
}

function pause(lease: Lease, until: number): void {
  closeExchange(lease);
  lease.state = "pausing";
  lease.wakeAt = until;
}

function bind(lease: Lease, context: LeaseContext): void {
  closeExchange(lease);
  const wasBound = lease.state === "renewing" || lease.state === "rebinding";
  lease.state = "bound";
  lease.declines = 0;
  if (lease.isWithdrawn) {
    using opened = openDevice(context.host, lease.settings, context.hostPrefix, lease.device!.index);
    applyTerms(opened, lease.settings, lease.terms!);
    lease.isWithdrawn = false;
  }
  saveLease(lease, context, "bound");
  const { renew } = deadlines(lease);
  lease.wakeAt = renew;
  const { address, serverId, duration } = lease.terms!;
  const until = duration ? `for ${Math.round(duration.expiryMs / 1000)} s` : "without end";
  context.log(`${describeLease(lease)}: ${address} is ${wasBound ? "renewed" : "leased"} ${until} by ${serverId}`);
  context.settle(lease);
}

function withdraw(lease: Lease, context: LeaseContext, why: string): void {
  closeExchange(lease);
  {
    using opened = openDevice(context.host, lease.settings, context.hostPrefix, lease.device!.index);
    withdrawAddress(opened, lease.terms!);
  }
  context.log(`${describeLease(lease)}: ${lease.terms!.address} ${why}, and is taken away from the interface`);
  lease.isWithdrawn = true;
  lease.isGranted = false;
  lease.acquiringSince = context.now();
  saveLease(lease, context, "selecting");
  startSelecting(lease, context);
}

const isSameConfiguration = (before: LeaseTerms, after: LeaseTerms): boolean =>
  [before, after].map(({ cidr, routes, mtu }) => JSON.stringify([cidr, routes, mtu])).every((text, _, all) =>
    text === all[0]
  );

function replaceConfiguration(lease: Lease, context: LeaseContext, before: LeaseTerms): void {
  using opened = openDevice(context.host, lease.settings, context.hostPrefix, lease.device!.index);
  if (before.cidr !== lease.terms!.cidr) withdrawAddress(opened, before);
  applyTerms(opened, lease.settings, lease.terms!);
  context.log(
    `${describeLease(lease)}: the interface has ${lease.terms!.cidr} instead of ${before.cidr}, and new routes`,
  );
}
