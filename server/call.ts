/** A call as a shim sends it, see `server/shim/shim.c`. @module */
import { peerCredentials, receivePacket, sendPacket } from "../ffi/sys/unix_socket.ts";
import { EINTR } from "../ffi/sys/errno.ts";
import { ignoreSystemErrors, SystemError } from "../ffi/sys/error.ts";
import type { Descriptor } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { awaitReadable } from "../ffi/sys/poll.ts";
import { POLLIN, POLLOUT } from "../ffi/sys/uapi.ts";
import { hasPlugin } from "../plugins/registry.ts";
import { COMMAND_NAME } from "../program/installed_file.ts";
import { isAllowed } from "./caller.ts";
import type { Refusal } from "./worker_table.ts";

const PROTOCOL_VERSION = 1;
// sizeof(struct request)
const HEADER_BYTES = 24;
const FD_COUNT = 5;
// Letters, as in `enum message` of the shim.
const OFFER = 0x4f;
const COMMIT = 0x43;
const SIGNAL = 0x53;
const OUTPUT = 0x57;
const END = 0x45;
const ANSWER_TIMEOUT_MS = 1000;
export const COMMIT_MESSAGE = Uint8Array.of(COMMIT);
// More than the longest environment that fits into a packet.
const buffer = new Uint8Array(256 * 1024);

interface CallDescriptors {
  readonly stdin: number;
  readonly stdout: number;
  readonly stderr: number;
  readonly workingDirectory: number;
  readonly netns: number;
}

/** Its scope closes its descriptors and the connection. */
export interface ShimCall extends Disposable {
  readonly programName: string;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly umask: number;
  readonly parentPid: number;
  readonly startTime: bigint;
  readonly descriptors: CallDescriptors;
  readonly connection: number;
  /** Returns 0 if the shim is gone, `undefined` if it was sent no signal. */
  readSignal(): number | undefined;
  announceOutput(): void;
  /** @throws {SystemError} `EINTR` if the shim ends meanwhile */
  awaitWritable(fd: number): void;
  end(status: number): void;
}

/** Closes the connection if the call is not taken. */
export function takeCall(connection: Descriptor, serverNamespaces: string): ShimCall | Refusal {
  const call = receiveCall(connection, serverNamespaces);
  if (typeof call === "string") connection[Symbol.dispose]();
  return call;
}

function receiveCall(connection: Descriptor, serverNamespaces: string): ShimCall | Refusal {
  const { fd } = connection;
  const allowed = isAllowed(peerCredentials(fd), serverNamespaces);
  if (allowed === false) return "notAllowed";
  if (!allowed || !awaitReadable(fd, ANSWER_TIMEOUT_MS)) return "withdrawn";
  const request = parseRequest(receivePacket(fd, buffer).bytes);
  if (typeof request === "string") return request;
  if (!sendPacket(fd, Uint8Array.of(OFFER)) || !awaitReadable(fd, ANSWER_TIMEOUT_MS)) return "withdrawn";
  const { bytes, fds } = receivePacket(fd, buffer, FD_COUNT);
  if (bytes[0] === COMMIT && fds.length === FD_COUNT) return newCall(request, connection, fds);
  for (const received of fds) sys.close(received);
  return "withdrawn";
}

type ShimRequest = Pick<ShimCall, "programName" | "argv" | "env" | "umask" | "parentPid" | "startTime">;

function parseRequest(bytes: Uint8Array): ShimRequest | Refusal {
  if (bytes.length < HEADER_BYTES) return "withdrawn";
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const [version = 0, umask = 0, parentPid = 0, argc = 0] = [0, 4, 8, 12].map((at) => view.getUint32(at, true));
  if (version !== PROTOCOL_VERSION) return "otherVersion";
  // The shim says so, or the kernel has cut the request.
  if (bytes.length === HEADER_BYTES || bytes.length === buffer.length) return "tooLong";
  const words = new TextDecoder().decode(bytes.subarray(HEADER_BYTES)).split("\0").slice(0, -1);
  const [programPath = "", ...argv] = words.slice(0, argc);
  const programName = programPath.slice(programPath.lastIndexOf("/") + 1);
  if (!hasPlugin(programName) && programName !== COMMAND_NAME) return "notServed";
  const env = parseEnvironment(words.slice(argc));
  return { programName, argv, env, umask, parentPid, startTime: view.getBigUint64(16, true) };
}

function newCall(request: ShimRequest, connection: Descriptor, fds: readonly number[]): ShimCall {
  const [stdin, stdout, stderr, workingDirectory, netns] = fds as readonly [number, number, number, number, number];
  const { fd } = connection;
  return {
    ...request,
    connection: fd,
    descriptors: { stdin, stdout, stderr, workingDirectory, netns },
    readSignal: () => readSignal(fd),
    announceOutput: () => void sendPacket(fd, Uint8Array.of(OUTPUT)),
    awaitWritable: (output) => awaitWritable(output, fd),
    // The caller has its answer, and nothing is undone any more: what refuses once is asked again.
    end(status) {
      const send = () => sendPacket(fd, Uint8Array.of(END, status));
      if (ignoreSystemErrors(send) === undefined) send();
    },
    [Symbol.dispose]() {
      for (const received of fds) sys.close(received);
      connection[Symbol.dispose]();
    },
  };
}

export function formatRequest(words: readonly string[], env: Readonly<Record<string, string>>): Uint8Array {
  const strings = [...words, ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
  const text = new TextEncoder().encode(strings.map((string) => `${string}\0`).join(""));
  const bytes = new Uint8Array(HEADER_BYTES + text.length);
  const view = new DataView(bytes.buffer);
  [PROTOCOL_VERSION, 0o22, process.pid, words.length].forEach((value, i) => view.setUint32(i * 4, value, true));
  view.setBigUint64(16, BigInt(Date.now()) * 1_000_000n, true);
  bytes.set(text, HEADER_BYTES);
  return bytes;
}

/** The first of equal names counts, as in getenv(3). */
function parseEnvironment(entries: readonly string[]): Record<string, string> {
  const env: Record<string, string> = Object.create(null);
  for (const entry of entries) {
    const end = entry.indexOf("=");
    if (end > 0) env[entry.slice(0, end)] ??= entry.slice(end + 1);
  }
  return env;
}

/** Nobody would end a worker that waits for the reader of a caller that is gone. */
function awaitWritable(output: number, connection: number): void {
  // struct pollfd { int fd; short events; short revents; }
  const pollfds = new Int32Array([output, POLLOUT, connection, POLLIN]);
  for (;;) {
    sys.poll(pollfds, 2, -1);
    if (pollfds[1]! >> 16 !== 0) return;
    if (readSignal(connection) === 0) throw new SystemError("write", EINTR);
  }
}

function readSignal(fd: number): number | undefined {
  if (!awaitReadable(fd, 0)) return undefined;
  const [kind, signal] = ignoreSystemErrors(() => receivePacket(fd, buffer).bytes) ?? [];
  return kind === SIGNAL ? signal : 0;
}
