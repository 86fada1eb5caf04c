/**
 * New links that the ADDs of several containers share: the bridge, and the host's interface in a VLAN.
 *
 * An ADD that fails removes them, but not while another one uses them. The kernel knows no such condition, only that a
 * link is in a group: so a new link is in a group of its own, and whoever begins to use it changes that. A removal by
 * the former group then finds nothing. The first ADD that succeeds puts the link into the default group.
 *
 * @see net/core/rtnetlink.c rtnl_group_dellink()
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";

/** The upper eight bits of our groups: those of others are left alone. */
const GROUP_PREFIX = 0x43;

/** A group for one new link. */
export function newLinkGroup(): number {
  return GROUP_PREFIX << 24 | crypto.getRandomValues(new Uint32Array(1))[0]! >>> 8;
}

/** True if no ADD has succeeded with the link yet. */
export function isNewLink({ group = 0 }: link.Link): boolean {
  return group >>> 24 === GROUP_PREFIX;
}

/** Puts a new link into another group; 0 for one that is to stay. @returns false if it is gone already */
export function claimLink(host: Netns, device: link.Link, group: number): boolean {
  if (!isNewLink(device)) return true;
  return ignoreErrors(["ENODEV"], () => (link.set(host.route, device.index, { group }), true)) ?? false;
}

/** Removes the link of this group, unless it is in another one by now. @throws {NetlinkError} */
export function removeLinkGroup(host: Netns, group: number): void {
  ignoreErrors(["ENODEV"], () => link.removeGroup(host.route, group));
}
