/**
 * New links that several ADDs share: the bridge, and the host's interface in a VLAN.
 *
 * A failed ADD removes them unless another ADD uses them. The kernel offers no such condition, but removes links by
 * group. So a new link has its own group, and each ADD that begins to use it changes the group. A removal by the former
 * group then finds nothing. The first successful ADD moves the link to the default group.
 *
 * @see net/core/rtnetlink.c rtnl_group_dellink()
 * @module
 */
import type { Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { CREATED_ALIAS, GROUP_PREFIX, isNewLink } from "../lib/links/created_link.ts";

export function newLinkGroup(): number {
  return GROUP_PREFIX << 24 | crypto.getRandomValues(new Uint32Array(1))[0]! >>> 8;
}

/**
 * Moves a new link to another group; 0 keeps the link. The same request sets the alias: the kernel ignores one in the
 * request that creates a link.
 *
 * @returns false if the link is gone
 */
export function claimLink(host: Netns, device: link.Link, group: number): boolean {
  if (!isNewLink(device)) return true;
  const change = { group, alias: CREATED_ALIAS };
  const set = () => {
    link.set(host.route, device.index, change);
    return true;
  };
  return ignoreErrors(["ENODEV"], set) ?? false;
}

export function removeLinkGroup(host: Netns, group: number): void {
  ignoreErrors(["ENODEV"], () => link.removeGroup(host.route, group));
}
