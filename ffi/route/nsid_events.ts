import { NETLINK_ROUTE } from "../netlink/socket.ts";
import { ignoreErrors } from "../sys/error.ts";
import { type Descriptor, descriptor } from "../sys/file.ts";
import { sys } from "../sys/libc.ts";
import { AF_NETLINK, MSG_DONTWAIT, SOCK_CLOEXEC, SOCK_RAW } from "../sys/uapi.ts";
import { RTNLGRP_NSID } from "./uapi.ts";

export interface NsidEvents extends Descriptor {
  drain(): void;
}

/** Readable when a namespace that this one has a number for is gone, and when one gets a number. */
export function openNsidEvents(): NsidEvents {
  const socket = descriptor(sys.socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  // struct sockaddr_nl { u16 nl_family; u16 nl_pad; u32 nl_pid; u32 nl_groups; }
  sys.bind(socket.fd, new Uint32Array([AF_NETLINK, 0, 1 << RTNLGRP_NSID - 1]), 12);
  const buffer = new Uint8Array(4096);
  return {
    ...socket,
    drain() {
      // ENOBUFS: some were lost, which the caller need not know.
      const receive = () => sys.recv(socket.fd, buffer, buffer.length, MSG_DONTWAIT);
      while (ignoreErrors(["EAGAIN"], () => ignoreErrors(["ENOBUFS"], receive) ?? 0) !== undefined) continue;
    },
  };
}
