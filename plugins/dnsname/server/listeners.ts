/** The sockets on which containers ask: two for each address of a link. */
import type { Ip } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { listenTcp, listenUdp } from "../../../ffi/sys/inet_socket.ts";
import { DNS_PORT, type ListenProblem } from "../protocol.ts";
import type { NameRecord, NameServer } from "../record.ts";

/** After a boot, another program may have the port for a moment. */
const RETRY_MS = 5000;

/** An address of a link, at which containers ask. */
export interface ListenPlace extends NameServer {
  /** How many records of each network need it. */
  readonly networks: Map<string, number>;
  /** Another one may have got the name of a link that was removed. */
  linkIndex: number | undefined;
}

interface OpenPlace extends ListenPlace {
  sockets: Disposable | undefined;
  problems: readonly ListenProblem[];
}

export interface Listeners {
  /** Listens where the record says; for every one that is released later. */
  acquire(record: NameRecord): void;
  release(record: NameRecord): void;
  /** Looks whether the links are still those on which it listens, and tries again where there was a problem. */
  refresh(record: NameRecord): void;
  /** What stops the server from listening where the record says. */
  problemsOf(record: NameRecord): ListenProblem[];
  /** When to try again where there is a problem, by `performance.now()`; `Infinity` if there is none. */
  deadline(): number;
  /** Tries again if it is time. */
  expire(): void;
  isListening(address: Ip): boolean;
}

export interface SocketHandlers {
  /** Takes what arrives, until the result is disposed of. */
  serveUdp(socket: Descriptor, place: ListenPlace): Disposable;
  serveTcp(socket: Descriptor, place: ListenPlace): Disposable;
}

export function openListeners(host: Netns, handlers: SocketHandlers): Listeners {
  const places = new Map<string, OpenPlace>();
  let retryAt = Infinity;
  const keyOf = ({ address, device }: NameServer) => `${device} ${address}`;

  const close = (place: OpenPlace) => {
    place.sockets?.[Symbol.dispose]();
    place.sockets = undefined;
  };
  const addProblem = (place: OpenPlace, protocol: ListenProblem["protocol"], error: unknown) => {
    if (!(error instanceof SystemError)) throw error;
    const { address, device, problems } = place;
    place.problems = [...problems, { address, device, protocol, code: error.code, message: error.message }];
    retryAt = Math.min(retryAt, performance.now() + RETRY_MS);
  };
  const open = (place: OpenPlace) => {
    place.problems = [];
    try {
      const linkIndex = link.find(host.route, place.device)?.index;
      if (place.sockets && place.linkIndex === linkIndex) return;
      close(place);
      place.linkIndex = linkIndex;
    } catch (error) {
      return addProblem(place, "udp", error);
    }
    using sockets = new DisposableStack();
    for (const [protocol, listen, serve] of PROTOCOLS) {
      try {
        const socket = sockets.use(listen({ ...place, port: DNS_PORT }));
        sockets.use(handlers[serve](socket, place));
      } catch (error) {
        addProblem(place, protocol, error);
      }
    }
    // One without the other would leave long answers, or most questions, without an answer.
    if (place.problems.length === 0) place.sockets = sockets.move();
  };

  return {
    acquire({ owner, servers }) {
      for (const server of servers) {
        const key = keyOf(server);
        const place = places.get(key) ??
          { ...server, networks: new Map(), linkIndex: undefined, sockets: undefined, problems: [] };
        place.networks.set(owner.network, (place.networks.get(owner.network) ?? 0) + 1);
        if (places.has(key)) continue;
        places.set(key, place);
        open(place);
      }
    },
    release({ owner, servers }) {
      for (const server of servers) {
        const place = places.get(keyOf(server));
        if (!place) continue;
        const left = (place.networks.get(owner.network) ?? 0) - 1;
        left > 0 ? place.networks.set(owner.network, left) : place.networks.delete(owner.network);
        if (place.networks.size > 0) continue;
        close(place);
        places.delete(keyOf(server));
      }
    },
    refresh({ servers }) {
      for (const server of servers) {
        const place = places.get(keyOf(server));
        if (place) open(place);
      }
    },
    problemsOf: ({ servers }) => servers.flatMap((server) => places.get(keyOf(server))?.problems ?? []),
    deadline: () => retryAt,
    expire() {
      if (retryAt > performance.now()) return;
      retryAt = Infinity;
      for (const place of places.values()) if (!place.sockets || place.problems.length > 0) open(place);
    },
    isListening: (address) => [...places.values()].some((place) => place.address === address),
  };
}

const PROTOCOLS = [["udp", listenUdp, "serveUdp"], ["tcp", listenTcp, "serveTcp"]] as const;
