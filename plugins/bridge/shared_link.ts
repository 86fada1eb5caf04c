/**
 * Links that the ADDs of several containers share: the bridge, and the host's interface in a VLAN.
 *
 * The first ADD makes such a link, and removes it if it fails. Another ADD may have begun to use it by then, and no
 * request of the kernel's removes a link "unless somebody uses it". Therefore a new link is in a group of its own.
 * Whoever finds it there claims it, before anything else, by taking it out of the group; the ADD that made it does so
 * when all else is done. If it fails, it removes the group: the kernel does one after the other, and in a group that is
 * empty it removes nothing.
 *
 * @see net/core/rtnetlink.c rtnl_group_dellink()
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import * as link from "../../ffi/route/link.ts";

/** The upper eight bits of our groups: those of others are left alone. */
const GROUP_PREFIX = 0x43;

/** A group for one new link. */
export function newLinkGroup(): number {
  return GROUP_PREFIX << 24 | crypto.getRandomValues(new Uint32Array(1))[0]! >>> 8;
}

/** From here on, no ADD that fails removes this link. @returns false if it is gone already */
export function claimLink(host: Netns, { index, group = 0 }: link.Link): boolean {
  if (group >>> 24 !== GROUP_PREFIX) return true;
  return succeedsIfPresent(() => link.set(host.route, index, { group: 0 }));
}

/** Removes the link that was made in this group, unless another ADD has claimed it. @throws {NetlinkError} */
export function removeUnclaimedLink(host: Netns, group: number): void {
  succeedsIfPresent(() => link.removeGroup(host.route, group));
}

function succeedsIfPresent(call: () => void): boolean {
  try {
    call();
    return true;
  } catch (error) {
    if (error instanceof NetlinkError && error.code === "ENODEV") return false;
    throw error;
  }
}
