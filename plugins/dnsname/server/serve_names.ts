/** Answers containers' questions about names. One thread: what a plugin told it holds from its answer on. */
import type { Ip } from "../../../ffi/address.ts";
import { currentNetns, type Netns } from "../../../ffi/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import * as neighbour from "../../../ffi/route/neighbour.ts";
import { NUD_INCOMPLETE } from "../../../ffi/route/uapi.ts";
import { ensureDirectory } from "../../../ffi/sys/directory.ts";
import { type EventPoll, openEventPoll } from "../../../ffi/sys/event_poll.ts";
import { newPacketReceiver, sockaddrIp } from "../../../ffi/sys/inet_socket.ts";
import { ignoreSystemErrors } from "../../../ffi/sys/error.ts";
import { lockFile } from "../../../ffi/sys/lock.ts";
import { openSignals } from "../../../ffi/sys/signal_descriptor.ts";
import { SIGINT, SIGTERM } from "../../../ffi/sys/uapi.ts";
import { newAcceptor } from "./acceptor.ts";
import { type Connections, newConnections } from "./connections.ts";
import { serveControl } from "./control.ts";
import { newNameDirectory } from "./directory.ts";
import { newForwarder } from "./forwarder.ts";
import { openListeners, type SocketHandlers } from "./listeners.ts";
import { newRecordStore } from "./record_store.ts";
import { followResolvers } from "./resolvers.ts";
import { answerArrival, type Responder } from "./answer_arrival.ts";
import { type AnswerKind, newAnswerCounters } from "./answer_counters.ts";
import { newAnswerSender } from "./answer_sender.ts";
import { MAX_UDP_BYTES } from "./wire.ts";

export interface NamesOptions {
  /** A listening socket, to which plugins connect. */
  readonly listener: number;
  /** The end of a pipe. The server ends when nobody has the other end. */
  readonly lifetime: number;
  /** Of the records. */
  readonly stateDirectory?: string;
  /** Names the host's resolvers. */
  readonly resolvConf?: string;
  log(message: string): void;
  /** Told after each round whether it has names to answer for. */
  tellWork?(hasNames: boolean): void;
  /** Takes how many questions got this answer, at most once a second. */
  count?(answer: AnswerKind, count: number): void;
}

/** An earlier server may still be ending. */
const LOCK_TIMEOUT_MS = 10_000;

/** Returns when the lifetime ends, or on SIGTERM or SIGINT. */
export function serveNames(options: NamesOptions): void {
  const { listener, lifetime, stateDirectory = "/run/cni/dnsname", resolvConf = "/etc/resolv.conf", log } = options;
  using resources = new DisposableStack();
  ensureDirectory(stateDirectory, 0o700);
  resources.use(lockFile(`${stateDirectory}/lock`, { timeoutMs: LOCK_TIMEOUT_MS }));
  const host = resources.use(currentNetns());
  const poll = resources.use(openEventPoll());

  const names = newNameDirectory();
  const counters = newAnswerCounters((answer, count) => options.count?.(answer, count));
  const forwarder = newForwarder({
    poll,
    resolvers: followResolvers(resolvConf, (name) => link.find(host.route, name)?.index),
    isOwn: (resolver) => listeners.isListening(resolver.address),
    count: (answer) => counters.add(answer),
  });
  const acceptor = newAcceptor(poll, log);
  const connections = newConnections(poll, acceptor);
  const listeners = openListeners(host, newSocketHandlers(host, poll, connections, { names, forwarder, counters }));
  const store = newRecordStore({ directory: stateDirectory, host, names, listeners, log });
  store.loadAll();
  serveControl(poll, acceptor, listener, store.answer);

  let isEnding = false;
  for (const { fd } of [{ fd: lifetime }, resources.use(openSignals([SIGTERM, SIGINT]))]) {
    poll.onReadable(fd, () => void (isEnding = true));
  }
  const timed = [acceptor, forwarder, connections, listeners, counters];
  while (!isEnding) {
    options.tellWork?.(store.hasRecords());
    const deadline = Math.min(...timed.map((each) => each.deadline()));
    poll.wait(deadline === Infinity ? -1 : Math.max(0, Math.ceil(deadline - performance.now())));
    for (const each of timed) each.expire();
  }
  counters.flush();
}

function newSocketHandlers(
  host: Netns,
  poll: EventPoll,
  connections: Connections,
  responder: Responder,
): SocketHandlers {
  const receiver = newPacketReceiver(MAX_UDP_BYTES);
  return {
    serveUdp({ fd }, { networks, device, linkIndex }) {
      const sender = newAnswerSender({
        fd,
        isContainer: (address) => responder.names.isContainer(address, networks.keys()),
        isSought: (address) => linkIndex !== undefined && findState(host, linkIndex, address) === NUD_INCOMPLETE,
      });
      let isOpen = true;
      poll.onReadable(fd, () => {
        const message = receiver.receive(fd);
        if (!message) return;
        const sockaddr = receiver.sender();
        // Another socket may have the number by the time that a resolver answers.
        const send = (answer: Uint8Array) => void (isOpen && sender.send(answer, sockaddr));
        answerArrival(responder, {
          message,
          sockaddr,
          networks: [...networks.keys()],
          link: device,
          isTcp: false,
          send,
        });
      });
      return {
        [Symbol.dispose]() {
          isOpen = false;
          poll.forget(fd);
        },
      };
    },
    serveTcp: (socket, { networks, device }) =>
      connections.serve(socket, {
        link: device,
        isContainer: (sockaddr) => responder.names.isContainer(sockaddrIp(sockaddr), networks.keys()),
        onQuestion: (message, sockaddr, send) =>
          answerArrival(responder, {
            message,
            sockaddr,
            networks: [...networks.keys()],
            link: device,
            isTcp: true,
            send,
          }),
      }),
  };
}

const findState = (host: Netns, linkIndex: number, address: Ip): number | undefined =>
  ignoreSystemErrors(() => neighbour.find(host.route, linkIndex, address))?.state;
