/**
 * Host ports that would be taken from another container without being the same: one that is published on a single address goes before
 * one of all addresses.
 *
 * The kernel refuses a second element of the same key; these have different keys in different maps. For a port on one address, the
 * map of all addresses is asked for that port. For one on all addresses, the other map cannot be asked, since its keys begin with the
 * address: it is listed. It is empty on most hosts; what it costs grows with the ports published on single addresses, never with the
 * others.
 *
 * @module
 */
import { type Cidr, familyOf, ipFromBytes } from "../../ffi/address.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { ask, elementQuestion } from "../../ffi/nft/queries.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { describeOwner, type Owner, parseOwner } from "../lib/protocol/owner.ts";
import { ruleset } from "../lib/ruleset/inet_table.ts";
import { CniError } from "../../spec/error.ts";
import { describeHostPort, type PortMapping, publishedOn } from "./config.ts";
import { mappingsFor, portKeyOf } from "./elements.ts";

/** The host port belongs to another container, or to a program of the host (codes from 100 up are the plugin's own, SPEC §Error). */
export const HOST_PORT_TAKEN = 100;

/** The error for a host port that another attachment has; `has` says what it has. */
export function takenError(title: string, holder: Owner | undefined, has = "it", cause?: unknown): CniError {
  const who = holder ? describeOwner(holder) : "somebody else";
  return new CniError(HOST_PORT_TAKEN, `Cannot publish ${title}: ${who} has ${has}`, { cause });
}

/** @throws {CniError} code 100 naming the other container, if one of the mappings shares packets with a port of another */
export function refuseOverlaps(
  nl: Netlink,
  owner: Owner,
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
): void {
  for (const address of addresses) {
    const family = familyOf(address);
    const concerned = mappingsFor(mappings, address);
    const everywhere = concerned.filter((each) => publishedOn(each) === undefined);
    refuseOnOne(nl, owner, concerned.filter((each) => publishedOn(each) !== undefined), family);
    if (everywhere.length > 0) refuseOnAll(nl, owner, everywhere, family);
  }
}

function refuseOnOne(nl: Netlink, owner: Owner, mappings: readonly PortMapping[], family: 4 | 6): void {
  const found = ask(nl, mappings.map((each) => elementQuestion(ruleset, `hostports${family}`, portKeyOf(each))));
  for (const [i, mapping] of mappings.entries()) {
    const holder = parseOwner(found[i]?.comment ?? "");
    if (!found[i] || holder?.containerId === owner.containerId) continue;
    throw takenError(describeHostPort(mapping), holder, "that port on all addresses");
  }
}

function refuseOnAll(nl: Netlink, owner: Owner, mappings: readonly PortMapping[], family: 4 | 6): void {
  const addressSize = family === 4 ? 4 : 16;
  const wanted = new Map(mappings.map((each) => [nft.hex(portKeyOf(each)), each]));
  for (const { key, comment } of nft.listElements(nl, ruleset, `hostip_hostports${family}`)) {
    const mapping = wanted.get(nft.hex(key.subarray(addressSize)));
    const holder = parseOwner(comment ?? "");
    if (!mapping || holder?.containerId === owner.containerId) continue;
    const held = describeHostPort({ ...mapping, hostIP: ipFromBytes(key.subarray(0, addressSize)) });
    throw takenError(describeHostPort(mapping), holder, held);
  }
}
