/**
 * IPv4 settings of a link, set by a message: opening /proc/sys/net/ipv4/conf gets slower with each namespace, a message does not.
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

/** Another layout than in the kernel's answers, where the settings are a list of numbers. */
const inetConf = attrs(() => ({ arpNotify: [uapi.IPV4_DEVCONF_ARP_NOTIFY, u32] }));
const devconfMessage = message("link", ifinfomsg, () => ({
  families: [
    uapi.IFLA_AF_SPEC,
    attrs(() => ({ inet: [AF_INET, attrs(() => ({ conf: [uapi.IFLA_INET_CONF, inetConf] }))] })),
  ],
}));
const DEVCONF = /* @__PURE__ */ rtnetlinkOperations("LINK", uapi.RTM_NEWLINK, devconfMessage);

/** The request that makes a link announce its IPv4 addresses when it is set up, so that neighbours learn its MAC address. */
export function arpNotifyRequest(index: number): NetlinkRequest {
  return request(DEVCONF.NEW, { index, families: { inet: { conf: { arpNotify: 1 } } } });
}
