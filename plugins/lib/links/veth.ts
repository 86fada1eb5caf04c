/**
 * The cable between a container and the host: two Ethernet ends, of which one is the container's interface and the other stands on the
 * host and says whose it is.
 *
 * @module
 */
import type { Mac } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import { veth } from "../../../ffi/route/link_kinds.ts";
import * as link from "../../../ffi/route/link.ts";
import { IFF_UP } from "../../../ffi/route/uapi.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { isAnothers } from "./ownership.ts";
import { expectEqual, removeIfPresent } from "./interface.ts";
import { deadOf } from "../ruleset/elements.ts";
import { interfaceExists } from "./container_link.ts";
import { type Owner, ownerText, parseAlias, sameOwner } from "../protocol/owner.ts";
import type { AttachmentCall, CheckCall, DelCall, GcCall, ManyCalls } from "../protocol/plugin.ts";

/** What the two ends of a container's cable are to be. */
export interface Cable {
  readonly netns: Netns;
  readonly ifname: string;
  /** Of the container's end; chosen by the kernel unless told. */
  readonly mac?: Mac | undefined;
  /** Of both ends, in bytes; 0 leaves it to the kernel. */
  readonly mtu: number;
  /** Index of the bridge that the host's end is a port of. */
  readonly master?: number;
}

/**
 * Creates the container's interface and the host's end, each where it will live. The host's is up.
 *
 * @returns the name of the host's end
 * @throws {CniError} if the container has an interface of that name
 * @throws {NetlinkError}
 */
export function createCable(host: Netns, { netns, ifname, mac, mtu, master }: Cable): string {
  const both = mtu ? { mtu } : {};
  const peer = { name: ifname, netnsFd: netns.fd, ...both, ...mac ? { mac } : {} };
  const outer = { ...master === undefined ? {} : { master }, ...both, flags: IFF_UP, change: IFF_UP };
  for (let attempt = 1;; attempt++) {
    const name = randomName();
    try {
      link.add(host.route, { name, ...outer, info: veth({ peer }) });
      return name;
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
      if (error.code !== "EEXIST" || attempt === 10) throw error.forPurpose(`create "${ifname}" in "${netns.path}"`);
      if (link.find(netns.route, ifname)) throw interfaceExists(ifname, netns);
    }
  }
}

/** A name that no other interface of the host has, as far as chance can tell. */
export function randomName(): string {
  return `veth${crypto.getRandomValues(new Uint8Array(4)).toHex()}`;
}

/**
 * Names of links of the host that the plugin's results tell of besides the ends of cables: asking the kernel for them is spared. One that is
 * missing here, as the configuration may have changed since, is not taken for an end.
 */
export type Others = readonly string[];

function isEnd({ info }: link.Link): boolean {
  return info?.kind === "veth";
}

/** The other end of the container's interface `inner`, which is to be one of a cable. @throws {CniError} if it is none, or the end is missing */
export function checkCable({ host, ifname }: CheckCall<unknown>, inner: link.Link): link.Link {
  expectEqual(`kind of "${ifname}"`, inner.info?.kind, "veth");
  const outer = link.find(host.route, inner.parent ?? 0);
  if (outer?.info?.kind === "veth" && outer.parent === inner.index) return outer;
  throw new CniError(Code.Internal, `Check failed: the other end of "${ifname}" is missing on the host`);
}

/** The host's end of the attachment's cable. @throws {CniError} if it is missing */
export function getEnd(call: AttachmentCall<unknown>, others: Others = []): link.Link {
  const found = findTold(call, others) ?? ownedEnds(link.list(call.host.route), isOf(call))[0];
  if (found) return found;
  throw new CniError(Code.Internal, `Cannot find the other end of "${call.ifname}": it is missing on the host`);
}

/** Removes the cable, by the end that is found first. @throws {NetlinkError} */
export function removeCable(call: DelCall<unknown>, others: Others = []): void {
  const { host, netns } = call;
  const told = findTold(call, others);
  if (told) return void removeIfPresent(host, told.name!);
  if (removeInnerEnd(call, netns)) return;
  // Somebody may have renamed it since, or taken it from the bridge.
  for (const each of ownedEnds(link.list(host.route), isOf(call))) removeIfPresent(host, each.name!);
}

/** Removes many cables: what the host's side does not tell of is looked for in the containers. @throws {NetlinkError} */
export function removeCables<C>(calls: ManyCalls<C>, others: Others = []): void {
  const found = removeEnds(calls, others);
  for (const call of calls) if (!found.has(call)) call.within((netns) => removeInnerEnd(call, netns));
}

/** Removes the container's end, unless it is another container's. @returns true if it was there */
function removeInnerEnd(call: AttachmentCall<unknown>, netns: Netns | undefined): boolean {
  const inner = netns && link.find(netns.route, call.ifname);
  if (!inner || !isEnd(inner)) return false;
  return !isAnothers(call, netns, inner) && removeIfPresent(netns, call.ifname);
}

/** Removes the host's ends. @returns the attachments that one was found for @throws {NetlinkError} */
function removeEnds<C>(calls: ManyCalls<C>, others: Others): ReadonlySet<ManyCalls<C>[number]> {
  const found = new Set<ManyCalls<C>[number]>();
  link.removeChosen(calls[0].host.route, (all) => {
    const byName = new Map(all.map((each) => [each.name, each]));
    const owned = new Map(
      all.filter(isEnd).flatMap((each) => {
        const owner = parseAlias(each.alias);
        return owner ? [[ownerText(owner), each]] : [];
      }),
    );
    return calls.flatMap((call) => {
      const end = told(call, others, (name) => byName.get(name)) ?? owned.get(ownerText(call.owner));
      if (end) found.add(call);
      return end ?? [];
    });
  });
  return found;
}

/** Removes the cables of this network's containers that live no more, wherever they are by now. @throws {NetlinkError} */
export function collectCables({ host, request, valid }: GcCall<unknown>): void {
  const isDead = deadOf(request.name, valid);
  link.removeChosen(host.route, (all) => ownedEnds(all, isDead));
}

/** The host's end as far as the result tells which it is. */
function findTold(call: AttachmentCall<unknown>, others: Others): link.Link | undefined {
  return told(call, others, (name) => link.find(call.host.route, name));
}

function told(
  call: AttachmentCall<unknown>,
  others: Others,
  find: (name: string) => link.Link | undefined,
): link.Link | undefined {
  for (const { name, mac, sandbox } of call.prevResult?.interfaces ?? []) {
    if (sandbox || others.includes(name)) continue;
    const found = find(name);
    // The name alone might be another container's by now.
    if (found && isEnd(found) && (isUnnamedEnd(found, mac) || isOwned(found, isOf(call)))) return found;
  }
  return undefined;
}

const isOf = (call: AttachmentCall<unknown>) => (owner: Owner): boolean => sameOwner(owner, call.owner);

/** The reference plugins write no owner. A gateway of a VLAN has none either, but it has its other end on the host. */
function isUnnamedEnd(found: link.Link, mac: string | undefined): boolean {
  return found.alias === undefined && found.parentNetns !== undefined && found.mac === mac;
}

function ownedEnds(all: readonly link.Link[], mine: (owner: Owner) => boolean): link.Link[] {
  return all.filter((each) => isEnd(each) && isOwned(each, mine));
}

function isOwned({ alias }: link.Link, mine: (owner: Owner) => boolean): boolean {
  const owner = parseAlias(alias);
  return owner !== undefined && mine(owner);
}
