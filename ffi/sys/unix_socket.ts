/** Sockets between processes of this machine: messages with descriptors. @see unix(7) @module */
import { ignoreErrors, ignoreSystemErrors, SystemError, withPurpose } from "./error.ts";
import { type Descriptor, descriptor, removeFile, renameFile } from "./file.ts";
import { sys } from "./libc.ts";
import { newReceivedMessage, scmRightsMessage } from "./msghdr.ts";
import { awaitReadable } from "./poll.ts";
import { AF_UNIX, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_SEQPACKET, SOL_SOCKET } from "./uapi.ts";

const SYS_shutdown = process.arch === "arm64" ? 210 : 48;
// asm-generic/socket.h, linux/socket.h
const SO_TYPE = 3;
const SO_ACCEPTCONN = 30;
const SO_PEERCRED = 17;
// SO_PEERPIDFD, since Linux 6.5: the headers of Debian 12 are older.
const PEER_PIDFD = 77;
const MSG_CMSG_CLOEXEC = 0x40000000;
// The kernel lowers it to net.core.somaxconn.
const BACKLOG = 65_535;
// struct sockaddr_un
const MAX_PATH_BYTES = 107;

export interface Message {
  readonly bytes: Uint8Array;
  readonly fds: readonly number[];
}

export interface PeerCredentials {
  readonly pid: number;
  readonly uid: number;
  /** Whether `pid` may be another process now. Always false before Linux 6.5. */
  hasEnded(): boolean;
}

/** Only root may use it, and it refuses connections until {@linkcode listenOn}. Replaces a file at `path`. */
export function bindSocket(path: string, type = SOCK_SEQPACKET): Descriptor {
  const socket = newSocket(type);
  // Nobody connects before it has its mode.
  const temporary = `${path}.${process.pid}.tmp`;
  try {
    withPurpose(`listen on "${path}"`, () => {
      removeFile(temporary);
      const address = socketAddress(temporary);
      sys.bind(socket.fd, address, address.length);
      sys.chmod(temporary, 0o600);
      renameFile(temporary, path);
    });
    return socket;
  } catch (error) {
    socket[Symbol.dispose]();
    ignoreSystemErrors(() => removeFile(temporary));
    throw error;
  }
}

export function listenAt(path: string, type?: number): Descriptor {
  const socket = bindSocket(path, type);
  listenOn(socket.fd);
  return socket;
}

export const isListening = (fd: number): boolean => socketOption(fd, SO_ACCEPTCONN, 1)[0] === 1;

/** Of one that listens already, clients see from now on that this process listens. */
export function listenOn(fd: number): void {
  sys.listen(fd, BACKLOG);
}

/** Returns `undefined` if nobody listens. @throws {SystemError} `EPROTOTYPE` if its type is another */
export function connectTo(path: string, type = SOCK_SEQPACKET): Descriptor | undefined {
  const address = socketAddress(path);
  using resources = new DisposableStack();
  const socket = resources.use(newSocket(type));
  const connected = ignoreErrors(
    ["ENOENT", "ECONNREFUSED", "ENOTDIR"],
    () => withPurpose(`connect to "${path}"`, () => sys.connect(socket.fd, address, address.length)),
  );
  if (connected === undefined) return undefined;
  resources.move();
  return socket;
}

/** Whether somebody takes connections there, or would if fewer waited. */
export function isListenedAt(path: string, type: number = SOCK_SEQPACKET): boolean {
  try {
    const connection = connectTo(path, type | SOCK_NONBLOCK);
    connection?.[Symbol.dispose]();
    return connection !== undefined;
  } catch (error) {
    // A socket of another type, or a full queue: EPROTOTYPE, EAGAIN.
    if (error instanceof SystemError) return true;
    throw error;
  }
}

