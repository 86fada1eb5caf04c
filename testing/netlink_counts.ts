/**
 * Namespaces that count what is asked of the kernel over netlink: tests compare costs without a clock.
 *
 * @module
 */
import { NLM_F_CREATE, NLM_F_DUMP } from "../ffi/netlink/message.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { watchedNetns } from "./netlink.ts";

/** Requests to the kernel, and its answers. */
export interface NetlinkCounts {
  sends: number;
  messages: number;
  dumps: number;
  /** How many bytes were received. */
  received: number;
}

/** The namespace with sockets that add to `counts`. */
export function countingNetns(netns: Netns, counts: NetlinkCounts): Netns {
  return watchedNetns(netns, {
    onSend(request) {
      counts.sends++;
      for (const flags of flagsIn(request)) {
        counts.messages++;
        if ((flags & NLM_F_DUMP) === NLM_F_DUMP) counts.dumps++;
      }
    },
    onReceive: ({ length }) => void (counts.received += length),
  });
}

/** The flags of each message. A rule that is appended has the same bits as a dump. */
function* flagsIn(request: Uint8Array): Generator<number> {
  const view = new DataView(request.buffer, request.byteOffset, request.length);
  for (let at = 0; at < request.length; at += (view.getUint32(at, true) + 3) & ~3) {
    const flags = view.getUint16(at + 6, true);
    yield flags & NLM_F_CREATE ? 0 : flags;
  }
}
