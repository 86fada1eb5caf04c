/** Counters of links. The queries of `link.ts` leave them out: no plugin needs them. @module */
import { bytes } from "../netlink/codec.ts";
import { message } from "../netlink/message.ts";
import { dump, type Netlink } from "../netlink/socket.ts";
import { withPurpose } from "../sys/error.ts";
import { ifinfomsg } from "./link.ts";
import { rtnetlinkOperations } from "./operations.ts";
import { RTM_NEWLINK } from "./uapi.ts";

// linux/if_link.h
const IFLA_STATS64 = 23;

const statisticsMessage = message("link statistics", ifinfomsg, () => ({ stats: [IFLA_STATS64, bytes] }));
const STATISTICS = /* @__PURE__ */ rtnetlinkOperations("LINK", RTM_NEWLINK, statisticsMessage);

export interface LinkPackets {
  readonly received: number;
  readonly sent: number;
}

export function listLinkPackets(nl: Netlink): Map<number, LinkPackets> {
  const links = withPurpose("list counters of links", () => dump(nl, STATISTICS.GET, {}));
  return new Map(links.flatMap(({ index, stats }) => stats ? [[index, readPackets(stats)] as const] : []));
}

// struct rtnl_link_stats64 { __u64 rx_packets; __u64 tx_packets; … }
function readPackets(stats: Uint8Array): LinkPackets {
  const view = new DataView(stats.buffer, stats.byteOffset, stats.byteLength);
  return { received: Number(view.getBigUint64(0, true)), sent: Number(view.getBigUint64(8, true)) };
}
