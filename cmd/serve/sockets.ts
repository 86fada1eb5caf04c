import { ensureDirectory } from "../../ffi/sys/directory.ts";
import { type Descriptor, descriptor, removeFile } from "../../ffi/sys/file.ts";
import { sys } from "../../ffi/sys/libc.ts";
import { lockFile } from "../../ffi/sys/lock.ts";
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import { F_SETFL, O_NONBLOCK } from "../../ffi/sys/uapi.ts";
import {
  bindSocket,
  connectTo,
  isPacketSocket,
  listenAt,
  type Message,
  receivePacket,
  sendPacket,
} from "../../ffi/sys/unix_socket.ts";

export const DEFAULT_SOCKET = "/run/cni/cni.sock";

export interface ServerSockets {
  readonly path: string;
  /** Shims connect to it; workers accept. */
  readonly listener: Descriptor;
  /** `cni serve --status` and `--replace` connect to it; the supervisor accepts. */
  readonly control: Descriptor;
  /** Whether systemd made the listener, and keeps it. */
  readonly isActivated: boolean;
  /** The connection to the server that gave the sockets, and waits for a word to end. */
  readonly predecessor?: Descriptor;
  /** Those of the predecessor's parts, by name. */
  readonly ofParts: ReadonlyMap<string, Descriptor>;
  /** Files in which shims and commands find the sockets. */
  readonly names: readonly SocketName[];
}

/** A socket's file, as it was made. */
export interface SocketName {
  readonly path: string;
  /** Absent if it was removed at once. */
  readonly identity: string | undefined;
}

export const socketName = (path: string): SocketName => ({
  path,
  identity: ignoreSystemErrors(() => findStat(path)?.identity),
});

/** Whether somebody removed it, or put another file in its place: then nobody reaches the socket by it. */
export const isLost = ({ path, identity }: SocketName): boolean =>
  identity === undefined || socketName(path).identity !== identity;

/** Leaves what others have put in its place. */
export function removeSocketName(name: SocketName): void {
  if (!isLost(name)) removeFile(name.path);
}

const LOCK_TIMEOUT_MS = 5000;
const ANSWER_TIMEOUT_MS = 5000;

/** What the kernel allows, without the longest name that is made of it: `….control.4194304.tmp`. */
const MAX_PATH_BYTES = 87;

export const lockPath = (path: string): string => `${path}.lock`;
const controlPath = (path: string): string => `${path}.control`;

/**
 * Makes the sockets, or takes those of systemd or of a server that is to be replaced.
 *
 * @throws {RangeError} if another server listens there, or if the path is too long
 */
export function openSockets(
  path: string,
  replace: boolean,
  env: Readonly<Record<string, string | undefined>>,
): ServerSockets {
  const length = new TextEncoder().encode(path).length;
  if (length > MAX_PATH_BYTES) {
    throw new RangeError(
      `Cannot listen on "${path}": the path has ${length} bytes, at most ${MAX_PATH_BYTES} are possible`,
    );
  }
  ensureDirectory(path.slice(0, path.lastIndexOf("/")), 0o700);
  using _lock = lockFile(lockPath(path), { timeoutMs: LOCK_TIMEOUT_MS });
  const predecessor = connectTo(controlPath(path));
  if (predecessor && replace) return withoutWaiting(takeOver(path, predecessor));
  if (predecessor) {
    predecessor[Symbol.dispose]();
    throw new RangeError(`Cannot listen on "${path}": another server does (use --replace to take its place)`);
  }
  // systemd keeps a socket whose file somebody removed: nobody reaches that.
  const activated = findStat(path) ? findActivatedSocket(env) : undefined;
  // The first warm worker listens on it. Until then, shims do their calls themselves.
  const listener = activated ?? bindSocket(path);
  const control = listenAt(controlPath(path));
  const names = [path, controlPath(path)].map(socketName);
  return withoutWaiting({
    ...{ path, listener, control, isActivated: activated !== undefined, ofParts: new Map(), names },
  });
}

/** While a server takes over, the other one may accept a connection first. */
function withoutWaiting(sockets: ServerSockets): ServerSockets {
  sys.fcntl(sockets.control.fd, F_SETFL, O_NONBLOCK);
  return sockets;
}

/**
 * Asks a server a question.
 *
 * @returns its answer; `undefined` if there is no server
 * @throws {RangeError} if it does not answer
 */
export function askServer(path: string, question: string): string | undefined {
  using connection = connectTo(controlPath(path));
  if (!connection) return undefined;
  return new TextDecoder().decode(ask(connection, question, MAX_ANSWER_BYTES).bytes);
}

/** Whether a server listens whose workers are warm. */
export function isServerReady(path: string): boolean {
  return JSON.parse(askServer(path, QUESTIONS.status) ?? "{}").isReady === true;
}

function ask(connection: Descriptor, question: string, maxBytes: number, maxFds = 0): Message {
  if (
    sendPacket(connection.fd, new TextEncoder().encode(question)) && awaitReadable(connection.fd, ANSWER_TIMEOUT_MS)
  ) {
    const answer = receivePacket(connection.fd, new Uint8Array(maxBytes), maxFds);
    if (answer.bytes.length > 0) return answer;
  }
  throw new RangeError(`Cannot ask the server for "${question}": it does not answer`);
}

/** Of 1,024 workers; the kernel's buffer takes 208 KiB. */
export const MAX_ANSWER_BYTES = 192 * 1024;
/** Answers a process that may not replace the server. */
export const REPLACE_REFUSED = 2;
export const QUESTIONS = { status: "status", replace: "replace", ready: "ready" } as const;

/** The first byte of the answer to `replace`; the names of parts follow, a blank between them. */
export const [NOT_ACTIVATED, ACTIVATED] = [0, 1];
const MAX_NAMES_BYTES = 256;
const MAX_PARTS = 16;

function takeOver(path: string, predecessor: Descriptor): ServerSockets {
  const { bytes, fds: [listener, control, ...ofParts] } = ask(
    predecessor,
    QUESTIONS.replace,
    MAX_NAMES_BYTES,
    2 + MAX_PARTS,
  );
  if (bytes[0] === REPLACE_REFUSED) {
    throw new RangeError("Cannot replace the server: it accepts only root with its rights, in its namespaces");
  }
  if (listener === undefined || control === undefined) {
    throw new RangeError("Cannot replace the server: another server is replacing it");
  }
  const names = new TextDecoder().decode(bytes.subarray(1)).split(" ");
  return {
    ...{ path, isActivated: bytes[0] === ACTIVATED, predecessor },
    listener: descriptor(listener),
    control: descriptor(control),
    ofParts: new Map(ofParts.map((fd, i) => [names[i]!, descriptor(fd)])),
    names: [path, controlPath(path)].map(socketName),
  };
}

/** @see sd_listen_fds(3) */
function findActivatedSocket(env: Readonly<Record<string, string | undefined>>): Descriptor | undefined {
  if (env.LISTEN_PID !== String(process.pid) || env.LISTEN_FDS === undefined) return undefined;
  const FIRST_DESCRIPTOR = 3;
  if (env.LISTEN_FDS !== "1" || !isPacketSocket(FIRST_DESCRIPTOR)) {
    throw new RangeError("Cannot use the sockets of systemd: expected one, with ListenSequentialPacket=");
  }
  return descriptor(FIRST_DESCRIPTOR);
}

/** So that no shim connects. systemd keeps its own. */
export function unlinkSockets({ path, isActivated, names }: ServerSockets): void {
  names.filter((name) => !isActivated || name.path !== path).forEach(removeSocketName);
}
