/**
 * The numbers by which a network namespace knows others. A link names its peer's namespace by such a number.
 *
 * @see linux/net_namespace.h, linux/rtnetlink.h struct rtgenmsg
 * @module
 */
import { i32, struct, u32, u8 } from "../netlink/codec.ts";
import { message, type MessageIn } from "../netlink/message.ts";
import { type Netlink, query } from "../netlink/socket.ts";
import { rtnetlinkOperations } from "./operations.ts";
import * as uapi from "./uapi.ts";

const nsidMessage = message("nsid", struct({ family: u8, pad1: u8, pad2: u8, pad3: u8 }), () => ({
  nsid: [uapi.NETNSA_NSID, i32],
  fd: [uapi.NETNSA_FD, u32],
  target: [uapi.NETNSA_TARGET_NSID, i32],
}));
const NSID = /* @__PURE__ */ rtnetlinkOperations("NSID", uapi.RTM_NEWNSID, nsidMessage);

/** The number by which the namespace of `nl` knows the open namespace `fd`, if any. */
export function findNsid(nl: Netlink, fd: number): number | undefined {
  return queryNsid(nl, { fd });
}

/**
 * The number by which namespace `target` knows namespace `nsid`, if any; both numbers are those of the namespace of `nl`.
 *
 * @throws {NetlinkError} `EINVAL` if the namespace of `nl` has no such `target`
 */
export function translateNsid(nl: Netlink, target: number, nsid: number): number | undefined {
  return queryNsid(nl, { nsid, target });
}

function queryNsid(nl: Netlink, value: MessageIn<typeof nsidMessage>): number | undefined {
  const { nsid = -1 } = query(nl, NSID.GET, value);
  return nsid < 0 ? undefined : nsid;
}
