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
import { unless } from "../../ffi/sys/error.ts";
import { CniError } from "../../spec/error.ts";
import { describeHostPort, familiesOf, type PortMapping, type Protocol, PROTOCOLS, publishedOn } from "./config.ts";
import { mappingsFor } from "./elements.ts";
import type { Program } from "./socket_owners.ts";
import { HOST_PORT_TAKEN } from "./port_conflicts.ts";

/**
 * Looks whether programs listen where ports are to be published on these addresses of a container.
 *
 * @throws {CniError} code 100 naming the program
 * @throws {NetlinkError} if the kernel does not tell
 */
export function refuseListeners(
  nl: Netlink,
  containerId: string,
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
): void {
  // One after the other: what the kernel does not tell of one protocol must not hide what it tells of another.
  for (const protocol of Object.keys(PROTOCOLS) as Protocol[]) {
    const met = findMet(nl, protocol, mappings, addresses);
    if (met.length > 0) refuse(met, containerId);
  }
}

/** A mapping, and a socket that packets for it could be meant for. */
interface Met {
  readonly mapping: PortMapping;
  readonly listener: Listener;
}

function findMet(
  nl: Netlink,
  protocol: Protocol,
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
): Met[] {
  const families = addresses.map(familyOf);
  const wanted = mappings.filter((each) =>
    each.protocol === protocol && addresses.some((address) => mappingsFor([each], address).length > 0)
  );
  if (wanted.length === 0) return [];
  const listeners = Map.groupBy(
    listenersOn(nl, protocol, wanted.map(({ hostPort }) => hostPort)),
    ({ port }) => port,
  );
  return wanted.flatMap((mapping) =>
    (listeners.get(mapping.hostPort) ?? [])
      .filter((listener) => families.some((family) => meets(mapping, listener, family)))
      .map((listener) => ({ mapping, listener }))
  );
}

function listenersOn(nl: Netlink, protocol: Protocol, ports: readonly number[]): Listener[] {
  const list = () => listListeners(nl, PROTOCOLS[protocol], Math.min(...ports), Math.max(...ports));
  // Nobody listens with a protocol that the kernel does not know; and where it does, SCTP is told about by a module that few have.
  return protocol === "sctp" ? unless(["ENOENT"], list) ?? [] : list();
}

/** True if a packet of this family to that port could be meant for both. */
function meets(mapping: PortMapping, { address, onlyV6 }: Listener, family: 4 | 6): boolean {
  if (!familiesOf(mapping).includes(family)) return false;
  const isReached = familyOf(address) === family || (address === "::" && !onlyV6);
  const on = publishedOn(mapping);
  return isReached && (on === undefined || isUnspecified(address) || on === address);
}

const isUnspecified = (address: Ip): boolean => address === "0.0.0.0" || address === "::";

function refuse(met: readonly Met[], containerId: string): void {
  const { describeHolders, findHolders } = holders();
  // Once for all of them: every descriptor of every program is looked at, and an engine may keep hundreds of ports for a container.
  const found = findHolders(met.map(({ listener }) => listener.inode));
  for (const { mapping, listener } of met) {
    const programs = found.get(listener.inode) ?? [];
    if (programs.some((each) => keepsFor(each, containerId))) continue;
    const { address, port } = listener;
    throw new CniError(
      HOST_PORT_TAKEN,
      `Cannot publish ${describeHostPort(mapping)}: ${describeHolders(programs, listener.user)} listens on ${
        address.includes(":") ? `[${address}]` : address
      }:${port}`,
      {
        details: `with "hostPortInUse": "ignore" or "warn" it is published all the same, and calls go to the container`,
      },
    );
  }
}

/** Those of engines have 64 digits; a short one may stand in any command line. */
const SHORTEST_ID = 32;

/** Whether a program listens for the container: it was started with its id, or calls this plugin. */
function keepsFor({ pid, words }: Program, containerId: string): boolean {
  // The first process of a system listens for services of all kinds, and may start this one as well.
  if (pid === process.ppid && pid !== 1) return true;
  return containerId.length >= SHORTEST_ID && words.includes(containerId);
}

/** Needed where somebody listens only: `require` runs it here and not at start-up. */
function holders(): typeof import("./socket_owners.ts") {
  return require("./socket_owners.ts");
}
