/**
 * Conflicts between ports on one address and ports on all addresses. The first would take packets of the second.
 *
 * The kernel refuses only equal keys, and these are in different maps. For a port on one address, one lookup in the other map suffices. For
 * a port on all addresses, the other map is listed, since its keys begin with the address. Few hosts publish many ports on single addresses.
 */
import { type Cidr, familyOf } from "../../ffi/address.ts";
import * as nft from "../../ffi/nft/objects.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { FoundElement } from "../lib/ruleset/element_lookup.ts";
import { describeOwner, type Owner, ownerDetachHint, parseNote, parseOwner } from "../lib/model/owner.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { CniError } from "../../spec/error.ts";
import { describeHostPort, hostAddressOf, type PortMapping, PROTOCOLS } from "../../spec/port_mapping.ts";
import { mappingsForFamily } from "./elements.ts";
import { parsePortElement, portKey } from "../lib/ruleset/port_elements.ts";

/** Another container or a host program has the port. Plugin-specific codes begin at 100 (SPEC §Error). */
export const HOST_PORT_TAKEN = 100;

type Occupant = Pick<FoundElement, "owner" | "note">;

export class HostPortTakenError extends CniError {
  readonly occupant: Occupant;

  constructor(title: string, occupant: Occupant, occupied = "it", cause?: unknown) {
    const { owner } = occupant;
    const who = owner ? describeOwner(owner) : "another program";
    super(HOST_PORT_TAKEN, `Cannot publish ${title}: ${who} has ${occupied}`, {
      ...owner && { details: ownerDetachHint(owner) },
      cause,
    });
    this.occupant = occupant;
  }
}

const occupantOf = ({ comment = "" }: nft.Element): Occupant => ({
  owner: parseOwner(comment),
  note: parseNote(comment),
});

/** @throws {CniError} code 100 naming the other container */
export function refusePortConflicts(
  nl: Netlink,
  owner: Owner,
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
): void {
  for (const address of addresses) {
    const family = familyOf(address);
    const relevant = mappingsForFamily(mappings, address);
    const onAllAddresses = relevant.filter((candidate) => hostAddressOf(candidate) === undefined);
    refuseSingleAddressConflicts(
      nl,
      owner,
      relevant.filter((candidate) => hostAddressOf(candidate) !== undefined),
      family,
    );
    if (onAllAddresses.length > 0) refuseAllAddressConflicts(nl, owner, onAllAddresses, family);
  }
}

function refuseSingleAddressConflicts(
  nl: Netlink,
  owner: Owner,
  mappings: readonly PortMapping[],
  family: 4 | 6,
): void {
  const elements = nft.getAll(
    nl,
    mappings.map((candidate) => nft.elementQuery(inetTable, `hostports${family}`, portKey(candidate))),
  );
  for (const [i, mapping] of mappings.entries()) {
    const element = elements[i];
    const occupant = element && occupantOf(element);
    if (!occupant || occupant.owner?.containerId === owner.containerId) continue;
    throw new HostPortTakenError(describeHostPort(mapping), occupant, "that port on all addresses");
  }
}

function refuseAllAddressConflicts(nl: Netlink, owner: Owner, mappings: readonly PortMapping[], family: 4 | 6): void {
  const set = `hostip_hostports${family}`;
  for (const element of nft.listElements(nl, inetTable, set)) {
    const taken = parsePortElement({ ...element, set });
    const mapping = mappings.find(({ protocol, hostPort }) =>
      PROTOCOLS[protocol] === taken?.protocol && hostPort === taken.hostPort
    );
    const occupant = occupantOf(element);
    if (!mapping || !taken?.hostAddress || occupant.owner?.containerId === owner.containerId) continue;
    const occupied = describeHostPort({ ...mapping, hostIP: taken.hostAddress });
    throw new HostPortTakenError(describeHostPort(mapping), occupant, occupied);
  }
}
