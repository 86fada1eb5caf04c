/**
 * The numbers by which a network namespace tells others apart: a link whose lower device is in another one names that by its number.
 *
 * @see linux/net_namespace.h, linux/rtnetlink.h struct rtgenmsg
 * @module
 */
import { i32, struct, u32, u8 } from "../netlink/codec.ts";
import { message, type Operation } from "../netlink/message.ts";
import { type Netlink, query } from "../netlink/socket.ts";
import { NETNSA_FD, NETNSA_NSID, NETNSA_TARGET_NSID, RTM_GETNSID } from "./uapi.ts";

const nsidMessage = message("nsid", struct({ family: u8, pad1: u8, pad2: u8, pad3: u8 }), () => ({
  nsid: [NETNSA_NSID, i32],
  fd: [NETNSA_FD, u32],
  target: [NETNSA_TARGET_NSID, i32],
}));
const GET: Operation<typeof nsidMessage> = { name: "RTM_GETNSID", type: RTM_GETNSID, spec: nsidMessage };

/**
 * The number by which the namespace of `nl` knows another one, or `undefined` if it knows none.
 *
 * @param fd the other namespace, open
 * @throws {NetlinkError}
 */
export function findNsid(nl: Netlink, fd: number): number | undefined {
  const { nsid = -1 } = query(nl, GET, { fd });
  return nsid < 0 ? undefined : nsid;
}

/**
 * The number by which one namespace knows another, of which that of `nl` knows both; `undefined` if it knows none.
 *
 * @param target the number of the one that is asked about @param nsid the number of the other
 * @throws {NetlinkError} `EINVAL` if the namespace of `nl` has no such `target`
 */
export function translateNsid(nl: Netlink, target: number, nsid: number): number | undefined {
  const { nsid: translated = -1 } = query(nl, GET, { nsid, target });
  return translated < 0 ? undefined : translated;
}
