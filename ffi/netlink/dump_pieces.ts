/** Long lists of the kernel, between whose pieces others get their turn. @module */
import { ETIMEDOUT } from "../sys/errno.ts";
import type { Reader } from "./codec.ts";
import { NetlinkError } from "./error.ts";
import {
  type AnyMessageSpec,
  type MessageIn,
  type MessageOut,
  NLM_F_DUMP,
  type Operation,
  readMessage,
} from "./message.ts";
import {
  DUMP_ATTEMPTS,
  forEachMessage,
  keptChanging,
  type Netlink,
  newExchange,
  readReply,
  request,
  sendBatch,
} from "./socket.ts";

/**
 * Lists without keeping all, datagram by datagram: between two, the caller may do anything, except with this socket.
 *
 * @param onStart called again if objects changed meanwhile, before all come again
 * @param isWanted of an object's bytes: decoding takes most of the time; without it, all are
 */
export function* dumpInPieces<S extends AnyMessageSpec>(
  nl: Netlink,
  op: Operation<S>,
  value: MessageIn<S>,
  onStart: () => void,
  onItem: (item: MessageOut<S>) => void,
  isWanted?: (raw: Buffer) => boolean,
): Generator<void> {
  for (let attempt = 1;; attempt++) {
    onStart();
    const requests = [request(op, value, NLM_F_DUMP)];
    const state = newExchange(nl, requests, {});
    sendBatch(nl, state, requests);
    while (state.pending.size > 0) {
      // Others share the buffer: of several datagrams, it keeps only what is read at once.
      const datagram = nl.receive(true);
      if (!datagram) {
        throw new NetlinkError({ request: op.name, errno: ETIMEDOUT, extack: "No answer from the kernel" });
      }
      forEachMessage(datagram, (received) => {
        if (received.sequence !== state.firstSequence) return;
        readReply(state, 0, received, (payload) => {
          if (!isWanted || isWanted(rawBytes(payload))) onItem(readMessage(op.spec, payload) as MessageOut<S>);
        });
      });
      yield;
    }
    if (state.error) throw state.error;
    if (!state.interrupted) return;
    if (attempt === DUMP_ATTEMPTS) throw keptChanging(op);
  }
}

const rawBytes = ({ bytes, offset, end }: Reader): Buffer =>
  Buffer.from(bytes.buffer, bytes.byteOffset + offset, end - offset);
