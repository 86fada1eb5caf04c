import { ensureDirectory } from "../ffi/sys/directory.ts";
import { type Descriptor, descriptor, removeFile } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { lockFile } from "../ffi/sys/lock.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { awaitReadable } from "../ffi/sys/poll.ts";
import { F_SETFL, O_NONBLOCK, SOCK_SEQPACKET, SOCK_STREAM } from "../ffi/sys/uapi.ts";
import {
  bindSocket,
  boundPath,
  connectTo,
  findSocketType,
  listenAt,
  type Message,
  receivePacket,
  sendPacket,
} from "../ffi/sys/unix_socket.ts";
import { directoryOf, partPaths, PARTS } from "./part_definitions.ts";

export const DEFAULT_SOCKET = "/run/cni/cni.sock";

export interface ServerSockets {
  readonly path: string;
  /** Shims connect to it; workers accept. */
  readonly listener: Descriptor;
  /** `cni serve --status` and `--replace` connect to it; the supervisor accepts. */
  readonly control: Descriptor;
  /** Leads to the server that gave the sockets, and waits for a word to end. */
  readonly predecessor?: Descriptor;
  /** From systemd or the predecessor, by the part's name. */
  readonly ofParts: ReadonlyMap<string, Descriptor>;
  readonly names: readonly SocketName[];
}

export interface SocketName {
  readonly path: string;
  /** Absent if it was removed at once. */
  readonly identity: string | undefined;
  /** Whether systemd made it, and keeps it. */
  readonly isActivated: boolean;
}

export const socketName = (path: string, { fd }: Descriptor): SocketName => ({
  path,
  identity: findIdentity(path),
  // This program binds a socket to another path, and renames that: see bindSocket().
  isActivated: boundPath(fd) === path,
});

const findIdentity = (path: string): string | undefined => ignoreSystemErrors(() => findStat(path)?.identity);

/** True if somebody removed it, or put another file in its place: nobody reaches the socket by it. */
export const isLost = ({ path, identity }: SocketName): boolean =>
  identity === undefined || findIdentity(path) !== identity;

/** Leaves what others have put in its place, and what systemd keeps for the next server. */
export function removeSocketName(name: SocketName): void {
  if (!name.isActivated && !isLost(name)) removeFile(name.path);
}

const LOCK_TIMEOUT_MS = 5000;
const ANSWER_TIMEOUT_MS = 5000;

// What the kernel allows, without the longest name that is made of it: `….control.4194304.tmp`.
const MAX_PATH_BYTES = 87;

export const lockPath = (path: string): string => `${path}.lock`;
export const controlPath = (path: string): string => `${path}.control`;

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
  const isServed = hasServer(path);
  if (isServed && !replace) {
    throw new RangeError(`Cannot listen on "${path}": another server does (use --replace to take its place)`);
  }
  const predecessor = isServed ? connectTo(controlPath(path)) : undefined;
  if (predecessor) return withoutWaiting(takeOver(path, predecessor));
  const activated = activatedSockets(path, env);
  // systemd keeps a socket whose file somebody removed: nobody reaches that.
  const find = (socketPath: string) => findStat(socketPath) && activated.get(socketPath);
  // The first warm worker listens on it. Until then, shims do their calls themselves.
  const listener = find(path) ?? bindSocket(path);
  const control = listenAt(controlPath(path));
  const ofParts = partSockets(path).flatMap(({ name, socket }) => {
    const found = find(socket);
    return found ? [[name, found] as const] : [];
  });
  return withoutWaiting({
    path,
    listener,
    control,
    ofParts: new Map(ofParts),
    names: socketNames(path, listener, control),
  });
}

/** One that was killed takes connections until the kernel has closed its socket, and answers none. */
function hasServer(path: string): boolean {
  const deadline = performance.now() + ANSWER_TIMEOUT_MS;
  while (performance.now() < deadline) {
    using connection = connectTo(controlPath(path));
    if (!connection) return false;
    sendPacket(connection.fd, new TextEncoder().encode(QUESTIONS.status));
    if (!awaitReadable(connection.fd, ANSWER_TIMEOUT_MS)) return true;
    if (receivePacket(connection.fd, new Uint8Array(1)).bytes.length > 0) return true;
  }
  return true;
}

