import type { Netns } from "../../../ffi/netns/netns.ts";
import {
  NF_INET_POST_ROUTING,
  NF_INET_PRE_ROUTING,
  NF_IP_PRI_CONNTRACK,
  NF_IP_PRI_NAT_DST,
  NF_IP_PRI_NAT_SRC,
} from "../../../ffi/nft/uapi.ts";
import { advise, broken, type Finding } from "../finding.ts";
import { findLocalDrop } from "../local_filters.ts";
import type { Subject } from "../subject.ts";
import type { WalkedPacket } from "../walked_packet.ts";
import { type ForwardedPacket, forwardedPackets } from "./forward_chains.ts";

/** Chains of other tables that drop forwarded packets before or after the chains of the hook `forward` see them. */
export function checkRoutingHooks(subject: Subject): Finding[] {
  const stopped = subject.containers.flatMap((container) =>
    forwardedPackets(subject, container).flatMap((packet) => {
      const drop = findDropBeside(subject, packet);
      return drop ? [{ packet, drop }] : [];
    })
  );
  return [...Map.groupBy(stopped, ({ drop }) => drop.place)].map(([place, all]) => {
    const [{ packet: { direction, address }, drop: { mend, removesRule } }] = all as [typeof all[number]];
    const others = new Set(all.map(({ packet }) => packet.address)).size - 1;
    return broken(
      `packets ${direction} ${address}${others > 0 ? ` and ${others} more` : ""} are dropped by ${place}`,
      removesRule ? advise("unless somebody means this rule, remove it", mend) : mend,
    );
  });
}

/** A call whose address is not known, on a host without uplink, is not judged. */
function findDropBeforeTranslation(netns: Netns, { called, isDnat }: ForwardedPacket, arriving: WalkedPacket) {
  if (isDnat && !called) return undefined;
  const packet: WalkedPacket = { ...arriving, ...called, isDnat: false, isToHost: called !== undefined };
  return findLocalDrop(netns, NF_INET_PRE_ROUTING, { ...packet, isUntracked: true }, {
    sees: (priority) => priority < NF_IP_PRI_CONNTRACK,
  }) ??
    findLocalDrop(netns, NF_INET_PRE_ROUTING, packet, {
      sees: (priority) => priority > NF_IP_PRI_CONNTRACK && priority < NF_IP_PRI_NAT_DST,
    });
}

/** Other chains of these hooks, which are not walked, may set marks. */
function findDropBeside({ host: { netns } }: Subject, packet: ForwardedPacket) {
  const arriving: WalkedPacket = { ...packet, oifname: "", mark: undefined };
  return findDropBeforeTranslation(netns, packet, arriving) ??
    findLocalDrop(netns, NF_INET_PRE_ROUTING, arriving, { sees: (priority) => priority > NF_IP_PRI_NAT_DST }) ??
    // What comes later sees the address of the host as source.
    findLocalDrop(netns, NF_INET_POST_ROUTING, { ...packet, iifname: "", mark: undefined }, {
      sees: (priority) => priority < NF_IP_PRI_NAT_SRC,
    });
}
