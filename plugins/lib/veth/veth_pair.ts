/** The veth pair between a container and the host. The host veth's alias names the owner. @module */
import { checkFailedError, expectEqual } from "../protocol/check_failed.ts";
import { type Mac, macFromBytes } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import { veth } from "../../../ffi/route/link_kinds.ts";
import * as link from "../../../ffi/route/link.ts";
import { IFF_UP } from "../../../ffi/route/uapi.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { Interface, Result } from "../../../spec/result.ts";
import { ownedByOther } from "../links/ownership.ts";
import { interfaceExistsError, randomVethName, removeLinkIfPresent } from "../links/container_link.ts";
import { logRemoval, type Owner, ownerText, parseAlias, sameOwner, staleOwnerFilter } from "../model/owner.ts";
import type { AttachmentCall, CheckCall, DelBatch, DelCall, GcCall } from "../protocol/plugin.ts";

export interface VethPairOptions {
  readonly netns: Netns;
  readonly ifname: string;
  /** The MAC of the container's end; the kernel chooses the host's. */
  readonly mac?: Mac | undefined;
  /** Bytes, of both ends; 0: the kernel's default. */
  readonly mtu: number;
  /** Index of the host veth's bridge. */
  readonly master?: number;
}

/**
 * The kernel would make one of each kind per processor, and use one. To leave the others unused, it waits for RCU while
 * it holds the lock of all links.
 */
const QUEUES = { txQueues: 1, rxQueues: 1 };

/** @returns the name of the host veth, which is up */
export function createVethPair(host: Netns, { netns, ifname, mac, mtu, master }: VethPairOptions): string {
  const shared = { ...QUEUES, ...mtu ? { mtu } : {} };
  const peer = { name: ifname, netnsFd: netns.fd, ...shared, ...mac ? { mac } : {} };
  const hostVeth = { ...master === undefined ? {} : { master }, ...shared, flags: IFF_UP, change: IFF_UP };
  for (let attempt = 1;; attempt++) {
    const name = randomVethName();
    try {
      link.add(host.route, { name, ...hostVeth, info: veth({ peer }) });
      return name;
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
      if (error.code !== "EEXIST" || attempt === 10) throw error.withPurpose(`create "${ifname}" in "${netns.path}"`);
      if (link.find(netns.route, ifname)) throw interfaceExistsError(ifname, netns);
    }
  }
}

/** A random unicast address, locally administered. */
export function randomMac(): Mac {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = bytes[0]! & 0xfe | 0x02;
  return macFromBytes(bytes);
}

const isVeth = ({ info }: link.Link): boolean => info?.kind === "veth";

export function checkVethPair({ host, ifname }: CheckCall<unknown>, containerVeth: link.Link): link.Link {
  expectEqual(`kind of "${ifname}"`, containerVeth.info?.kind, "veth");
  const hostVeth = link.find(host.route, containerVeth.linkIndex ?? 0);
  if (hostVeth && isVeth(hostVeth) && hostVeth.linkIndex === containerVeth.index) return hostVeth;
  throw checkFailedError(`the other end of "${ifname}" is missing on the host`);
}

export function getHostVeth(call: AttachmentCall<unknown>): link.Link {
  const hostVeth = findReportedHostVeth(call) ?? listOwnedHostVeths(call)[0];
  if (hostVeth) return hostVeth;
  throw new CniError(Code.Internal, `Cannot find the other end of "${call.ifname}": it is missing on the host`);
}

export function removeVethPair(call: DelCall<unknown>): void {
  const { host, netns } = call;
  const hostVeth = findReportedHostVeth(call);
  if (hostVeth) return void removeLinkIfPresent(host, hostVeth.name!);
  if (removeContainerVeth(call, netns)) return;
  // It may have been renamed.
  for (const { name } of listOwnedHostVeths(call)) removeLinkIfPresent(host, name!);
}

export function removeVethPairs<C>(calls: DelBatch<C>): void {
  const foundCalls = new Set<DelBatch<C>[number]>();
  link.removeSelected(calls[0].host.route, (links) => {
    const byName = new Map(links.map((element) => [element.name, element]));
    const vethByOwner = new Map(
      links.filter(isVeth).flatMap((element) => {
        const owner = parseAlias(element.alias);
        return owner ? [[ownerText(owner), element]] : [];
      }),
    );
    return calls.flatMap((call) => {
      const hostVeth = findReportedHostVeth(call, (name) => byName.get(name)) ?? vethByOwner.get(ownerText(call.owner));
      if (hostVeth) foundCalls.add(call);
      return hostVeth ?? [];
    });
  });
  for (const call of calls) if (!foundCalls.has(call)) call.withNetns((netns) => removeContainerVeth(call, netns));
}

function removeContainerVeth(call: AttachmentCall<unknown>, netns: Netns | undefined): boolean {
  const containerVeth = netns && link.find(netns.route, call.ifname);
  if (!containerVeth || !isVeth(containerVeth)) return false;
  return !ownedByOther(call, netns, containerVeth) && removeLinkIfPresent(netns, call.ifname);
}

export function gcVethPairs({ host, pluginConfig, validAttachments, log }: GcCall<unknown>): void {
  const isStale = staleOwnerFilter(pluginConfig.name, validAttachments, logRemoval(log, "the veth pair"));
  link.removeSelected(host.route, (links) => links.filter((element) => isVethOf(element, isStale)));
}

/** The result lists the host veth right before the container's interface. */
export function reportedHostInterface({ interfaces = [] }: Result, ifname: string): Interface | undefined {
  const reported = interfaces[interfaces.findIndex(({ name, sandbox }) => name === ifname && sandbox) - 1];
  return reported?.sandbox ? undefined : reported;
}

function findReportedHostVeth(
  { host, ifname, owner, prevResult }: AttachmentCall<unknown>,
  find = (name: string) => link.find(host.route, name),
): link.Link | undefined {
  const reported = prevResult && reportedHostInterface(prevResult, ifname);
  const found = reported && find(reported.name);
  // Another container's veth may have the name by now.
  const isOwn = found && (isUnownedVeth(found, reported?.mac) || isVethOf(found, (other) => sameOwner(other, owner)));
  return isOwn ? found : undefined;
}

function listOwnedHostVeths({ host, owner }: AttachmentCall<unknown>): link.Link[] {
  return link.list(host.route).filter((element) => isVethOf(element, (other) => sameOwner(other, owner)));
}

/** The reference plugins write no owner. A VLAN gateway has none either, but its peer is on the host. */
function isUnownedVeth(element: link.Link, mac: string | undefined): boolean {
  return isVeth(element) && element.alias === undefined && element.linkNetnsId !== undefined && element.mac === mac;
}

function isVethOf(element: link.Link, isOwner: (owner: Owner) => boolean): boolean {
  const owner = isVeth(element) ? parseAlias(element.alias) : undefined;
  return owner !== undefined && isOwner(owner);
}
