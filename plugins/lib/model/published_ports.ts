import type { Cidr } from "../../../ffi/address.ts";
import type { Listener } from "../../../ffi/diag/listeners.ts";
import type { SocketOwner } from "../../../ffi/diag/socket_owners.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type { PortMapping } from "../../../spec/port_mapping.ts";
import type { Owner } from "./owner.ts";

/** The host's ports that lead to one container. */
export interface PublishedPorts {
  /** The runtime asked for these. */
  readonly mappings: readonly PortMapping[];
  /** The container's addresses to which they lead: at most one of a family. */
  readonly targets: readonly Cidr[];
  /** Whether callers get another source where answers would not return: neighbours, the container, 127.0.0.0/8. */
  readonly masqueradesCallers: boolean;
  hasConditions(family: 4 | 6): boolean;
  /** @throws {CniError} if the ruleset lacks something; what depends on routes is left out */
  checkRules(host: Netns, owner: Owner): void;
  /** Programs of the host that lose their calls to the container. */
  listRobbedListeners(host: Netns, containerId: string): readonly RobbedListener[];
}

/** A program of the host that listens on a published port. */
export interface RobbedListener {
  readonly mapping: PortMapping;
  readonly listener: Listener;
  /** The programs that have the socket, as far as they are visible. */
  readonly owners: readonly SocketOwner[];
}