const socketNames = (path: string, listener: Descriptor, control: Descriptor): SocketName[] => [
  socketName(path, listener),
  socketName(controlPath(path), control),
];

/** While a server takes over, the other one may accept a connection first. */
function withoutWaiting(sockets: ServerSockets): ServerSockets {
  sys.fcntl(sockets.control.fd, F_SETFL, O_NONBLOCK);
  return sockets;
}

/**
 * @returns `undefined` if there is no server
 * @throws {RangeError} if it does not answer
 */
export function askServer(path: string, question: string): string | undefined {
  using connection = connectTo(controlPath(path));
  if (!connection) return undefined;
  return new TextDecoder().decode(ask(connection, question, MAX_ANSWER_BYTES).bytes);
}

/** A server is ready when its workers are warm. */
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

// 1,024 workers need so much; the kernel's buffer takes 208 KiB.
export const MAX_ANSWER_BYTES = 192 * 1024;
// The first byte of the answer to `replace`. After the first one, names of parts follow, a blank between them.
export const REPLACE_ACCEPTED = 0;
export const REPLACE_REFUSED = 2;
export const QUESTIONS = { status: "status", replace: "replace", ready: "ready" } as const;

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
  const sockets = { listener: descriptor(listener), control: descriptor(control) };
  return {
    path,
    predecessor,
    ...sockets,
    ofParts: new Map(ofParts.map((fd, i) => [names[i]!, descriptor(fd)])),
    names: socketNames(path, sockets.listener, sockets.control),
  };
}

function partSockets(path: string): { readonly name: string; readonly socket: string; readonly type: number }[] {
  const directory = directoryOf(path);
  return PARTS.flatMap(({ name, socketType }) =>
    socketType === undefined ? [] : [{ name, socket: partPaths(directory, name).socket, type: socketType }]
  );
}

// The words of systemd.socket(5).
const LISTEN_WORDS: Readonly<Record<number, string>> = {
  [SOCK_SEQPACKET]: "ListenSequentialPacket=",
  [SOCK_STREAM]: "ListenStream=",
};

/**
 * Goes by path: all sockets of a unit have one name in LISTEN_FDNAMES.
 *
 * @see sd_listen_fds(3)
 * @throws {RangeError} if one is none of this server's, or if the listener is not among them
 */
function activatedSockets(
  path: string,
  env: Readonly<Record<string, string | undefined>>,
): ReadonlyMap<string, Descriptor> {
  const sockets = new Map<string, Descriptor>();
  if (env.LISTEN_PID !== String(process.pid) || env.LISTEN_FDS === undefined) return sockets;
  const FIRST_DESCRIPTOR = 3;
  const types = new Map([
    [path, SOCK_SEQPACKET],
    ...partSockets(path).map(({ socket, type }) => [socket, type] as const),
  ]);
  const refuse = (what: string) => {
    const [own = "", ...others] = [...types].map(([each, type]) => `${LISTEN_WORDS[type]}${each}`);
    return new RangeError(
      `Cannot use the sockets of systemd: ${what} (expected ${own}, and perhaps ${others.join(" or ")})`,
    );
  };
  for (let fd = FIRST_DESCRIPTOR; fd < FIRST_DESCRIPTOR + Number(env.LISTEN_FDS); fd++) {
    const bound = boundPath(fd) ?? "";
    const type = findSocketType(fd);
    if (type === undefined || types.get(bound) !== type) throw refuse(`descriptor ${fd} is ${describe(bound, type)}`);
    sockets.set(bound, descriptor(fd));
  }
  if (!sockets.has(path)) throw refuse(`"${path}" is not among them`);
  return sockets;
}

const describe = (path: string, type: number | undefined): string =>
  type === undefined ? "no socket" : `${LISTEN_WORDS[type] ?? `a socket of type ${type}, `}${path || "no file"}`;

export const hasActivatedListener = ({ names }: ServerSockets): boolean => names.some((name) => name.isActivated);

export function unlinkSockets({ names }: ServerSockets): void {
  names.forEach(removeSocketName);
}
