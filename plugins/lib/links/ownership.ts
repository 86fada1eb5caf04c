/**
 * Whose the container's interface is. By the time of a DEL, the path of a namespace may lead to that of another container, which must not
 * be touched; only who made the interface, or what the ADD said of it, tells.
 *
 * @module
 */
import { ipOf } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { type Owner, parseAlias, sameOwner } from "../protocol/owner.ts";
import type { AttachmentCall } from "../protocol/plugin.ts";

/** What tells whose an interface is. */
export type OwnershipEvidence = Pick<AttachmentCall<unknown>, "host" | "ifname" | "owner" | "prevResult">;

/**
 * Whether the interface CNI_IFNAME of a namespace is another attachment's than the one that is to be removed.
 *
 * Who made it says so in its alias, and of a veth pair in that of the host veth, which the container cannot change. Where there is none, as
 * of what the reference plugins made, it is another's if it has neither the hardware address nor any address that the result tells of: the
 * container may have changed the first, and `tuning` has put it back by now.
 *
 * @returns false also if nothing tells
 */
export function ownedByOther(call: OwnershipEvidence, netns: Netns, containerLink: link.Link): boolean {
  const owner = findOwner(call, containerLink);
  return owner ? !sameOwner(owner, call.owner) : differsFromPrevResult(call, netns, containerLink);
}

/**
 * Whether the interface is another container's, for plugins that did not make it and work on what is around it: asks nobody where the result
 * tells its hardware address, or none.
 */
export function ownedByOtherContainer(
  call: OwnershipEvidence,
  netns: Netns,
  containerLink: link.Link | undefined,
): boolean {
  if (!containerLink || hasReportedMac(call, containerLink)) return false;
  const owner = findOwner(call, containerLink);
  // Its interface may have come with another network.
  return owner ? owner.containerId !== call.owner.containerId : differsFromPrevResult(call, netns, containerLink);
}

function findOwner({ host }: OwnershipEvidence, { info, linkIndex, index, alias }: link.Link): Owner | undefined {
  const hostVeth = info?.kind === "veth" && linkIndex !== undefined ? link.find(host.route, linkIndex) : undefined;
  return parseAlias(hostVeth?.linkIndex === index ? hostVeth.alias : alias);
}

function differsFromPrevResult(call: OwnershipEvidence, netns: Netns, { index, mac }: link.Link): boolean {
  if (hasReportedMac(call, { mac })) return false;
  const reportedAddresses = new Set(call.prevResult?.ips?.map((element) => ipOf(element.address)));
  return reportedAddresses.size === 0 ||
    !address.list(netns.route, { index }).some((element) => reportedAddresses.has(ipOf(element.address)));
}

/** True also if the result tells none. */
function hasReportedMac({ prevResult, ifname }: OwnershipEvidence, { mac }: Pick<link.Link, "mac">): boolean {
  const reportedMac = prevResult?.interfaces?.find(({ name, sandbox }) => name === ifname && sandbox)?.mac
    ?.toLowerCase();
  return reportedMac === undefined || reportedMac === mac;
}
