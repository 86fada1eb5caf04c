/**
 * Host programs that listen on ports to publish.
 *
 * A published port silently takes such a program's calls. So ADD refuses what bind(2) would refuse, unless the program
 * loses nothing or `hostPortInUse` allows it. A program that starts listening later is not noticed.
 *
 * Engines listen on published ports to reserve them. podman does it in conmon, whose command line has the container id.
 * Others do it in the process that calls this plugin. ADD accepts these listeners.
 */
import { broadcastOf, type Cidr, familyOf, type Ip, prefixLengthOf } from "../../ffi/address.ts";
import { type Listener, listListeners } from "../../ffi/diag/listeners.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { findSysctl } from "../../ffi/sys/sysctl.ts";
import * as address from "../../ffi/route/address.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { findKernelText } from "../../ffi/sys/file.ts";
import { AF_INET } from "../../ffi/sys/uapi.ts";
import { CniError } from "../../spec/error.ts";
import type { AttachmentCall } from "../lib/protocol/plugin.ts";
import {
  describeHostPort,
  familiesOf,
  hostAddressOf,
  type PortMapping,
  type Protocol,
  PROTOCOLS,
} from "../../spec/port_mapping.ts";
import { mappingsForFamily } from "./elements.ts";
import type { SocketOwner } from "../../ffi/diag/socket_owners.ts";
import { HOST_PORT_TAKEN } from "./port_conflicts.ts";

export type PublishingCall = Pick<AttachmentCall<unknown>, "containerId" | "findCallerPid" | "host" | "log">;

/** @throws {CniError} code 100 naming the program @throws {NetlinkError} if the kernel refuses the query */
export function refuseListeners(
  nl: Netlink,
  call: PublishingCall,
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
): void {
  // One by one: a protocol that the kernel refuses to list does not affect the others.
  for (const protocol of Object.keys(PROTOCOLS) as Protocol[]) {
    const find = () => findListenerConflicts(nl, protocol, mappings, addresses);
    const conflicts = find();
    if (conflicts.length > 0) throwUnlessReserved(conflicts, protocol, call, find);
  }
}

/** Programs that lose their calls to the container. @param addresses the container's */
export function listRobbedListeners(
  call: Pick<PublishingCall, "containerId" | "host">,
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
): OwnedConflict[] {
  return (Object.keys(PROTOCOLS) as Protocol[]).flatMap((protocol) => {
    const conflicts = ignoreErrors(
      ["ENOENT"],
      () => findListenerConflicts(call.host.diag, protocol, mappings, addresses),
    );
    return findRobbed(conflicts ?? [], protocol, { ...call, findCallerPid: undefined });
  });
}

interface ListenerConflict {
  readonly mapping: PortMapping;
  readonly listener: Listener;
}

interface OwnedConflict extends ListenerConflict {
  /** The programs that have the socket, as far as they are visible. */
  readonly owners: readonly SocketOwner[];
}

function findListenerConflicts(
  nl: Netlink,
  protocol: Protocol,
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
): ListenerConflict[] {
  const families = addresses.map(familyOf);
  const relevant = mappings.filter((candidate) =>
    candidate.protocol === protocol && addresses.some((address) => mappingsForFamily([candidate], address).length > 0)
  );
  if (relevant.length === 0) return [];
  const listeners = Map.groupBy(
    listListenersOn(nl, protocol, relevant.map(({ hostPort }) => hostPort)),
    ({ port }) => port,
  );
  return relevant.flatMap((mapping) =>
    (listeners.get(mapping.hostPort) ?? [])
      .filter((listener) => families.some((family) => conflictsWith(mapping, listener, family)))
      .map((listener) => ({ mapping, listener }))
  );
}

function listListenersOn(nl: Netlink, protocol: Protocol, ports: readonly number[]): Listener[] {
  const list = () => listListeners(nl, PROTOCOLS[protocol], Math.min(...ports), Math.max(...ports));
  // The kernel may lack SCTP, or the module that lists its sockets.
  return protocol === "sctp" ? ignoreErrors(["ENOENT"], list) ?? [] : list();
}

/** Whether packets of this family could be for both. */
function conflictsWith(mapping: PortMapping, { address, v6Only }: Listener, family: 4 | 6): boolean {
  if (!familiesOf(mapping).includes(family)) return false;
  const isSameFamily = familyOf(address) === family || (address === "::" && !v6Only);
  const hostAddress = hostAddressOf(mapping);
  return isSameFamily && (hostAddress === undefined || isUnspecified(address) || hostAddress === address);
}

const isUnspecified = (address: Ip): boolean => address === "0.0.0.0" || address === "::";

