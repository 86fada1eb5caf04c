/** Asks `cni serve` for a pod's policies: a line of JSON there and one back. */
import { receiveAvailable, sendAvailable } from "../../ffi/sys/stream_socket.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { connectTo } from "../../ffi/sys/unix_socket.ts";
import { parseJson } from "../../spec/jsonc.ts";
import { isJsonObject } from "../../spec/schema.ts";
import type { AttachAnswer, AttachRequest } from "../lib/policy/attach_request.ts";
import { throwIfSignalled } from "../lib/protocol/signal.ts";

export type PodAnswer = AttachAnswer | { readonly problem: string };

/** A longer answer is nonsense. */
const MAX_ANSWER_BYTES = 65_536;

export function askPart(path: string, question: AttachRequest, waitMs: number): PodAnswer {
  try {
    return ask(path, question, waitMs);
  } catch (error) {
    if (!(error instanceof SystemError || error instanceof SyntaxError)) throw error;
    return { problem: error.message };
  }
}

export function isPartListening(path: string): boolean {
  try {
    using connection = connectTo(path, SOCK_STREAM);
    return connection !== undefined;
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    return false;
  }
}

function ask(path: string, question: AttachRequest, waitMs: number): PodAnswer {
  const deadline = performance.now() + waitMs;
  using connection = connectTo(path, SOCK_STREAM);
  if (!connection) return { problem: `nobody listens at "${path}"` };
  const line = new TextEncoder().encode(`${JSON.stringify(question)}\n`);
  if (sendAvailable(connection.fd, line) !== line.length) return { problem: `"${path}" takes no question` };
  const decoder = new TextDecoder();
  let text = "";
  while (!text.includes("\n") && text.length < MAX_ANSWER_BYTES) {
    const remainingMs = Math.ceil(deadline - performance.now());
    if (remainingMs <= 0 || !awaitReadable(connection.fd, remainingMs)) {
      throwIfSignalled();
      return { problem: `no answer came in ${waitMs} ms` };
    }
    const bytes = receiveAvailable(connection.fd);
    if (bytes?.length === 0) return { problem: "it ended without an answer" };
    if (bytes) text += decoder.decode(bytes, { stream: true });
  }
  return readAnswer(text);
}

function readAnswer(text: string): PodAnswer {
  const answer = parseJson(text, "the answer");
  const { state, error } = isJsonObject(answer) ? answer : {};
  if (state === "enforced" || state === "closed") return { state };
  return { problem: typeof error === "string" ? error : `its answer is ${text.trim().slice(0, 100)}` };
}
