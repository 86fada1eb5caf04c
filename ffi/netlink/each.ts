/** Requests each of which may be refused, and no refusal concerns the others. @module */
import type { Reader } from "./codec.ts";
import type { NetlinkError } from "./error.ts";
import { type AnyMessageSpec, type MessageOut, readMessage } from "./message.ts";
import { acknowledged, exchange, MAX_PENDING, type Netlink, type NetlinkRequest } from "./socket.ts";

/** @returns refusals, by the request's position */
export function executeEach(nl: Netlink, requests: readonly NetlinkRequest[]): Map<number, NetlinkError> {
  const refusals = new Map<number, NetlinkError>();
  const onRefusal = (error: NetlinkError) => void refusals.set(error.index, error);
  exchange(nl, acknowledged(requests), () => {}, { batchSize: MAX_PENDING, onRefusal });
  return refusals;
}

/** Each request has one answer, or a refusal. */
export function queryEach(
  nl: Netlink,
  requests: readonly NetlinkRequest[],
): (MessageOut<AnyMessageSpec> | NetlinkError)[] {
  const answers: (MessageOut<AnyMessageSpec> | NetlinkError)[] = [];
  const onMessage = (payload: Reader, index: number) => {
    answers[index] = readMessage(requests[index]!.op.spec, payload);
  };
  const onRefusal = (error: NetlinkError) => void (answers[error.index] = error);
  exchange(nl, requests, onMessage, { hasOneReply: true, batchSize: MAX_PENDING, onRefusal });
  return answers;
}