/** Leaves out listeners that lose nothing. */
function findRobbed(
  conflicts: readonly ListenerConflict[],
  protocol: Protocol,
  call: Omit<PublishingCall, "log">,
): OwnedConflict[] {
  if (conflicts.length === 0) return [];
  // For all conflicts at once: this reads every descriptor of every program.
  const ownersByInode = loadSocketOwners().findSocketOwners(conflicts.map(({ listener }) => listener.inode));
  const isBroadcast = broadcastFilter(call.host);
  return conflicts.map((conflict) => ({ ...conflict, owners: ownersByInode.get(conflict.listener.inode) ?? [] }))
    .filter(({ listener, owners }) =>
      !owners.some((owner) => reservesPortFor(owner, call)) && !isBroadcast(listener.address) &&
      !(protocol === "udp" && isDiscovery(call.host, listener))
    );
}

/** @param find looks for conflicts again */
function throwUnlessReserved(
  conflicts: readonly ListenerConflict[],
  protocol: Protocol,
  call: PublishingCall,
  find: () => readonly ListenerConflict[],
): void {
  const { describeSocketOwners } = loadSocketOwners();
  const isClientPort = protocol === "udp" ? ephemeralPortFilter(call.host) : () => false;
  let remainingInodes: Set<number> | undefined;
  for (const { mapping, listener, owners } of findRobbed(conflicts, protocol, call)) {
    remainingInodes ??= new Set(find().map((conflict) => conflict.listener.inode));
    if (!remainingInodes.has(listener.inode)) continue;
    const { address, port } = listener;
    const place = `${address.includes(":") ? `[${address}]` : address}:${port}`;
    const program = describeSocketOwners(owners, listener.uid);
    if (owners.length > 0 && isClientPort(port)) {
      call.log(
        `Publishing ${describeHostPort(mapping)} although ${program} has a socket on ${place}: ` +
          "if that is a server, its clients reach the container from now on",
      );
      continue;
    }
    throw new CniError(
      HOST_PORT_TAKEN,
      `Cannot publish ${describeHostPort(mapping)}: ${program} listens on ${place}`,
      {
        details: `with "hostPortInUse": "ignore" or "warn" it is published anyway, and connections go to the container`,
      },
    );
  }
}

/**
 * Matches the ports that the kernel assigns to UDP sockets. A client on such a port keeps its answers, since they belong to its own flows; a
 * server loses its callers. The two look the same. Reserved ports count as servers'.
 *
 * @see ip-sysctl: ip_local_port_range, ip_local_reserved_ports
 */
function ephemeralPortFilter(host: Netns): (port: number) => boolean {
  const [range = "", reserved = ""] = host.run(() =>
    ["ip_local_port_range", "ip_local_reserved_ports"].map((name) => findSysctl(`net/ipv4/${name}`))
  );
  const [first = Infinity, last = 0] = range.split(/\s+/).map(Number);
  const reservedRanges = reserved.split(",").filter(Boolean).map((part) => part.split("-").map(Number));
  const isReserved = (port: number) => reservedRanges.some(([from = 0, to = from]) => from <= port && port <= to);
  return (port) => first <= port && port <= last && !isReserved(port);
}

/** Published ports take no broadcasts. */
function broadcastFilter(host: Netns): (address: Ip) => boolean {
  const subnets = address.list(host.route, { family: AF_INET }).map((entry) => entry.address);
  const broadcasts = subnets.filter((subnet) => prefixLengthOf(subnet) < 31).map(broadcastOf);
  return (candidate) => candidate === "255.255.255.255" || broadcasts.includes(candidate);
}

/** Ports of mDNS, LLMNR, SSDP and WS-Discovery, and their multicast groups as in procfs. Published ports take no multicast. */
const DISCOVERY_GROUPS: Readonly<Record<number, readonly [ipv4: string, ipv6: string]>> = {
  5353: ["FB0000E0", "ff0200000000000000000000000000fb"],
  5355: ["FC0000E0", "ff020000000000000000000000010003"],
  1900: ["FAFFFFEF", "ff02000000000000000000000000000c"],
  3702: ["FAFFFFEF", "ff02000000000000000000000000000c"],
};

/** Whether the socket is on all addresses, and the host has joined the group. */
function isDiscovery(host: Netns, { address, port }: Listener): boolean {
  const groups = isUnspecified(address) ? DISCOVERY_GROUPS[port] : undefined;
  if (!groups) return false;
  const joined = ["igmp", "igmp6"].map((name) => host.run(() => findKernelText(`/proc/thread-self/net/${name}`) ?? ""));
  return groups.some((group, i) => joined[i]!.includes(group));
}

/** Engines' ids have 64 digits; a short id may occur in any command line. */
const MIN_ID_LENGTH = 32;

function reservesPortFor(
  { pid, cmdline }: SocketOwner,
  { containerId, findCallerPid }: Pick<PublishingCall, "containerId" | "findCallerPid">,
): boolean {
  // The first process listens for all kinds of services, and may also call this plugin.
  if (pid !== 1 && pid === findCallerPid?.()) return true;
  return containerId.length >= MIN_ID_LENGTH && cmdline.includes(containerId);
}

/** Rarely needed: not loaded at start-up. */
function loadSocketOwners(): typeof import("../../ffi/diag/socket_owners.ts") {
  return require("../../ffi/diag/socket_owners.ts");
}
