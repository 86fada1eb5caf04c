/** Asks the kernel where it would send a packet. @see ip-route(8), `ip route get` @module */
import type { Ip } from "../address.ts";
import { ipCodec, u32 } from "../netlink/codec.ts";
import { message } from "../netlink/message.ts";
import { type Netlink, query } from "../netlink/socket.ts";
import { withPurpose } from "../sys/error.ts";
import { AF_INET } from "../sys/uapi.ts";
import { addressFamily } from "./address.ts";
import { rtnetlinkOperations } from "./operations.ts";
import { rtmsg } from "./route.ts";
import * as uapi from "./uapi.ts";

const lookupMessage = message("route", rtmsg, () => ({
  dst: [uapi.RTA_DST, ipCodec],
  src: [uapi.RTA_SRC, ipCodec],
  iif: [uapi.RTA_IIF, u32],
  oif: [uapi.RTA_OIF, u32],
  mark: [uapi.RTA_MARK, u32],
  gateway: [uapi.RTA_GATEWAY, ipCodec],
}));
const ROUTE = /* @__PURE__ */ rtnetlinkOperations("ROUTE", uapi.RTM_NEWROUTE, lookupMessage);

export interface LookedUpPacket {
  readonly destination: Ip;
  readonly source?: Ip;
  /** The host's own packets have none. */
  readonly iif?: number;
  readonly mark?: number;
}

export interface FoundWay {
  readonly oif?: number;
  readonly gateway?: Ip;
}

/** @throws {NetlinkError} as sending it would: `ENETUNREACH`, `EHOSTUNREACH`, `EACCES` (prohibit), `EINVAL` (blackhole) */
export function lookUpWay(nl: Netlink, { destination, source, iif, mark }: LookedUpPacket): FoundWay {
  const family = addressFamily(destination);
  const prefixLength = family === AF_INET ? 32 : 128;
  const { oif, gateway } = withPurpose(`look up the route to ${destination}`, () =>
    query(nl, ROUTE.GET, {
      family,
      dstLen: prefixLength,
      srcLen: source === undefined ? 0 : prefixLength,
      dst: destination,
      src: source,
      iif,
      mark: mark === 0 ? undefined : mark,
    }));
  return { ...oif !== undefined && { oif }, ...gateway !== undefined && { gateway } };
}
