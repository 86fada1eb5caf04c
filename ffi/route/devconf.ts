/**
 * IPv4 settings of a link, by a message: /proc/sys/net/ipv4/conf opens more slowly with each namespace.
 *
 * @see linux/ip.h, linux/if_link.h, net/ipv4/devinet.c inet_set_link_af()
 * @module
 */
import { attrs } from "../netlink/attrs.ts";
import { u32 } from "../netlink/codec.ts";
import { message } from "../netlink/message.ts";
import { type NetlinkRequest, request } from "../netlink/socket.ts";
import { AF_INET } from "../sys/uapi.ts";
import { ifinfomsg } from "./link.ts";
import { rtnetlinkOperations } from "./operations.ts";
import * as uapi from "./uapi.ts";

/** The kernel's answers have a list of numbers instead. */
const inetConf = attrs(() => ({ arpNotify: [uapi.IPV4_DEVCONF_ARP_NOTIFY, u32] }));
const devconfMessage = message("link", ifinfomsg, () => ({
  families: [
    uapi.IFLA_AF_SPEC,
    attrs(() => ({ inet: [AF_INET, attrs(() => ({ conf: [uapi.IFLA_INET_CONF, inetConf] }))] })),
  ],
}));
const DEVCONF = /* @__PURE__ */ rtnetlinkOperations("LINK", uapi.RTM_NEWLINK, devconfMessage);

/** A link then announces its addresses when set up, so that neighbours learn its MAC address. */
export function arpNotifyRequest(index: number): NetlinkRequest {
  return request(DEVCONF.NEW, { index, families: { inet: { conf: { arpNotify: 1 } } } });
}
