/** What arrives at a place, over UDP and TCP, and gets an answer. */
import type { Ip } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as neighbour from "../../../ffi/route/neighbour.ts";
import { NUD_INCOMPLETE } from "../../../ffi/route/uapi.ts";
import { ignoreSystemErrors } from "../../../ffi/sys/error.ts";
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { newPacketReceiver, sockaddrIp } from "../../../ffi/sys/inet_socket.ts";
import { answerArrival, type Responder } from "./answer_arrival.ts";
import { type AnswerSender, newAnswerSender } from "./answer_sender.ts";
import type { Connections } from "./connections.ts";
import type { ListenPlace, SocketHandlers } from "./place.ts";
import { MAX_UDP_BYTES } from "./wire.ts";

export interface ArrivalOptions {
  readonly host: Netns;
  readonly poll: EventPoll;
  readonly connections: Connections;
  readonly responder: Responder;
}

export class Arrivals implements SocketHandlers {
  readonly #options: ArrivalOptions;
  readonly #receiver = newPacketReceiver(MAX_UDP_BYTES);

  constructor(options: ArrivalOptions) {
    this.#options = options;
  }

  serveUdp({ fd }: Descriptor, place: ListenPlace): Disposable {
    const { poll } = this.#options;
    const sender = this.#newSender(fd, place);
    let isOpen = true;
    poll.onReadable(fd, () => {
      const message = this.#receiver.receive(fd);
      if (!message) return;
      const sockaddr = this.#receiver.sender();
      // Another socket may have the number by the time that a resolver answers.
      const send = (answer: Uint8Array) => void (isOpen && sender.send(answer, sockaddr));
      const { networks, device: link } = place;
      answerArrival(this.#options.responder, { message, sockaddr, networks, link, isTcp: false, send });
    });
    return {
      [Symbol.dispose]() {
        isOpen = false;
        poll.forget(fd);
      },
    };
  }

  serveTcp(socket: Descriptor, place: ListenPlace): Disposable {
    const { connections, responder } = this.#options;
    const { device: link } = place;
    return connections.serve(socket, {
      link,
      isContainer: (sockaddr) => this.#isContainer(sockaddrIp(sockaddr), place),
      onQuestion: (message, sockaddr, send) =>
        answerArrival(responder, { message, sockaddr, networks: place.networks, link, isTcp: true, send }),
    });
  }

  #newSender(fd: number, place: ListenPlace): AnswerSender {
    return newAnswerSender({
      fd,
      isContainer: (address) => this.#isContainer(address, place),
      isSought: (address) => place.linkIndex !== undefined && this.#isSought(place.linkIndex, address),
    });
  }

  #isContainer(address: Ip, { networks }: ListenPlace): boolean {
    return this.#options.responder.names.isContainer(address, networks);
  }

  #isSought(linkIndex: number, address: Ip): boolean {
    const { route } = this.#options.host;
    return ignoreSystemErrors(() => neighbour.find(route, linkIndex, address))?.state === NUD_INCOMPLETE;
  }
}
