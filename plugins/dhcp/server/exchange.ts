/** Sockets and frames of a lease. @module */
import type { Ip } from "../../../ffi/address.ts";
import type { ArpSocket } from "../../../ffi/packet/arp.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { ensureNsid } from "../../../ffi/route/nsid.ts";
import { openPacketSocket, type PacketSocket } from "../../../ffi/packet/packet_socket.ts";
import { BROADCAST_MAC, encodeUdpFrame } from "../../../ffi/packet/udp_frame.ts";
import type { LeaseSettings } from "../protocol.ts";
import { type LeaseDevice, openDevice } from "./device.ts";
import { CLIENT_PORT, type DhcpRequest, encodeRequest, SERVER_PORT, XID_OFFSET } from "./message.ts";
import { UNSPECIFIED } from "./options.ts";
import type { LeaseTerms } from "./terms.ts";

/** Messages that share a transaction id, and the sockets for their answers. */
export interface Exchange {
  /** Receives answers with that id only. */
  readonly socket: PacketSocket;
  readonly arp?: ArpSocket;
  readonly xid: number;
}

export const newXid = (): number => crypto.getRandomValues(new Uint32Array(1))[0]!;

/** @param index of the link, if it was found before @throws {DeviceGoneError} */
export function openExchange(
  host: Netns,
  settings: LeaseSettings,
  hostPrefix: string,
  index: number | undefined,
): { readonly exchange: Exchange; readonly device: LeaseDevice } {
  using opened = openDevice(host, settings, hostPrefix, index);
  const { netns, device } = opened;
  // Links of other kinds than veth do not number the namespace.
  if (index === undefined) ensureNsid(host.route, netns.fd);
  const xid = newXid();
  const filter = { destinationPort: CLIENT_PORT, word: { offset: XID_OFFSET, value: xid } };
  const socket = netns.run<PacketSocket>(() => openPacketSocket(device.index, filter));
  return { exchange: { socket, xid }, device };
}

const BROADCAST_IP = "255.255.255.255" as Ip;

/** @param server that gets it alone; default: all */
export function frameOf(message: DhcpRequest, server?: Pick<LeaseTerms, "serverMac" | "serverId">): Uint8Array {
  return encodeUdpFrame({
    source: { mac: message.chaddr, ip: message.ciaddr ?? UNSPECIFIED, port: CLIENT_PORT },
    destination: { mac: server?.serverMac ?? BROADCAST_MAC, ip: server?.serverId ?? BROADCAST_IP, port: SERVER_PORT },
    payload: encodeRequest(message),
  });
}

/** Sends through the container's link, or the host's way to its network. False if there is neither. */
export function sendRelease(
  host: Netns,
  settings: LeaseSettings,
  hostPrefix: string,
  device: LeaseDevice,
  frame: Uint8Array,
): boolean {
  return succeeds(() => {
    using opened = openDevice(host, settings, hostPrefix, device.index);
    using socket = opened.netns.run<PacketSocket>(() => openPacketSocket(device.index));
    return socket.send(frame);
  }) || succeeds(() => sendFromHost(host, device, frame));
}

function sendFromHost(host: Netns, { uplink }: LeaseDevice, frame: Uint8Array): boolean {
  if (!uplink || (uplink.hostCookie !== undefined && uplink.hostCookie !== host.cookie)) return false;
  using socket = host.run<PacketSocket>(() => openPacketSocket(uplink.index));
  return socket.send(frame);
}

/** The lease ends in any case. */
function succeeds(action: () => boolean): boolean {
  try {
    return action();
  } catch {
    return false;
  }
}