function newSocket(type: number): Descriptor {
  return descriptor(sys.socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
}

/** An address that begins with `@` is abstract. @throws {RangeError} if it is too long */
export function socketAddress(path: string): Uint8Array {
  const bytes = new TextEncoder().encode(path);
  if (bytes.length > MAX_PATH_BYTES) {
    throw new RangeError(`Cannot use "${path}" as a socket: the path has more than ${MAX_PATH_BYTES} bytes`);
  }
  if (path.startsWith("@")) return Uint8Array.of(AF_UNIX, 0, 0, ...bytes.subarray(1));
  return Uint8Array.of(AF_UNIX, 0, ...bytes, 0);
}

/** Returns SOCK_…; `undefined` for what is no socket. */
export function findSocketType(fd: number): number | undefined {
  return ignoreErrors(["ENOTSOCK", "EBADF"], () => socketOption(fd, SO_TYPE, 1)[0]);
}

/** Returns what it was bound to, wherever that file is now; `undefined` for what is no socket of a file. */
export function boundPath(fd: number): string | undefined {
  const address = new Uint8Array(MAX_PATH_BYTES + 3);
  const length = new Uint32Array([address.length]);
  const found = ignoreErrors(["ENOTSOCK", "EBADF"], () => sys.getsockname(fd, address, length));
  const [family, , first] = address;
  if (found === undefined || family !== AF_UNIX || !first) return undefined;
  const path = address.subarray(2, length[0]);
  const end = path.indexOf(0);
  return new TextDecoder().decode(end < 0 ? path : path.subarray(0, end));
}

export function acceptConnection(fd: number): Descriptor {
  return descriptor(sys.accept4(fd, null, null, SOCK_CLOEXEC));
}

/** Refuses those who connect from now on, and those who wait. */
export function refuseConnections(fd: number): void {
  // SHUT_RD is 0, which syscall() takes for a pointer here.
  sys.syscall(SYS_shutdown, fd, null, 0, 0);
  for (;;) {
    // It fails once nobody waits.
    const connection = ignoreErrors(["EINVAL", "EAGAIN"], () => acceptConnection(fd));
    if (!connection) return;
    connection[Symbol.dispose]();
  }
}

export function peerCredentials(fd: number): PeerCredentials {
  const [pid = 0, uid = 0] = socketOption(fd, SO_PEERCRED, 3);
  return { pid, uid, hasEnded: () => hasPeerEnded(fd) };
}

function hasPeerEnded(fd: number): boolean {
  try {
    using pidfd = descriptor(socketOption(fd, PEER_PIDFD, 1)[0]!);
    return awaitReadable(pidfd.fd, 0);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    return error.code !== "ENOPROTOOPT";
  }
}

function socketOption(fd: number, option: number, words: number): Uint32Array {
  const value = new Uint32Array(words);
  sys.getsockopt(fd, SOL_SOCKET, option, value, new Uint32Array([words * 4]));
  return value;
}

/** Returns an empty message if the other side is gone. */
export function receivePacket(fd: number, buffer: Uint8Array, maxFds = 0): Message {
  const message = newReceivedMessage(buffer, maxFds);
  const length = ignoreErrors(["ECONNRESET"], () => sys.recvmsg(fd, message.header, MSG_CMSG_CLOEXEC)) ?? 0;
  return { bytes: buffer.subarray(0, length), fds: message.fds() };
}

/** Returns false if the other side is gone. */
export function sendPacket(fd: number, bytes: Uint8Array): boolean {
  return isSent(() => sys.send(fd, bytes, bytes.length, MSG_NOSIGNAL));
}

export function sendDescriptors(fd: number, bytes: Uint8Array, fds: readonly number[]): boolean {
  return isSent(() => sys.sendmsg(fd, scmRightsMessage(fds, bytes), MSG_NOSIGNAL));
}

const isSent = (send: () => number): boolean => ignoreErrors(["EPIPE", "ECONNRESET"], send) !== undefined;

export function packetSocketPair(): readonly [Descriptor, Descriptor] {
  const ends = new Int32Array(2);
  sys.socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
  return [descriptor(ends[0]!), descriptor(ends[1]!)];
}
