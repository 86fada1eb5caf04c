import { type Netns, NetnsError, openNetns } from "../ffi/netns/netns.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import * as link from "../ffi/route/link.ts";
import { SystemError } from "../ffi/sys/error.ts";
import type { NodePod } from "./pods.ts";

/**
 * Gives both ends of the interfaces of pods an MTU. Connections go on: TCP sends smaller segments.
 *
 * @param log told of links that the kernel refuses to change
 */
export function setPodMtu(
  host: Netns,
  pods: readonly NodePod[],
  mtu: number,
  log: (message: string) => void,
): void {
  for (const { containerId, result } of pods) {
    for (const { name, sandbox } of result?.interfaces ?? []) {
      try {
        using netns = sandbox ? openNetns(sandbox) : undefined;
        setLinkMtu((netns ?? host).route, name, mtu);
      } catch (error) {
        // Containers, and with them their links, go at any time.
        if (error instanceof NetnsError) continue;
        if (!(error instanceof SystemError)) throw error;
        if (error.code !== "ENODEV") log(`Container ${containerId} keeps its MTU: ${error.message}`);
      }
    }
  }
}

function setLinkMtu(nl: Netlink, name: string, mtu: number): void {
  const found = link.find(nl, name);
  if (found && found.mtu !== mtu) link.set(nl, found.index, { mtu });
}
