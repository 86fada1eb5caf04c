import { ipOf } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { type Owner, parseAlias, sameOwner } from "../model/owner.ts";
import type { AttachmentCall } from "../protocol/plugin.ts";

export type OwnershipEvidence = Pick<AttachmentCall<unknown>, "host" | "ifname" | "owner" | "prevResult">;

/**
 * Whether the interface belongs to another attachment: by a DEL, CNI_NETNS may lead to another container's namespace.
 *
 * Its alias names the owner; for a veth pair the host veth's alias, which the container cannot change. The reference
 * plugins write none. Then it is another's if neither its MAC address nor any address matches the result. The container
 * or `tuning` may have changed the MAC address.
 *
 * @returns false also if nothing tells
 */
export function ownedByOther(call: OwnershipEvidence, netns: Netns, containerLink: link.Link): boolean {
  const owner = findOwner(call, containerLink);
  return owner ? !sameOwner(owner, call.owner) : differsFromPrevResult(call, netns, containerLink);
}

/**
 * For plugins that did not create the interface: another network of the container may have. A reported MAC address is
 * proof.
 */
export function ownedByOtherContainer(
  call: OwnershipEvidence,
  netns: Netns,
  containerLink: link.Link | undefined,
): boolean {
  if (!containerLink || hasReportedMac(call, containerLink)) return false;
  const owner = findOwner(call, containerLink);
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

/** True also if the result has none. */
function hasReportedMac({ prevResult, ifname }: OwnershipEvidence, { mac }: Pick<link.Link, "mac">): boolean {
  const reportedMac = prevResult?.interfaces?.find(({ name, sandbox }) => name === ifname && sandbox)?.mac
    ?.toLowerCase();
  return reportedMac === undefined || reportedMac === mac;
}
