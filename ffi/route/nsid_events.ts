import { openMonitor } from "../netlink/monitor.ts";
import { NETLINK_ROUTE } from "../netlink/socket.ts";
import type { Descriptor } from "../sys/file.ts";
import { RTM_DELNSID, RTNLGRP_NSID } from "./uapi.ts";

const BUFFER_BYTES = 1 << 18;

export interface NsidEvents extends Descriptor {
  /** Reads all that waits. @returns whether a namespace may be gone */
  drain(): boolean;
}

/** Readable when a namespace that this one has a number for is gone, and when one gets a number. */
export function openNsidEvents(): NsidEvents {
  const monitor = openMonitor(NETLINK_ROUTE, [RTNLGRP_NSID], BUFFER_BYTES);
  return {
    ...monitor,
    drain() {
      let isAnyGone = false;
      const isComplete = monitor.read(({ type }) => void (isAnyGone ||= type === RTM_DELNSID));
      return isAnyGone || !isComplete;
    },
  };
}
