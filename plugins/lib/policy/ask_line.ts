/** Asks a part of `cni serve` over its socket: a line of JSON there, and one back. @module */
import { receiveAvailable, sendAvailable } from "../../../ffi/sys/stream_socket.ts";
import { awaitReadable } from "../../../ffi/sys/poll.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { SOCK_NONBLOCK, SOCK_STREAM } from "../../../ffi/sys/uapi.ts";
import { connectTo } from "../../../ffi/sys/unix_socket.ts";
import { parseJson } from "../../../spec/jsonc.ts";
import { isJsonObject, type JsonObject } from "../../../spec/schema.ts";

export type LineAnswer = { readonly answer: JsonObject } | LineProblem;

export interface LineProblem {
  readonly problem: string;
  /** Somebody listens, and has not answered in time. Nobody does if `isAbsent`. */
  readonly isLate?: boolean;
  readonly isAbsent?: boolean;
}

/** A longer one is nonsense. */
const MAX_ANSWER_BYTES = 16 * 1024 * 1024;

/** A signal ends the wait. */
export function askLine(path: string, question: object, waitMs: number): LineAnswer {
  try {
    return ask(path, question, waitMs);
  } catch (error) {
    if (!(error instanceof SystemError || error instanceof SyntaxError)) throw error;
    // Its queue is full: somebody listens, and answers nobody.
    const isLate = error instanceof SystemError && error.code === "EAGAIN";
    return { problem: error.message, ...isLate && { isLate } };
  }
}

function ask(path: string, question: object, waitMs: number): LineAnswer {
  const deadline = performance.now() + waitMs;
  using connection = connectTo(path, SOCK_STREAM | SOCK_NONBLOCK);
  if (!connection) return { problem: `nobody listens at "${path}"`, isAbsent: true };
  const line = new TextEncoder().encode(`${JSON.stringify(question)}\n`);
  if (sendAvailable(connection.fd, line) !== line.length) return { problem: `"${path}" takes no question` };
  const pieces: Uint8Array[] = [];
  let length = 0;
  while (pieces.at(-1)?.at(-1) !== NEWLINE) {
    const remainingMs = Math.ceil(deadline - performance.now());
    if (remainingMs <= 0 || !awaitReadable(connection.fd, remainingMs)) {
      return { problem: `no answer came in ${waitMs} ms`, isLate: true };
    }
    const bytes = receiveAvailable(connection.fd);
    if (!bytes) continue;
    if (bytes.length === 0) return { problem: "it ended without an answer" };
    length += bytes.length;
    if (length > MAX_ANSWER_BYTES) return { problem: `its answer has more than ${MAX_ANSWER_BYTES} bytes` };
    pieces.push(bytes);
  }
  return readAnswer(new TextDecoder().decode(Buffer.concat(pieces)));
}

const NEWLINE = 0x0a;

function readAnswer(text: string): LineAnswer {
  const answer = parseJson(text, "the answer");
  if (!isJsonObject(answer)) return { problem: `its answer is ${text.trim().slice(0, 100)}` };
  if (typeof answer.error === "string") return { problem: answer.error };
  return { answer };
}
