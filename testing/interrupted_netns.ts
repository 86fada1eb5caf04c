/**
 * A namespace in which something happens between two requests, whichever: what a race would bring about now and then.
 *
 * @module
 */
import type { Netlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";

/** A namespace that counts its requests about links, addresses and routes. */
export type InterruptedNetns = Netns & { readonly requests: number };

/** The namespace, in which `act` is called before the request of number `at`, counted from 1; later requests find it done. */
export function interruptNetns(netns: Netns, at: number, act: () => void): InterruptedNetns {
  const counter = { requests: 0 };
  const route: Netlink = {
    get sequence() {
      return netns.route.sequence;
    },
    set sequence(number) {
      netns.route.sequence = number;
    },
    send(request) {
      if (++counter.requests === at) act();
      netns.route.send(request);
    },
    receive: (wait) => netns.route.receive(wait),
    [Symbol.dispose]: () => {},
  };
  return Object.assign(counter, { ...netns, route, identity: netns.identity, nft: netns.nft });
}
