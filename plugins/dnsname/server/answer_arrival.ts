/** Decides who answers a question: this server, the host's resolvers, or nobody. */
import { sockaddrIp } from "../../../ffi/sys/inet_socket.ts";
import type { AnswerCounters } from "./answer_counters.ts";
import { lookUp, type NameDirectory } from "./directory.ts";
import type { Forwarder } from "./forwarder.ts";
import { MAX_TCP_BYTES, readQuestion, refusalOf, writeAnswer, writeError } from "./wire.ts";

/** A message that came to an address of this server. */
export interface Arrival {
  readonly message: Uint8Array;
  readonly sockaddr: Uint8Array;
  readonly networks: readonly string[];
  readonly link: string;
  readonly isTcp: boolean;
  /** Takes the answer, now or later. */
  send(message: Uint8Array): void;
}

export interface Responder {
  readonly names: NameDirectory;
  readonly forwarder: Forwarder;
  readonly counters: AnswerCounters;
}

/** False if it gets no answer. */
export function answerArrival({ names, forwarder, counters }: Responder, arrival: Arrival): boolean {
  const { message, sockaddr, networks, link, isTcp, send } = arrival;
  const source = sockaddrIp(sockaddr);
  const visible = names.visibleTo(source, networks);
  // This is no resolver for strangers.
  if (visible.length === 0) return false;
  const question = readQuestion(message);
  if (!question) return false;
  if ("rcode" in question) {
    counters.add("refused");
    send(writeError(question));
    return true;
  }
  const maxBytes = isTcp ? MAX_TCP_BYTES : question.maxUdpBytes;
  const refusal = refusalOf(question);
  const found = refusal === undefined ? lookUp(visible, question.name, question.type) : { rcode: refusal, records: [] };
  if (found) {
    counters.add(refusal === undefined ? "own" : "refused");
    send(writeAnswer(question, found.rcode, found.records, maxBytes));
  } else forwarder.ask({ question, link, source, isContainer: names.isContainer(source, networks), maxBytes, send });
  return true;
}
