/** Who uses a network: attachments of this runtime, of engines and of programs that keep no cache. */
import { currentNetns } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";
import { parseAlias } from "../plugins/lib/model/owner.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import { reservationsOf } from "./reservations.ts";
import type { NetworkAttachment } from "../runtime/attachments.ts";

export interface NetworkUser {
  readonly containerId: string;
  /** Absent from reservations of old versions of host-local. */
  readonly ifname?: string;
  /** Why it counts: `attached`, `a link of the host`, `a reserved address`. */
  readonly evidence: string;
}

/** Leaves out attachments whose container is gone. @throws {ConfigError} of {@linkcode reservationsOf} */
export function listNetworkUsers(
  list: NetworkConfigList,
  attachments: readonly NetworkAttachment[],
): NetworkUser[] {
  return [...listAttachedUsers(attachments), ...listOtherUsers(list, attachments)];
}

/** Those of which the cache knows nothing. @throws {ConfigError} of {@linkcode reservationsOf} */
export function listOtherUsers(
  list: NetworkConfigList,
  attachments: readonly NetworkAttachment[],
): NetworkUser[] {
  const users = [
    ...listLinkOwners(list.name).map((owner) => ({ ...owner, evidence: "a link of the host" })),
    ...reservationsOf(list).flatMap((reservations) => reservations.currentHolders())
      .map((holder) => ({ ...holder, evidence: "a reserved address" })),
  ];
  return findUncachedUsers(users, attachments);
}

/** A user without interface is cached if its container is. */
export function findUncachedUsers(
  users: readonly NetworkUser[],
  attachments: readonly Pick<NetworkAttachment, "containerId" | "ifname">[],
): NetworkUser[] {
  // Large nodes have tens of thousands: every user is compared with sets, not with all others.
  const seen = new Set(attachments.flatMap(({ containerId, ifname }) => [
    keyOf({ containerId, ifname }),
    keyOf({ containerId }),
  ]));
  return users.filter((user) => {
    const key = keyOf(user);
    return !seen.has(key) && seen.add(key);
  });
}

function keyOf({ containerId, ifname }: Pick<NetworkUser, "containerId" | "ifname">): string {
  return JSON.stringify([containerId, ifname]);
}

export function listAttachedUsers(attachments: readonly NetworkAttachment[]): NetworkUser[] {
  return attachments.filter(({ state }) => state !== "gone")
    .map(({ containerId, ifname, state }) => ({ containerId, ifname, evidence: state }));
}

function listLinkOwners(network: string): Pick<NetworkUser, "containerId" | "ifname">[] {
  using host = currentNetns();
  return link.list(host.route).flatMap(({ alias }) => {
    const owner = parseAlias(alias);
    return owner?.network === network ? [{ containerId: owner.containerId, ifname: owner.ifname }] : [];
  });
}
