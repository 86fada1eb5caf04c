/**
 * Host ports that a program of the host listens on.
 *
 * A published port goes before every program: calls to the program end in the container, and neither is told. What bind(2) would refuse
 * another program is refused here as well, as an engine does that listens on the ports it publishes; `hostPortInUse` says otherwise.
 *
 * Some listeners are expected: engines listen on the ports that a container publishes, so that no other program takes them. podman has
 * conmon do it, the supervisor of the container, also while networks are connected and reloaded; it was told the container's id. Others do
 * it themselves before they call. Were these refused, such an engine could publish nothing.
 *
 * What begins to listen later is not noticed: the kernel knows nothing of published ports.
 */
import { broadcastOf, type Cidr, familyOf, type Ip, prefixLengthOf } from "../../ffi/address.ts";
import { type Listener, listListeners } from "../../ffi/diag/listeners.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { Netns } from "../../ffi/netns.ts";
import { findSysctl } from "../../ffi/sysctl.ts";
import * as address from "../../ffi/route/address.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { findText } from "../../ffi/sys/file.ts";
import { AF_INET } from "../../ffi/sys/uapi.ts";
import { CniError } from "../../spec/error.ts";
import type { AttachmentCall } from "../lib/protocol/plugin.ts";
import { describeHostPort, familiesOf, hostAddressOf, type PortMapping, type Protocol, PROTOCOLS } from "./config.ts";
import { mappingsForFamily } from "./elements.ts";
import type { SocketOwner } from "./socket_owners.ts";
import { HOST_PORT_TAKEN } from "./port_conflicts.ts";

/** For whom ports are to be published, and by whom. */
export type PublishingCall = Pick<AttachmentCall<unknown>, "containerId" | "findCallerPid" | "host" | "log">;

/**
 * Looks whether programs listen where ports are to be published on these addresses of a container.
 *
 * @throws {CniError} code 100 naming the program
 * @throws {NetlinkError} if the kernel does not tell
 */
export function refuseListeners(
  nl: Netlink,
  call: PublishingCall,
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
): void {
  // One after the other: what the kernel does not tell of one protocol must not hide what it tells of another.
  for (const protocol of Object.keys(PROTOCOLS) as Protocol[]) {
    const find = () => findListenerConflicts(nl, protocol, mappings, addresses);
    const conflicts = find();
    if (conflicts.length > 0) throwUnlessReserved(conflicts, protocol, call, find);
  }
}

/** A mapping, and a socket that packets for it could be meant for. */
interface ListenerConflict {
  readonly mapping: PortMapping;
  readonly listener: Listener;
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
  // Nobody listens with a protocol that the kernel does not know; and where it does, SCTP is told about by a module that few have.
  return protocol === "sctp" ? ignoreErrors(["ENOENT"], list) ?? [] : list();
}

/** True if a packet of this family to that port could be meant for both. */
function conflictsWith(mapping: PortMapping, { address, v6Only }: Listener, family: 4 | 6): boolean {
  if (!familiesOf(mapping).includes(family)) return false;
  const isSameFamily = familyOf(address) === family || (address === "::" && !v6Only);
  const hostAddress = hostAddressOf(mapping);
  return isSameFamily && (hostAddress === undefined || isUnspecified(address) || hostAddress === address);
}

const isUnspecified = (address: Ip): boolean => address === "0.0.0.0" || address === "::";

/** @param find looks for conflicts once more */
function throwUnlessReserved(
  conflicts: readonly ListenerConflict[],
  protocol: Protocol,
  call: PublishingCall,
  find: () => readonly ListenerConflict[],
): void {
  const { describeSocketOwners, findSocketOwners } = loadSocketOwners();
  // Once for all of them: every descriptor of every program is looked at, and an engine may keep hundreds of ports for a container.
  const ownersByInode = findSocketOwners(conflicts.map(({ listener }) => listener.inode));
  const isClientPort = protocol === "udp" ? ephemeralPortFilter(call.host) : () => false;
  const isBroadcast = broadcastFilter(call.host);
  let remainingInodes: Set<number> | undefined;
  for (const { mapping, listener } of conflicts) {
    const owners = ownersByInode.get(listener.inode) ?? [];
    if (owners.some((owner) => reservesPortFor(owner, call))) continue;
    if (isBroadcast(listener.address) || protocol === "udp" && isDiscovery(call.host, listener)) continue;
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
 * Tells the ports that the kernel gives to UDP sockets which ask for any. A program has one of them for what it asks others: their
 * answers belong to flows that it began, and no published port takes those. Nothing tells such a program from a server that chose the
 * port itself, whose clients a published port takes: unless the administrator has reserved the port, ADD warns and publishes it.
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

/** Tells the addresses to which nobody sends to a published port: that of all hosts, and those of the host's subnets. */
function broadcastFilter(host: Netns): (address: Ip) => boolean {
  const subnets = address.list(host.route, { family: AF_INET }).map((entry) => entry.address);
  const broadcasts = subnets.filter((subnet) => prefixLengthOf(subnet) < 31).map(broadcastOf);
  return (candidate) => candidate === "255.255.255.255" || broadcasts.includes(candidate);
}

/**
 * Ports of protocols by which machines of a link find each other, and the groups that all of them listen to, as procfs writes them. What
 * they say is sent to the group, and no published port takes it: mDNS, LLMNR, SSDP, WS-Discovery.
 */
const DISCOVERY_GROUPS: Readonly<Record<number, readonly [ipv4: string, ipv6: string]>> = {
  5353: ["FB0000E0", "ff0200000000000000000000000000fb"],
  5355: ["FC0000E0", "ff020000000000000000000000010003"],
  1900: ["FAFFFFEF", "ff02000000000000000000000000000c"],
  3702: ["FAFFFFEF", "ff02000000000000000000000000000c"],
};

/** Whether a socket of all addresses is there for such a protocol: the host has joined the group. */
function isDiscovery(host: Netns, { address, port }: Listener): boolean {
  const groups = isUnspecified(address) ? DISCOVERY_GROUPS[port] : undefined;
  if (!groups) return false;
  const joined = ["igmp", "igmp6"].map((name) => host.run(() => findText(`/proc/thread-self/net/${name}`) ?? ""));
  return groups.some((group, i) => joined[i]!.includes(group));
}

/** Those of engines have 64 digits; a short one may stand in any command line. */
const MIN_ID_LENGTH = 32;

/** Whether a program listens for the container: it was started with its id, or calls this plugin. */
function reservesPortFor({ pid, cmdline }: SocketOwner, { containerId, findCallerPid }: PublishingCall): boolean {
  // The first process of a system listens for services of all kinds, and may start this one as well.
  if (pid !== 1 && pid === findCallerPid?.()) return true;
  return containerId.length >= MIN_ID_LENGTH && cmdline.includes(containerId);
}

/** Needed where somebody listens only: `require` runs it here and not at start-up. */
function loadSocketOwners(): typeof import("./socket_owners.ts") {
  return require("./socket_owners.ts");
}
