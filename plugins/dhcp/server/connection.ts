/** Connections of plugins: one request, one answer. @module */
import type { Descriptor } from "../../../ffi/sys/file.ts";
import { receiveAvailable, sendAvailable } from "../../../ffi/sys/stream_socket.ts";
import { ConfigError } from "../../../spec/error.ts";
import { parseJson } from "../../../spec/jsonc.ts";
import { type LineBuffer, newLineBuffer } from "../lines.ts";
import { dhcpRequest, type DhcpServerAnswer, type DhcpServerRequest } from "../protocol.ts";

export interface Connection extends Descriptor {
  readonly received: LineBuffer;
}

export const newConnection = (socket: Descriptor): Connection => ({ ...socket, received: newLineBuffer() });

/** A whole request; `gone` if the other side has closed; `undefined` while there is more to come. */
export function readLeaseRequest(connection: Connection): DhcpServerRequest | "gone" | Error | undefined {
  const bytes = receiveAvailable(connection.fd);
  if (bytes?.length === 0) return "gone";
  try {
    const line = bytes && connection.received.add(bytes);
    return line === undefined ? undefined : dhcpRequest.parse(parseJson(line, "request"));
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof ConfigError) return error;
    throw error;
  }
}

/** The connection's buffer is empty, and takes every answer. The other side may be gone. */
export function sendAnswer({ fd }: Connection, answer: DhcpServerAnswer): void {
  sendAvailable(fd, new TextEncoder().encode(`${JSON.stringify(answer)}\n`));
}
