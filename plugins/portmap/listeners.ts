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
 *
 * @module
 */
import { type Cidr, familyOf, type Ip } from "../../ffi/address.ts";
import { type Listener, listListeners } from "../../ffi/diag/listeners.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { CniError } from "../../spec/error.ts";
import type { AttachmentCall } from "../lib/protocol/plugin.ts";
import { describeHostPort, familiesOf, hostAddressOf, type PortMapping, type Protocol, PROTOCOLS } from "./config.ts";
import { mappingsForFamily } from "./elements.ts";
import type { SocketOwner } from "./socket_owners.ts";
import { HOST_PORT_TAKEN } from "./port_conflicts.ts";

/** For whom ports are to be published, and by whom. */
export type PublishingCall = Pick<AttachmentCall<unknown>, "containerId" | "findCallerPid">;

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
    const conflicts = findListenerConflicts(nl, protocol, mappings, addresses);
    if (conflicts.length > 0) throwUnlessReserved(conflicts, call);
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

function throwUnlessReserved(conflicts: readonly ListenerConflict[], call: PublishingCall): void {
  const { describeSocketOwners, findSocketOwners } = loadSocketOwners();
  // Once for all of them: every descriptor of every program is looked at, and an engine may keep hundreds of ports for a container.
  const ownersByInode = findSocketOwners(conflicts.map(({ listener }) => listener.inode));
  for (const { mapping, listener } of conflicts) {
    const owners = ownersByInode.get(listener.inode) ?? [];
    if (owners.some((owner) => reservesPortFor(owner, call))) continue;
    const { address, port } = listener;
    throw new CniError(
      HOST_PORT_TAKEN,
      `Cannot publish ${describeHostPort(mapping)}: ${describeSocketOwners(owners, listener.uid)} listens on ${
        address.includes(":") ? `[${address}]` : address
      }:${port}`,
      {
        details: `with "hostPortInUse": "ignore" or "warn" it is published anyway, and connections go to the container`,
      },
    );
  }
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
