/**
 * A namespace knows others by numbers. A link names its peer's namespace by such a number.
 *
 * @see linux/net_namespace.h, linux/rtnetlink.h struct rtgenmsg
 * @module
 */
import { i32, struct, u32, u8 } from "../netlink/codec.ts";
import { message, type MessageIn } from "../netlink/message.ts";
import { execute, type Netlink, query } from "../netlink/socket.ts";
import { rtnetlinkOperations } from "./operations.ts";
import { ignoreErrors } from "../sys/error.ts";
import * as uapi from "./uapi.ts";

const nsidMessage = message("nsid", struct({ family: u8, pad1: u8, pad2: u8, pad3: u8 }), () => ({
  nsid: [uapi.NETNSA_NSID, i32],
  fd: [uapi.NETNSA_FD, u32],
  target: [uapi.NETNSA_TARGET_NSID, i32],
}));
const NSID = /* @__PURE__ */ rtnetlinkOperations("NSID", uapi.RTM_NEWNSID, nsidMessage);

export function findNsid(nl: Netlink, fd: number): number | undefined {
  return queryNsid(nl, { fd });
}

/** Gives the open namespace `fd` a number in that of `nl`, unless it has one. Its end is then an event there. */
export function ensureNsid(nl: Netlink, fd: number): void {
  const NEXT_FREE = -1;
  ignoreErrors(["EEXIST"], () => execute(nl, NSID.NEW, { nsid: NEXT_FREE, fd }));
}

/** Both are numbers in the namespace of `nl`. @throws {NetlinkError} `EINVAL` for an unknown `target` */
export function translateNsid(nl: Netlink, target: number, nsid: number): number | undefined {
  return queryNsid(nl, { nsid, target });
}

function queryNsid(nl: Netlink, value: MessageIn<typeof nsidMessage>): number | undefined {
  const { nsid = -1 } = query(nl, NSID.GET, value);
  return nsid < 0 ? undefined : nsid;
}
