/** Bytes over stream sockets, without waiting. @see unix(7) @module */
import { ignoreErrors, SystemError } from "./error.ts";
import { sys } from "./libc.ts";
import { MSG_DONTWAIT, MSG_NOSIGNAL } from "./uapi.ts";

/** Returns nothing at the end, `undefined` if nothing has come. */
export function receiveAvailable(fd: number): Uint8Array | undefined {
  const buffer = new Uint8Array(4096);
  try {
    return buffer.subarray(0, sys.recv(fd, buffer, buffer.length, MSG_DONTWAIT));
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    if (error.code === "EAGAIN") return undefined;
    if (error.code === "ECONNRESET") return new Uint8Array();
    throw error;
  }
}

/** Returns how many bytes the connection took; `undefined` if the other side is gone. */
export function sendAvailable(fd: number, bytes: Uint8Array): number | undefined {
  return ignoreErrors(
    ["EPIPE", "ECONNRESET"],
    () => ignoreErrors(["EAGAIN"], () => sys.send(fd, bytes, bytes.length, MSG_DONTWAIT | MSG_NOSIGNAL)) ?? 0,
  );
}
