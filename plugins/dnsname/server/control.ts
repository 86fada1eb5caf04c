/** What plugins tell the server. */
import type { EventPoll } from "../../../ffi/sys/event_poll.ts";
import { ignoreErrors, ignoreSystemErrors, SystemError } from "../../../ffi/sys/error.ts";
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { sys } from "../../../ffi/sys/libc.ts";
import { F_SETFL, O_NONBLOCK } from "../../../ffi/sys/uapi.ts";
import { acceptConnection, receivePacket, sendPacket } from "../../../ffi/sys/unix_socket.ts";
import { ConfigError } from "../../../spec/error.ts";
import { parseJson } from "../../../spec/jsonc.ts";
import {
  MAX_MESSAGE_BYTES,
  PROTOCOL_VERSION,
  requestSchema,
  type ServerReply,
  type ServerRequest,
} from "../protocol.ts";
import type { Acceptor } from "./acceptor.ts";

type Answer = (request: ServerRequest) => Omit<ServerReply, "version">;

/** Answers those that connect to the socket. Root alone can, who may do all this without the server. */
export function serveControl(poll: EventPoll, acceptor: Acceptor, listener: number, answer: Answer): void {
  // A server that this one replaces may take the connection first.
  sys.fcntl(listener, F_SETFL, O_NONBLOCK);
  acceptor.listen(listener, () => {
    const connection = ignoreErrors(["EAGAIN", "ECONNABORTED"], () => acceptConnection(listener));
    if (!connection) return;
    const hangUp = () => {
      poll.forget(connection.fd);
      connection[Symbol.dispose]();
    };
    // Without memory, the client has to try again.
    const answerOrHangUp = () => ignoreSystemErrors(() => answerNext(connection, answer)) || hangUp();
    try {
      poll.onReadable(connection.fd, answerOrHangUp);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      hangUp();
    }
  });
}

/** False if the other side is gone. */
function answerNext({ fd }: Descriptor, answer: Answer): boolean {
  const { bytes } = receivePacket(fd, new Uint8Array(MAX_MESSAGE_BYTES));
  if (bytes.length === 0) return false;
  const reply = { version: PROTOCOL_VERSION, ...answerMessage(bytes, answer) };
  return sendPacket(fd, new TextEncoder().encode(JSON.stringify(reply)));
}

function answerMessage(bytes: Uint8Array, answer: Answer): Omit<ServerReply, "version"> {
  try {
    return answer(requestSchema.parse(parseJson(new TextDecoder().decode(bytes), "the request")));
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof ConfigError)) throw error;
    return { problems: [], refused: error.message };
  }
}
