/**
 * Real traffic for tests, from this process: a socket stays in the namespace in which it was opened.
 *
 * @module
 */
import type { Netns } from "../ffi/netns/netns.ts";

/** Something that answers with its own name and the address that it was asked from: `web 10.1.0.1`. */
export interface TestServer extends Disposable {
  readonly port: number;
}

export interface TcpTestServer extends TestServer {
  /** How many connections it has had. */
  readonly connections: number;
}

/** The address of a peer, unless it has left already. */
const withoutIpv4Mapping = (address: string | undefined): string => (address ?? "").replace(/^::ffff:/, "");

/** Answers TCP connections to any address of the namespace, on a given port or on one that the kernel chooses. */
export function serveTcp(netns: Netns, name: string, port = 0, hostname = "::"): TcpTestServer {
  return netns.run<TcpTestServer>(() => {
    let connections = 0;
    const listener = Bun.listen({
      hostname,
      port,
      socket: {
        open(socket) {
          connections++;
          socket.end(`${name} ${withoutIpv4Mapping(socket.remoteAddress)}`);
        },
        data() {},
      },
    });
    return {
      port: listener.port,
      get connections() {
        return connections;
      },
      [Symbol.dispose]: () => listener.stop(true),
    };
  });
}

/** Answers UDP packets to any address of the namespace. */
export async function serveUdp(netns: Netns, name: string, port = 0, hostname = "::"): Promise<TestServer> {
  const socket = await openInNetns(netns, () =>
    Bun.udpSocket({
      hostname,
      port,
      socket: {
        error() {},
        data(self, _, fromPort, from) {
          self.send(`${name} ${withoutIpv4Mapping(from)}`, fromPort, from);
        },
      },
    }));
  return { port: socket.port, [Symbol.dispose]: () => socket.close() };
}

/** Answers on TCP port 80 and UDP port 53 of the namespace. */
export async function serveTcpAndUdp(netns: Netns, name: string): Promise<Disposable> {
  const stack = new DisposableStack();
  stack.use(serveTcp(netns, name, 80));
  stack.use(await serveUdp(netns, name, 53));
  return stack;
}

/** An upper bound for an answer that is sure to come, however much the machine has to do. */
const ANSWER_TIMEOUT_MS = 20_000;
/** The same where no answer is expected: one that should not come takes a millisecond as well. */
export const NO_ANSWER_TIMEOUT_MS = 300;

/** The answer of a TCP server; `undefined` if it cannot be reached. */
export async function requestTcp(
  netns: Netns,
  hostname: string,
  port: number,
  patienceMs: number = ANSWER_TIMEOUT_MS,
): Promise<string | undefined> {
  const { promise, resolve } = Promise.withResolvers<string | undefined>();
  let answer = "";
  const connected = openInNetns(netns, () =>
    Bun.connect({
      hostname,
      port,
      socket: {
        data: (_, chunk) => void (answer += chunk.toString()),
        close: () => resolve(answer || undefined),
        connectError: () => resolve(undefined),
        error: () => resolve(undefined),
      },
    }));
  connected.catch(() => resolve(undefined));
  const timer = setTimeout(() => resolve(undefined), patienceMs);
  const result = await promise;
  clearTimeout(timer);
  connected.then((socket) => socket.terminate(), () => {});
  return result;
}

/** A UDP socket that asks from the same port every time, as peers of long conversations do. */
export interface UdpClient extends Disposable {
  readonly port: number;
  /** The answer of the server; `undefined` if nothing comes. */
  request(hostname: string, port: number, patienceMs?: number): Promise<string | undefined>;
}

/** Opens such a socket on any port. @param hostname the address to bind to, `0.0.0.0` or `::` for any */
export async function newUdpClient(netns: Netns, hostname: string): Promise<UdpClient> {
  let resolve: (answer: string | undefined) => void = () => {};
  const socket = await openInNetns(
    netns,
    () =>
      Bun.udpSocket({
        hostname,
        socket: { data: (_, chunk) => resolve(chunk.toString()), error: () => resolve(undefined) },
      }),
  );
  return {
    port: socket.port,
    async request(hostname, port, patienceMs = ANSWER_TIMEOUT_MS) {
      const answered = Promise.withResolvers<string | undefined>();
      resolve = answered.resolve;
      socket.send("?", port, hostname);
      const timer = setTimeout(() => resolve(undefined), patienceMs);
      const result = await answered.promise;
      clearTimeout(timer);
      return result;
    },
    [Symbol.dispose]: () => socket.close(),
  };
}

/** The answer of a UDP server; `undefined` if nothing comes. */
export async function requestUdp(
  netns: Netns,
  hostname: string,
  port: number,
  patienceMs?: number,
): Promise<string | undefined> {
  using client = await newUdpClient(netns, hostname.includes(":") ? "::" : "0.0.0.0");
  return await client.request(hostname, port, patienceMs);
}

/** Opens a socket inside a namespace. It is opened by the call itself; only the wait for it is asynchronous and may be outside. */
export function openInNetns<T>(netns: Netns, open: () => Promise<T>): Promise<T> {
  let pending: Promise<T> | undefined;
  netns.run(() => void (pending = open()));
  return pending!;
}

export interface Inbox extends Disposable {
  readonly texts: string[];
}

/** What arrives at a port of a namespace. */
export function openInbox(netns: Netns, port: number): Promise<Inbox> {
  const texts: string[] = [];
  let opened: Promise<{ close(): void }> | undefined;
  netns.run(() =>
    void (opened = Bun.udpSocket({
      hostname: "::",
      port,
      socket: { data: (_, chunk) => void texts.push(chunk.toString()) },
    }))
  );
  return opened!.then((socket) => ({ texts, [Symbol.dispose]: () => socket.close() }));
}
