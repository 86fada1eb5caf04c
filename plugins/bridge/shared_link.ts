/**
 * New links that several ADDs share: the bridge, and the host's interface in a VLAN.
 *
 * A failed ADD removes them unless another ADD uses them. The kernel has no such condition, but it removes links by group.
 * So a new link has a group of its own, and each ADD that begins to use it changes the group. A removal by the former
 * group finds nothing. The first ADD that succeeds puts the link into the default group.
 *
 * @see net/core/rtnetlink.c rtnl_group_dellink()
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";

/** The upper eight bits of our groups. */
const GROUP_PREFIX = 0x43;

/** A group for one new link. */
export function newLinkGroup(): number {
  return GROUP_PREFIX << 24 | crypto.getRandomValues(new Uint32Array(1))[0]! >>> 8;
}

/** True if no ADD has succeeded with the link yet. */
export function isNewLink({ group = 0 }: link.Link): boolean {
  return group >>> 24 === GROUP_PREFIX;
}

/** Puts a new link into another group, 0 if it is to stay. @returns false if the link is gone */
export function claimLink(host: Netns, device: link.Link, group: number): boolean {
  if (!isNewLink(device)) return true;
  return ignoreErrors(["ENODEV"], () => (link.set(host.route, device.index, { group }), true)) ?? false;
}

/** Removes the link of this group, if it is still in it. @throws {NetlinkError} */
export function removeLinkGroup(host: Netns, group: number): void {
  ignoreErrors(["ENODEV"], () => link.removeGroup(host.route, group));
}
