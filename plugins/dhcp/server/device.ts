/** The container's link that a lease is for, and the way to its network from the host. @module */
import type { Mac } from "../../../ffi/address.ts";
import { ARPHRD_ETHER } from "../../../ffi/packet/arp.ts";
import { type Netns, NetnsError, openNetns } from "../../../ffi/netns/netns.ts";
import { matchesNetnsRecord } from "../../../ffi/netns/record.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { findNsid } from "../../../ffi/route/nsid.ts";
import * as route from "../../../ffi/route/route.ts";
import { executeAll } from "../../../ffi/netlink/socket.ts";
import { ignoreErrors, SystemError } from "../../../ffi/sys/error.ts";
import type { LeaseSettings } from "../protocol.ts";
import type { LeaseTerms } from "./terms.ts";
import { routesWithMetrics } from "./answer.ts";

export interface LeaseDevice {
  readonly index: number;
  readonly mac: Mac;
  /** Unicast answers do not reach it before it has its address. */
  readonly broadcast: boolean;
  readonly uplink?: DeviceUplink | undefined;
}

export interface DeviceUplink {
  readonly index: number;
  readonly hostCookie?: string | undefined;
}

/** The container, its link or its namespace is gone, or another stands in its place. */
export class DeviceGoneError extends Error {
  override readonly name = "DeviceGoneError";
}

interface OpenDevice extends Disposable {
  readonly netns: Netns;
  readonly device: LeaseDevice;
}

/**
 * Opens the namespace for a moment: an open handle would keep it alive.
 *
 * @param hostPrefix where the host's file system is mounted
 * @param index of the link, if it was found before: the container may have renamed it
 * @throws {DeviceGoneError}
 */
export function openDevice(host: Netns, settings: LeaseSettings, hostPrefix: string, index?: number): OpenDevice {
  const { ifname, netns: path, netnsRecord } = settings;
  const netns = openContainer(`${hostPrefix}${path}`, host);
  try {
    if (!matchesNetnsRecord(netns, netnsRecord)) throw new DeviceGoneError(`"${path}" is another namespace`);
    const found = link.find(netns.route, index ?? ifname);
    if (!found) throw new DeviceGoneError(`"${path}" has no interface "${ifname}"`);
    if (found.type !== ARPHRD_ETHER || found.mac === undefined) {
      throw new RangeError(`Cannot lease an address for "${ifname}": it is no Ethernet interface`);
    }
    const uplink = findUplink(host, netns, found);
    return {
      netns,
      // The links of one ipvlan share an address: the kernel takes unicast answers for its lower device's.
      device: { index: found.index, mac: found.mac, broadcast: found.info?.kind === "ipvlan", ...uplink && { uplink } },
      [Symbol.dispose]: () => netns[Symbol.dispose](),
    };
  } catch (error) {
    netns[Symbol.dispose]();
    throw error;
  }
}

function openContainer(path: string, host: Netns): Netns {
  try {
    return openNetns(path, host);
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    // Others than these tell nothing of the container: EMFILE.
    const isGone = error.absent || !(error.cause instanceof SystemError && error.cause.code !== "ESRCH");
    throw isGone ? new DeviceGoneError(error.message) : error;
  }
}

/** The bridge behind a veth pair, or a lower device; `undefined` if the host has neither. */
function findUplink(host: Netns, netns: Netns, { linkIndex, linkNetnsId, info }: link.Link): DeviceUplink | undefined {
  if (linkIndex === undefined || linkNetnsId === undefined || findNsid(netns.route, host.fd) !== linkNetnsId) {
    return undefined;
  }
  const below = link.find(host.route, linkIndex);
  // The lower device of a host that is a container itself may be a veth, too.
  const index = info?.kind === "veth" ? below?.master : below?.index;
  return index === undefined ? undefined : { index, ...host.cookie !== undefined && { hostCookie: host.cookie } };
}

/** Takes a lease's address away from the interface, and with its last address all routes. */
export function withdrawAddress({ netns, device }: OpenDevice, { cidr }: LeaseTerms): void {
  if (cidr) ignoreErrors(["EADDRNOTAVAIL", "ENODEV"], () => address.remove(netns.route, device.index, cidr));
}

export function applyTerms({ netns, device: { index } }: OpenDevice, settings: LeaseSettings, terms: LeaseTerms): void {
  const { cidr } = terms;
  if (!cidr) return;
  link.setUp(netns.route, index);
  ignoreErrors(["EEXIST"], () => executeAll(netns.route, [address.addRequest(index, cidr)]));
  const routes = routesWithMetrics(terms, settings.priority);
  executeAll(netns.route, routes.map(({ gw, ...rest }) => route.replaceRequest({ ...rest, gateway: gw, oif: index })));
}
