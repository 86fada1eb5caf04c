/**
 * IPv4 settings of a link, which are files in /proc/sys/net/ipv4/conf as well.
 *
 * The kernel keeps the names of those files for all namespaces in one place: to open one takes the longer the more namespaces it was
 * opened in. A message costs the same with one container and with a thousand.
 *
 * @see linux/ip.h, linux/if_link.h, net/ipv4/devinet.c inet_set_link_af()
 * @module
 */
import { attrs } from "../netlink/attrs.ts";
import { u32 } from "../netlink/codec.ts";
import { message, type Operation } from "../netlink/message.ts";
import { type NetlinkRequest, request } from "../netlink/socket.ts";
import { AF_INET } from "../sys/uapi.ts";
import { ifinfomsg } from "./link.ts";
import { IFLA_AF_SPEC, IFLA_INET_CONF, IPV4_DEVCONF_ARP_NOTIFY, RTM_NEWLINK } from "./uapi.ts";

/** Another message than the one that tells of a link: there the settings are a plain list of numbers. */
const devconfMessage = message("link", ifinfomsg, () => ({
  families: [
    IFLA_AF_SPEC,
    attrs(() => ({
      inet: [
        AF_INET,
        attrs(() => ({ conf: [IFLA_INET_CONF, attrs(() => ({ arpNotify: [IPV4_DEVCONF_ARP_NOTIFY, u32] }))] })),
      ],
    })),
  ],
}));
const SET: Operation<typeof devconfMessage> = { name: "RTM_NEWLINK", type: RTM_NEWLINK, spec: devconfMessage };

/** The request that has a link announce its IPv4 addresses when it is set up: neighbours learn at once who has them now. */
export function arpNotifyRequest(index: number): NetlinkRequest {
  return request(SET, { index, families: { inet: { conf: { arpNotify: 1 } } } });
}
