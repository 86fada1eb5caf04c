/**
 * Namespaces that count what is asked of the kernel over netlink: tests compare costs without a clock.
 *
 * @module
 */
import { NLM_F_DUMP } from "../ffi/netlink/message.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns.ts";

/** What was asked of the kernel, and what it answered. */
export interface NetlinkCounts {
  sends: number;
  messages: number;
  dumps: number;
  /** Bytes. */
  received: number;
}

/** The namespace with sockets that count. */
export function countingNetns(netns: Netns, counts: NetlinkCounts): Netns {
  let route: Netlink | undefined;
  let nft: Netlink | undefined;
  let diag: Netlink | undefined;
  return {
    path: netns.path,
    fd: netns.fd,
    get identity() {
      return netns.identity;
    },
    get cookie() {
      return netns.cookie;
    },
    get route() {
      return route ??= countingSocket(netns.route, counts);
    },
    get nft() {
      return nft ??= countingSocket(netns.nft, counts);
    },
    get diag() {
      return diag ??= countingSocket(netns.diag, counts);
    },
    run: (call) => netns.run(call),
    [Symbol.dispose]: () => netns[Symbol.dispose](),
  };
}

function countingSocket(nl: Netlink, counts: NetlinkCounts): Netlink {
  return {
    get sequence() {
      return nl.sequence;
    },
    set sequence(number) {
      nl.sequence = number;
    },
    send(request) {
      counts.sends++;
      for (const flags of flagsIn(request)) {
        counts.messages++;
        if ((flags & NLM_F_DUMP) === NLM_F_DUMP) counts.dumps++;
      }
      nl.send(request);
    },
    receive(wait) {
      const datagram = nl.receive(wait);
      counts.received += datagram?.length ?? 0;
      return datagram;
    },
    [Symbol.dispose]: () => nl[Symbol.dispose](),
  };
}

/** The flags of each message. A rule that is appended has the same bits as a dump. */
function* flagsIn(request: Uint8Array): Generator<number> {
  const view = new DataView(request.buffer, request.byteOffset, request.length);
  const NLM_F_CREATE = 0x400;
  for (let at = 0; at < request.length; at += (view.getUint32(at, true) + 3) & ~3) {
    const flags = view.getUint16(at + 6, true);
    yield flags & NLM_F_CREATE ? 0 : flags;
  }
}
