/** Tells the server what changed, and waits until it serves that. */
import type { Netns } from "../../ffi/netns/netns.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import type { Descriptor } from "../../ffi/sys/file.ts";
import { observeQuery, observer, type ServerRehearsal } from "../../ffi/sys/observer.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import { SOCK_NONBLOCK, SOCK_SEQPACKET } from "../../ffi/sys/uapi.ts";
import { connectTo, receivePacket, sendPacket } from "../../ffi/sys/unix_socket.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { parseJson } from "../../spec/jsonc.ts";
import { answerTimeoutMs, isServerBusy, MAX_BUSY_WAITS, noteSilence } from "../lib/protocol/silent_servers.ts";
import type { DnsnameConfig } from "./config.ts";
import { MAX_MESSAGE_BYTES, PROTOCOL_VERSION, replySchema, type ServerReply, type ServerRequest } from "./protocol.ts";

/** A server that has just been started reads the records of all containers first: 5,000 in half a second. */
const REPLY_TIMEOUT_MS = 2000;

/** Where the server listens, and where it keeps its records. */
export type NameServerPlace = Pick<DnsnameConfig, "daemonSocketPath" | "dataDir">;

/** `undefined` if no server runs. @throws {CniError} code 11 if it does not answer */
export function askNameServer(
  host: Netns,
  place: NameServerPlace,
  request: Omit<ServerRequest, "version">,
  timeoutMs = REPLY_TIMEOUT_MS,
): ServerReply | undefined {
  const { command, file } = request;
  const { daemonSocketPath: socketPath } = place;
  const ask = () => {
    const limitMs = answerTimeoutMs(host, socketPath, timeoutMs);
    try {
      return exchange(place, request, limitMs);
    } catch (error) {
      if (error instanceof SilentServerError) noteSilence(host, socketPath);
      throw error;
    }
  };
  if (command === "look") return observeQuery(socketPath, ask);
  if (!observer) return ask();
  const sentence = `read the names of "${file}" again`;
  const rehearse = ({ tell }: ServerRehearsal) => {
    // It would look for a record that a dry run does not write.
    const reply = askNameServer(host, place, { command: "look" }, timeoutMs);
    if (reply) tell(sentence);
    return reply;
  };
  return observer({ kind: "server", socketPath, sentence, rehearse }, ask);
}

/** A server that ends hangs up. The next one, which has the same socket, gets the request then. */
const MAX_SERVERS = 2;

/** Without a time limit, the server reads the request once it goes on. */
function exchange(
  place: NameServerPlace,
  request: Omit<ServerRequest, "version">,
  timeoutMs: number,
): ServerReply | undefined {
  const { daemonSocketPath: socketPath } = place;
  const message = new TextEncoder().encode(JSON.stringify({ version: PROTOCOL_VERSION, ...request }));
  for (let servers = 0; servers < MAX_SERVERS; servers++) {
    using connection = connect(socketPath);
    if (!connection) return undefined;
    const reply = sendPacket(connection.fd, message) && receiveReply(connection, place, timeoutMs);
    if (reply) return reply;
  }
  throw silentError(socketPath, "it hung up");
}

/** A server that hangs does not take connections, and the queue for them ends. */
function connect(socketPath: string): Descriptor | undefined {
  try {
    return connectTo(socketPath, SOCK_SEQPACKET | SOCK_NONBLOCK);
  } catch (error) {
    if (!(error instanceof SystemError && error.code === "EAGAIN")) throw error;
    throw silentError(socketPath, "too many wait for it");
  }
}

/** `undefined` if the server has hung up. */
function receiveReply(
  { fd }: Descriptor,
  { daemonSocketPath: socketPath, dataDir }: NameServerPlace,
  timeoutMs: number,
): ServerReply | undefined {
  if (!awaitReply(fd, dataDir, timeoutMs)) {
    throw silentError(socketPath, timeoutMs === 0 ? "as to an earlier question" : `for ${timeoutMs / 1000} s`);
  }
  const { bytes } = receivePacket(fd, new Uint8Array(MAX_MESSAGE_BYTES));
  if (bytes.length === 0) return undefined;
  try {
    return replySchema.parse(parseJson(new TextDecoder().decode(bytes), "its answer"));
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof ConfigError)) throw error;
    throw new CniError(Code.DecodeFailure, `Cannot use the answer of the server at "${socketPath}"`, {
      details: `${error.message}; a server of another version runs: cni serve --replace`,
    });
  }
}

function awaitReply(fd: number, stateDirectory: string, timeoutMs: number): boolean {
  for (let waits = 0; !awaitReadable(fd, timeoutMs); waits++) {
    // It may have answered meanwhile.
    if (waits === MAX_BUSY_WAITS || !isServerBusy(stateDirectory)) return awaitReadable(fd, 0);
  }
  return true;
}

class SilentServerError extends CniError {}

function silentError(socketPath: string, how: string): CniError {
  return new SilentServerError(Code.TryAgainLater, `The server at "${socketPath}" gives no answer: ${how}`, {
    details: "its log says more; cni serve --status shows whether it runs",
  });
}
