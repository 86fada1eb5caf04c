/** Connections of plugins: one request, one answer. @module */
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { receiveAvailable, sendAvailable } from "../../../ffi/sys/stream_socket.ts";
import { ConfigError } from "../../../spec/error.ts";
import { parseJson } from "../../../spec/jsonc.ts";
import { dhcpRequest, type DhcpServerAnswer, type DhcpServerRequest, MAX_LINE_BYTES } from "../protocol.ts";

export interface Connection extends Descriptor {
  received: Uint8Array;
}

export const newConnection = (socket: Descriptor): Connection => ({ ...socket, received: new Uint8Array() });

/** A whole request; `gone` if the other side has closed; `undefined` while there is more to come. */
export function readLeaseRequest(connection: Connection): DhcpServerRequest | "gone" | Error | undefined {
  const bytes = receiveAvailable(connection.fd);
  if (bytes?.length === 0) return "gone";
  if (bytes) connection.received = Uint8Array.of(...connection.received, ...bytes);
  const { received } = connection;
  const end = received.indexOf(0x0a);
  if (end < 0 && received.length < MAX_LINE_BYTES) return undefined;
  try {
    return dhcpRequest.parse(parseJson(new TextDecoder().decode(received.subarray(0, end)), "request"));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof ConfigError) return error;
    throw error;
  }
}

/** The connection's buffer is empty, and takes every answer. The other side may be gone. */
export function sendAnswer({ fd }: Connection, answer: DhcpServerAnswer): void {
  sendAvailable(fd, new TextEncoder().encode(`${JSON.stringify(answer)}\n`));
}
