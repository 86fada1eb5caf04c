/**
 * The rate at which packets pass between two namespaces, and what tc(8) shows of a host. One process sends as much as it can, this one
 * counts what arrives.
 *
 * @module
 */
import type { Netns } from "../ffi/netns/netns.ts";
import { linkNames, runInNetns, runShellInNetns } from "./netns.ts";

/** Sends to the host and port that are its arguments until the other side hangs up. */
const SENDER = `
const block = new Uint8Array(256 * 1024);
const fill = (socket) => { while (socket.write(block) === block.length); };
Bun.connect({
  hostname: process.argv[1],
  port: Number(process.argv[2]),
  socket: { open: fill, drain: fill, data() {}, close: () => process.exit(), error: () => process.exit() },
});`;

/** The MTU of both ends, in bytes. */
const MTU = 1400;
/** The bytes that the kernel counts for each byte that the receiver reads: headers of Ethernet, IPv4, and TCP with timestamps. */
const HEADERS = (MTU + 14) / (MTU - 20 - 32);

export interface Transfer {
  readonly from: Netns;
  readonly to: Netns;
  /** The IPv4 address of `to`, as `from` reaches it. */
  readonly address: string;
  /** Bytes that pass before the clock starts: what the bucket holds, and what TCP needs to find its pace. */
  readonly skip: number;
  /** How long to count, in seconds. */
  readonly seconds: number;
}

/** Measures a rate in bits per second, headers included. The sender is killed and the listener closed at the end. @throws {Error} if the sender ends */
export async function measureRate({ from, to, address, skip, seconds }: Transfer): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>();
  let received = 0;
  let started: { at: number; bytes: number } | undefined;
  const count = (length: number) => {
    received += length;
    const now = performance.now();
    if (!started && received > skip) started = { at: now, bytes: received };
    if (!started || now - started.at < seconds * 1000) return;
    resolve((received - started.bytes) * HEADERS * 8000 / (now - started.at));
  };
  const listener = to.run<Bun.TCPSocketListener>(() =>
    Bun.listen({ hostname: "0.0.0.0", port: 0, socket: { data: (_, chunk) => count(chunk.length) } })
  );
  const arguments_ = [address, String(listener.port)];
  const sender = from.run<Bun.Subprocess>(() => Bun.spawn([process.execPath, "-e", SENDER, ...arguments_]));
  const died = sender.exited.then((status) => Promise.reject(new Error(`The sender ended with ${status}`)));
  died.catch(() => {});
  try {
    return await Promise.race([promise, died]);
  } finally {
    sender.kill();
    listener.stop(true);
  }
}

/** A veth pair between a host and a container, as another plugin makes it. */
export interface TestVethPair {
  readonly host: Netns;
  readonly container: Netns;
  /** The name of the host's interface. */
  readonly port: string;
  /** The container's interface, `eth0` unless told. */
  readonly ifname?: string;
  /** Its subnet is 10.`n`.0.0/24; the host is .1 and the container .2. */
  readonly n: number;
}

/** Makes the pair, with addresses and up; gives the result that the plugin would have given. */
export function connectContainer({ host, container, port, ifname = "eth0", n }: TestVethPair) {
  runShellInNetns(
    host,
    `ip link add ${port} mtu ${MTU} type veth peer name ${ifname} mtu ${MTU} netns ${container.path}`,
    `ip addr add 10.${n}.0.1/24 dev ${port}`,
    `ip link set ${port} up`,
  );
  runShellInNetns(container, `ip addr add 10.${n}.0.2/24 dev ${ifname}`, `ip link set ${ifname} up`);
  return { cniVersion: "1.0.0", interfaces: [{ name: port }, { name: ifname, sandbox: container.path }] };
}

// deno-lint-ignore no-explicit-any -- what tc(8) prints
type Json = any;
const tc = (netns: Netns, args: string): Json[] =>
  JSON.parse(runInNetns(netns, "tc", "-j", ...args.split(" ")).trim() || "[]");

/** The queueing disciplines of a host as tc(8) shows them, without the kernel's default ones, and where their filters lead. */
export function trafficControl(host: Netns): Json[] {
  const disciplines = tc(host, "qdisc show").filter(({ kind }) => kind === "tbf" || kind === "ingress");
  return disciplines.map(({ kind, handle, dev, options }) => {
    if (kind === "tbf") return { kind, handle, dev, ...options };
    const filters = tc(host, `filter show dev ${dev} parent ffff:`).filter((filter) => filter.options?.match);
    return {
      kind,
      handle,
      dev,
      filters: filters.map(({ protocol, pref, kind, options: { flowid, match, actions: [action] } }) => ({
        protocol,
        pref,
        kind,
        flowid,
        match,
        to: `${action.mirred_action} ${action.direction} ${action.to_dev} ${action.control_action.type}`,
      })),
    };
  }).sort((a, b) => a.dev < b.dev ? -1 : a.dev > b.dev ? 1 : a.kind < b.kind ? 1 : -1);
}

/** The names of a host's links, without the loopback's. */
export const hostLinkNames = (host: Netns): string[] => linkNames(host).filter((name) => name !== "lo");
