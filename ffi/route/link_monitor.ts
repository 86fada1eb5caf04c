import { openMonitor } from "../netlink/monitor.ts";
import { NETLINK_ROUTE } from "../netlink/socket.ts";
import { AF_BRIDGE } from "../sys/uapi.ts";
import { ifaddrmsg } from "./address.ts";
import { ifinfomsg } from "./link.ts";
import {
  RT_SCOPE_LINK,
  RTM_DELADDR,
  RTM_DELLINK,
  RTNLGRP_IPV4_IFADDR,
  RTNLGRP_IPV6_IFADDR,
  RTNLGRP_LINK,
} from "./uapi.ts";

/** A port loses its bridge: `left-bridge`. Link-local addresses are left out. */
export interface LinkLoss {
  readonly kind: "address" | "left-bridge" | "removed";
  readonly index: number;
}

export interface LinkMonitor extends Disposable {
  readonly fd: number;
  /** Returns false if the kernel dropped messages. */
  read(onLoss: (loss: LinkLoss) => void): boolean;
}

export function openLinkMonitor(bufferBytes: number): LinkMonitor {
  const groups = [RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR];
  const monitor = openMonitor(NETLINK_ROUTE, groups, bufferBytes);
  return {
    ...monitor,
    read: (onLoss) =>
      monitor.read(({ type, payload }) => {
        if (type === RTM_DELADDR) {
          const { scope, index } = ifaddrmsg.read(payload);
          if (scope < RT_SCOPE_LINK) onLoss({ kind: "address", index });
        } else if (type === RTM_DELLINK) {
          const { family, index } = ifinfomsg.read(payload);
          // A bridge tells of its ports in its own family.
          onLoss({ kind: family === AF_BRIDGE ? "left-bridge" : "removed", index });
        }
      }),
  };
}
