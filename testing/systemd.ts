/** What systemd does for a service: it hears notifications, and passes a socket on. @module */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Descriptor, descriptor } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { awaitReadable } from "../ffi/sys/poll.ts";
import { AF_UNIX, SOCK_CLOEXEC, SOCK_DGRAM, SOCK_SEQPACKET } from "../ffi/sys/uapi.ts";
import { listenOn, socketAddress } from "../ffi/sys/unix_socket.ts";

/** The manager of a service. */
export interface ServiceManager extends Disposable {
  /** The environment of a service that says when it is ready. */
  readonly env: { readonly NOTIFY_SOCKET: string };
  /** What services have said since the last call. */
  messages(): string[];
}

/** A command that sets LISTEN_PID to its own process number, and executes its arguments. */
export const WITH_LISTEN_PID = ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh"];

/** A socket as systemd makes it for a service: it is bound to its path. It goes with its scope, the file stays. */
export function newActivatedSocket(path: string, type = SOCK_SEQPACKET): Descriptor {
  const socket = descriptor(sys.socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const address = socketAddress(path);
  sys.bind(socket.fd, address, address.length);
  sys.chmod(path, 0o600);
  listenOn(socket.fd);
  return socket;
}

/** A socket that hears what services tell systemd. */
export function newServiceManager(): ServiceManager {
  const directory = mkdtempSync(join(tmpdir(), "cni-systemd-"));
  const path = join(directory, "notify");
  const socket = descriptor(sys.socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const address = socketAddress(path);
  sys.bind(socket.fd, address, address.length);
  return {
    env: { NOTIFY_SOCKET: path },
    messages() {
      const received: string[] = [];
      const buffer = new Uint8Array(4096);
      while (awaitReadable(socket.fd, 0)) {
        const length = sys.recv(socket.fd, buffer, buffer.length, 0);
        received.push(new TextDecoder().decode(buffer.subarray(0, length)));
      }
      return received;
    },
    [Symbol.dispose]() {
      socket[Symbol.dispose]();
      rmSync(directory, { recursive: true });
    },
  };
}
