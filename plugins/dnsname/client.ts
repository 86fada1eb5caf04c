/** Tells the server what changed, and waits until it serves that. */
import type { Descriptor } from "../../ffi/sys/file.ts";
import { observeQuery, observer, type ServerRehearsal } from "../../ffi/sys/observer.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import { connectTo, receivePacket, sendPacket } from "../../ffi/sys/unix_socket.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { parseJson } from "../../spec/jsonc.ts";
import { MAX_MESSAGE_BYTES, PROTOCOL_VERSION, replySchema, type ServerReply, type ServerRequest } from "./protocol.ts";

/** A server that has just been started reads the records of all containers first. */
const REPLY_TIMEOUT_MS = 15_000;

/** `undefined` if no server runs. @throws {CniError} code 11 if it does not answer */
export function askNameServer(
  socketPath: string,
  request: Omit<ServerRequest, "version">,
): ServerReply | undefined {
  const { command, file } = request;
  const ask = () => exchange(socketPath, request);
  if (command === "look") return observeQuery(socketPath, ask);
  if (!observer) return ask();
  const sentence = `read the names of "${file}" again`;
  const rehearse = ({ tell }: ServerRehearsal) => {
    // It would look for a record that a dry run does not write.
    const reply = askNameServer(socketPath, { command: "look" });
    if (reply) tell(sentence);
    return reply;
  };
  return observer({ kind: "server", socketPath, sentence, rehearse }, ask);
}

function exchange(socketPath: string, request: Omit<ServerRequest, "version">): ServerReply | undefined {
  using connection = connectTo(socketPath);
  if (!connection) return undefined;
  const message = JSON.stringify({ version: PROTOCOL_VERSION, ...request });
  if (!sendPacket(connection.fd, new TextEncoder().encode(message))) throw silentError(socketPath, "it hung up");
  return receiveReply(connection, socketPath);
}

function receiveReply({ fd }: Descriptor, socketPath: string): ServerReply {
  if (!awaitReadable(fd, REPLY_TIMEOUT_MS)) throw silentError(socketPath, `for ${REPLY_TIMEOUT_MS / 1000} s`);
  const { bytes } = receivePacket(fd, new Uint8Array(MAX_MESSAGE_BYTES));
  if (bytes.length === 0) throw silentError(socketPath, "it hung up");
  try {
    return replySchema.parse(parseJson(new TextDecoder().decode(bytes), "its answer"));
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof ConfigError)) throw error;
    throw new CniError(Code.DecodeFailure, `Cannot use the answer of the server at "${socketPath}"`, {
      details: `${error.message}; a server of another version runs: cni serve --replace`,
    });
  }
}

function silentError(socketPath: string, how: string): CniError {
  return new CniError(Code.TryAgainLater, `The server at "${socketPath}" gives no answer: ${how}`, {
    details: "its log says more; cni serve --status shows whether it runs",
  });
}
