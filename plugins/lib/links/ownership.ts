/**
 * Tells whose the container's interface is. By the time of a DEL, the path of a namespace may lead to another container's.
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
 * True if the interface CNI_IFNAME of a namespace belongs to another attachment than the call's.
 *
 * Its alias names the owner; of a veth pair that of the host veth, which the container cannot change. The reference plugins
 * write none. Then it is another's if it has neither the MAC address nor any address of the result: the container or
 * `tuning` may have changed the first.
 *
 * @returns false also if nothing tells
 */
export function ownedByOther(call: OwnershipEvidence, netns: Netns, containerLink: link.Link): boolean {
  const owner = findOwner(call, containerLink);
  return owner ? !sameOwner(owner, call.owner) : differsFromPrevResult(call, netns, containerLink);
}

/** The same for plugins that did not make the interface: another network of the container may have. A reported MAC address is proof. */
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
