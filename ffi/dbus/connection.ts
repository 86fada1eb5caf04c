import { EACCES, ECONNRESET, EMSGSIZE, ETIMEDOUT } from "../sys/errno.ts";
import { ignoreErrors, SystemError, withPurpose } from "../sys/error.ts";
import { awaitReadable } from "../sys/poll.ts";
import { sys } from "../sys/libc.ts";
import { observeQuery, observer } from "../sys/observer.ts";
import { AF_UNIX, MSG_DONTWAIT, MSG_NOSIGNAL, SOCK_CLOEXEC, SOCK_STREAM, SOL_SOCKET } from "../sys/uapi.ts";
import { decodeMethodReply, encodeMethodCall, messageLength, type MethodCall, type MethodReply } from "./message.ts";

const SO_SNDTIMEO = 21;

const SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket";
/** A firewall answers after rebuilding its rules. */
const REPLY_TIMEOUT_MS = 20_000;
const MAX_MESSAGE_BYTES = 1 << 20;

export interface DbusConnection extends Disposable {
  readonly fd: number;
  /** Returns the answer's text or boolean, if any. @throws {DbusError} */
  call(call: MethodCall): string | boolean | undefined;
  /** Does not wait for more. @throws {SystemError} `ECONNRESET` if the bus is gone */
  takeWaiting(): Uint8Array[];
}

export class DbusError extends Error {
  override readonly name: string = "DbusError";
  readonly errorName: string;

  constructor(call: MethodCall, errorName: string, text: string) {
    super(
      `Cannot call ${call.member}(${call.args.map((arg) => JSON.stringify(arg)).join(", ")}) over D-Bus: ${
        text || errorName
      }`,
    );
    this.errorName = errorName;
  }
}

/**
 * @returns `undefined` if nobody listens
 * @throws {SystemError} `ETIMEDOUT` if a listener does not answer in `timeoutMs`
 */
export function findSystemBus(
  address: string = SYSTEM_BUS,
  timeoutMs: number = REPLY_TIMEOUT_MS,
): DbusConnection | undefined {
  for (const socketAddress of socketAddresses(address)) {
    const fd = sys.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    try {
      // A call of its own observes what changes something there.
      if (observeQuery(address, () => connect(fd, socketAddress, timeoutMs))) return authenticate(fd, timeoutMs);
    } catch (error) {
      sys.close(fd);
      throw error;
    }
    sys.close(fd);
  }
  return undefined;
}

/** `addresses`: `unix:path=/run/bus,guid=…;unix:abstract=…`, with `%20` for a blank. */
function socketAddresses(addresses: string): Uint8Array[] {
  return addresses.split(";").flatMap((address) => {
    const [, kind, value] = /^unix:(?:.*,)?(path|abstract)=([^,]+)/.exec(address) ?? [];
    if (value === undefined) return [];
    const text = value.replace(/%([0-9a-fA-F]{2})/g, (_, code) => String.fromCharCode(parseInt(code, 16)));
    const name = new TextEncoder().encode(kind === "path" ? text : `\0${text}`);
    // struct sockaddr_un; a path ends with a NUL.
    return [Uint8Array.of(AF_UNIX, 0, ...name, ...kind === "path" ? [0] : [])];
  });
}

function connect(fd: number, socketAddress: Uint8Array, timeoutMs: number): boolean {
  const NO_LISTENER_CODES = ["ENOENT", "ECONNREFUSED", "ENOTDIR", "EACCES"];
  // struct timeval: 64-bit seconds and microseconds; bounds connect(2) too.
  sys.setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, new Uint32Array([Math.ceil(timeoutMs / 1000), 0, 0, 0]), 16);
  return ignoreErrors(NO_LISTENER_CODES, () => sys.connect(fd, socketAddress, socketAddress.length)) !==
    undefined;
}

function authenticate(fd: number, timeoutMs: number): DbusConnection {
  const stream = newByteStream(fd, timeoutMs);
  const uid = Buffer.from(String(process.getuid?.() ?? 0)).toString("hex");
  stream.send(new TextEncoder().encode(`\0AUTH EXTERNAL ${uid}\r\n`));
  const reply = stream.receiveLine();
  if (!reply.startsWith("OK ")) throw new SystemError("recv", EACCES, "use the D-Bus socket", reply.trim());
  stream.send(new TextEncoder().encode("BEGIN\r\n"));
  let serial = 0;
  const bus: DbusConnection = {
    fd,
    takeWaiting: () => stream.takeWaiting(),
    call(call) {
      const run = () => {
        stream.send(encodeMethodCall(call, ++serial));
        const reply = receiveReply(stream, serial);
        if (reply.error !== undefined) throw new DbusError(call, reply.error, String(reply.value ?? ""));
        return reply.value;
      };
      return observer ? observer({ kind: "dbus", ...call }, run) : run();
    },
    [Symbol.dispose]: () => void sys.close(fd),
  };
  bus.call({ ...BUS_OBJECT, member: "Hello", args: [] });
  return bus;
}

export const BUS_OBJECT = {
  destination: "org.freedesktop.DBus",
  path: "/org/freedesktop/DBus",
  interface: "org.freedesktop.DBus",
} as const;

function receiveReply(stream: ByteStream, serial: number): MethodReply {
  for (;;) {
    const length = messageLength(stream.peek(16));
    if (length > MAX_MESSAGE_BYTES) throw new SystemError("recv", EMSGSIZE, "read an answer over D-Bus");
    const reply = decodeMethodReply(stream.take(length));
    if (reply?.replySerial === serial) return reply;
  }
}

/** Each `send` starts the time limit of the answer. */
interface ByteStream {
  send(bytes: Uint8Array): void;
  receiveLine(): string;
  peek(length: number): Uint8Array;
  take(length: number): Uint8Array;
  takeWaiting(): Uint8Array[];
}

function newByteStream(fd: number, timeoutMs: number): ByteStream {
  let received: Uint8Array<ArrayBufferLike> = new Uint8Array();
  let deadline = 0;
  const awaitMore = () => {
    const remainingMs = Math.ceil(deadline - performance.now());
    if (remainingMs <= 0 || !awaitReadable(fd, remainingMs)) {
      throw new SystemError("poll", ETIMEDOUT, "get an answer over D-Bus");
    }
    receiveNow();
  };
  const receiveNow = () => {
    const buffer = new Uint8Array(4096);
    const length = withPurpose("get an answer over D-Bus", () => sys.recv(fd, buffer, buffer.length, MSG_DONTWAIT));
    if (length === 0) throw new SystemError("recv", ECONNRESET, "get an answer over D-Bus");
    received = Buffer.concat([received, buffer.subarray(0, length)]);
  };
  const peek = (length: number) => {
    while (received.length < length) awaitMore();
    return received.subarray(0, length);
  };
  const take = (length: number) => {
    const taken = peek(length);
    received = received.subarray(length);
    return taken;
  };
  return {
    send(bytes) {
      deadline = performance.now() + timeoutMs;
      for (let sent = 0; sent < bytes.length;) {
        const rest = bytes.subarray(sent);
        sent += withPurpose("send over D-Bus", () => sys.send(fd, rest, rest.length, MSG_NOSIGNAL));
      }
    },
    receiveLine() {
      while (!received.includes(10)) {
        if (received.length > MAX_MESSAGE_BYTES) throw new SystemError("recv", EMSGSIZE, "read an answer over D-Bus");
        awaitMore();
      }
      return new TextDecoder().decode(take(received.indexOf(10) + 1));
    },
    peek,
    take,
    takeWaiting() {
      while (awaitReadable(fd, 0)) receiveNow();
      const messages: Uint8Array[] = [];
      while (received.length >= 16 && received.length >= messageLength(received)) {
        messages.push(take(messageLength(received)));
      }
      if (received.length > MAX_MESSAGE_BYTES) throw new SystemError("recv", EMSGSIZE, "read a message over D-Bus");
      return messages;
    },
  };
}
