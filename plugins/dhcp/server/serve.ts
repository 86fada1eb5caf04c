/** The server of leases: one process, one loop. @module */
import { currentNetns } from "../../../ffi/netns/netns.ts";
import { openNsidEvents } from "../../../ffi/route/nsid_events.ts";
import { bootTime } from "../../../ffi/sys/boot_clock.ts";
import { openBootTimer } from "../../../ffi/sys/boot_timer.ts";
import { ensureDirectory } from "../../../ffi/sys/directory.ts";
import { ignoreErrors, SystemError } from "../../../ffi/sys/error.ts";
import { sys } from "../../../ffi/sys/libc.ts";
import { lockFile } from "../../../ffi/sys/lock.ts";
import { pollAny } from "../../../ffi/sys/poll.ts";
import { openSignals } from "../../../ffi/sys/signal_descriptor.ts";
import { isIgnored } from "../../../ffi/sys/signals.ts";
import { F_SETFL, O_NONBLOCK, SIGINT, SIGTERM } from "../../../ffi/sys/uapi.ts";
import { acceptConnection } from "../../../ffi/sys/unix_socket.ts";
import { CniError, Code } from "../../../spec/error.ts";
import {
  DEFAULT_SOCKET_PATH,
  type DhcpServerAnswer,
  type DhcpServerRequest,
  leaseKey,
  type LeaseSettings,
  stateDirectoryOf,
} from "../protocol.ts";
import { leaseAnswer } from "./answer.ts";
import { type Connection, newConnection, readLeaseRequest, sendAnswer } from "./connection.ts";
import { endLease, receiveForLease, releaseAddress, verifyLease, wakeLease } from "./lease.ts";
import {
  describeLease,
  isAcquiring,
  type Lease,
  type LeaseContext,
  leaseDescriptors,
  leaseFromRecord,
  type LeaseTiming,
  newLease,
} from "./lease_state.ts";
import { openLeaseStore } from "./store.ts";

export interface DhcpServerOptions {
  /** The listening socket of {@linkcode DEFAULT_SOCKET_PATH}, for stream connections. */
  readonly listener: number;
  /** Readable when the server is to end: the read end of a pipe. */
  readonly lifetime: number;
  readonly stateDirectory?: string;
  /** Where the host's file system is mounted; empty for `/`. */
  readonly hostPrefix?: string;
  readonly broadcast?: boolean;
  readonly timing?: LeaseTiming;
  log(message: string): void;
  /** Told in each round whether it has leases, or asks for some. */
  tellWork?(hasLeases: boolean): void;
  /** Counts a message of DHCP that was sent or received: `discover`. */
  countMessage?(type: string): void;
}

export const DEFAULT_TIMING: LeaseTiming = { timeoutMs: 10_000, resendMaxMs: 62_000, resendTimeoutMs: 208_000 };

/** An older server that ends keeps the lock so long. */
const LOCK_TIMEOUT_MS = 10_000;
/** ADDs that are about to succeed may do so. */
const GRACE_MS = 2000;
/** Containers end together, and after each end all leases are looked at. */
const GATHER_MS = 1000;
const ROUNDS_PER_COLLECTION = 200;
/** Those who ask the server do not wait until hundreds of leases are served. */
const MAX_LEASES_PER_ROUND = 16;
/** Without a free descriptor, those who connect wait so long. */
const FULL_PAUSE_MS = 1000;

interface Server {
  readonly leases: Map<string, Lease>;
  readonly connections: Set<Connection>;
  /** The lease for which the ADD of a connection waits. */
  readonly waiting: Map<Connection, Lease>;
  /** Until then, nobody is accepted. By `performance.now()`. */
  fullUntil: number;
  readonly context: LeaseContext;
}

/** Serves until it is asked to end. Leases stay: the next server goes on with them. */
export function serveDhcp(options: DhcpServerOptions): void {
  const { stateDirectory = stateDirectoryOf(DEFAULT_SOCKET_PATH), listener, lifetime } = options;
  using resources = new DisposableStack();
  const signals = resources.use(openSignals([SIGINT, SIGTERM].filter((signal) => !isIgnored(signal))));
  ensureDirectory(stateDirectory, 0o700);
  resources.use(lockFile(`${stateDirectory}/lock`, { timeoutMs: LOCK_TIMEOUT_MS }));
  sys.fcntl(listener, F_SETFL, O_NONBLOCK);
  const namespaceEvents = resources.use(openNsidEvents());
  const timer = resources.use(openBootTimer());
  const server = newServer(options, stateDirectory, resources);
  resumeLeases(server);
  let endsAt = Infinity;
  let verifiesAt = Infinity;
  for (let round = 1; performance.now() < endsAt; round++) {
    // Else the heap grows for long.
    if (round % ROUNDS_PER_COLLECTION === 0) Bun.gc(true);
    const isEnding = endsAt !== Infinity;
    if (isEnding && server.waiting.size === 0) break;
    const accepting = performance.now() < server.fullUntil ? [] : [listener];
    const own = isEnding ? [] : [signals.fd, lifetime, namespaceEvents.fd, ...accepting];
    options.tellWork?.(server.leases.size > 0);
    timer.set(nextWake(server));
    const ready = new Set(
      pollAny([...own, timer.fd, ...serverDescriptors(server)], pollTimeoutMs(server, Math.min(endsAt, verifiesAt))),
    );
    if (ready.has(signals.fd) || ready.has(lifetime)) endsAt = performance.now() + GRACE_MS;
    if (ready.has(namespaceEvents.fd) && namespaceEvents.drain()) {
      verifiesAt = Math.min(verifiesAt, performance.now() + GATHER_MS);
    }
    if (performance.now() >= verifiesAt) {
      verifiesAt = Infinity;
      verifyLeases(server);
    }
    serveLeases(server, ready);
    // One that is closed meanwhile is no longer among them.
    for (const connection of server.connections) {
      if (ready.has(connection.fd)) serveConnection(server, connection);
    }
    if (ready.has(listener)) acceptAll(server, listener);
  }
  for (const connection of server.connections) connection[Symbol.dispose]();
}

function newServer(options: DhcpServerOptions, stateDirectory: string, resources: DisposableStack): Server {
  const { hostPrefix = "", broadcast = false, timing = DEFAULT_TIMING, log, countMessage = () => {} } = options;
  const server: Server = {
    leases: new Map(),
    connections: new Set(),
    waiting: new Map(),
    fullUntil: -Infinity,
    context: {
      hostPrefix,
      broadcast,
      timing,
      log,
      countMessage,
      host: resources.use(currentNetns()),
      store: openLeaseStore(stateDirectory, log),
      now: () => Number(bootTime() / 1000n) / 1000,
      isAwaited: (lease) => [...server.waiting.values()].includes(lease),
      settle: (lease, error) => settle(server, lease, error),
      forget: (lease) => server.leases.delete(describeLease(lease)),
    },
  };
  return server;
}

/** Goes on with leases of an earlier server, without a question to their servers or containers. */
function resumeLeases({ leases, context }: Server): void {
  for (const record of context.store.list()) {
    const lease = leaseFromRecord(record);
    const isUsed = record.state === "bound" || lease.isWithdrawn;
    // Its ADD has failed, and it ended before it could tell the server.
    if (!isUsed) {
      endLease(lease, context);
      continue;
    }
    if (record.state === "requesting") releaseAddress(lease, context);
    leases.set(describeLease(lease), lease);
    verifyLease(lease, context);
  }
}

function verifyLeases({ leases, context }: Server): void {
  for (const lease of [...leases.values()]) if (!isAcquiring(lease)) verifyLease(lease, context);
}

function serverDescriptors({ leases, connections }: Server): number[] {
  const exchanges = [...leases.values()].flatMap(leaseDescriptors);
  return [...exchanges, ...[...connections].map(({ fd }) => fd)];
}

function nextWake({ leases }: Server): number {
  let nextAt = Infinity;
  for (const { wakeAt } of leases.values()) nextAt = Math.min(nextAt, wakeAt);
  return nextAt;
}

function pollTimeoutMs({ fullUntil }: Server, nextAt: number): number {
  const now = performance.now();
  const until = Math.min(nextAt, now < fullUntil ? fullUntil : Infinity);
  return until === Infinity ? -1 : Math.max(0, Math.ceil(until - now));
}

function serveLeases({ leases, context }: Server, ready: ReadonlySet<number>): void {
  const hasReceived = (lease: Lease) => leaseDescriptors(lease).some((fd) => ready.has(fd));
  const isKept = (lease: Lease) => leases.get(describeLease(lease)) === lease;
  const now = context.now();
  const due = [...leases.values()].filter((lease) => lease.wakeAt <= now || hasReceived(lease));
  for (const lease of due.slice(0, MAX_LEASES_PER_ROUND)) {
    // Then the others come first.
    leases.delete(describeLease(lease));
    leases.set(describeLease(lease), lease);
    if (hasReceived(lease)) receiveForLease(lease, context);
    if (isKept(lease) && lease.wakeAt <= context.now()) wakeLease(lease, context);
  }
}

/** A server that takes over accepts too. */
function acceptAll(server: Server, listener: number): void {
  try {
    for (;;) {
      const socket = ignoreErrors(["EAGAIN", "ECONNABORTED"], () => acceptConnection(listener));
      if (!socket) return;
      server.connections.add(newConnection(socket));
    }
  } catch (error) {
    if (!(error instanceof SystemError && ["EMFILE", "ENFILE"].includes(error.code))) throw error;
    server.context.log(`Takes no requests for ${FULL_PAUSE_MS / 1000} s: ${error.message}`);
    server.fullUntil = performance.now() + FULL_PAUSE_MS;
  }
}

function serveConnection(server: Server, connection: Connection): void {
  const request = readLeaseRequest(connection);
  if (request === undefined) return;
  if (request === "gone") return abandon(server, connection);
  try {
    if (request instanceof Error) throw request;
    const answer = answerRequest(server, connection, request);
    if (answer) finish(server, connection, answer);
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    finish(server, connection, errorAnswer(error));
  }
}

const errorAnswer = (error: Error): DhcpServerAnswer => {
  const { code, message, details } = CniError.from(error);
  return { error: { code, message, ...details && { details } } };
};

/** @returns nothing for an ADD that waits */
function answerRequest(
  server: Server,
  connection: Connection,
  request: DhcpServerRequest,
): DhcpServerAnswer | undefined {
  const { leases, context } = server;
  switch (request.command) {
    case "add":
      return add(server, connection, required(request.settings));
    case "check":
      return check(server, required(request.attachment));
    case "del": {
      const lease = leases.get(leaseKey(required(request.attachment)));
      if (lease) interruptLease(lease, context, "the attachment is being removed");
      return {};
    }
    case "gc": {
      const stale = findStale(server, request);
      for (const lease of stale) endLease(lease, context);
      return { released: stale.map(describeRelease) };
    }
    case "stale":
      return { released: findStale(server, request).map(describeRelease) };
    case "status":
      return { states: countStates([...leases.values()]) };
  }
}

function required<T>(value: T | undefined): T {
  if (value === undefined) throw new RangeError("Cannot serve the request: it is incomplete");
  return value;
}

function add(server: Server, connection: Connection, settings: LeaseSettings): DhcpServerAnswer | undefined {
  const { leases, waiting, context } = server;
  const key = leaseKey(settings);
  const earlier = leases.get(key);
  if (earlier) verifyLease(earlier, context);
  // An ADD that did not hear of its success is repeated.
  if (earlier && leases.get(key) === earlier && JSON.stringify(earlier.settings) === JSON.stringify(settings)) {
    if (!isAcquiring(earlier)) return boundAnswer(earlier);
    earlier.acquiringSince = context.now();
    waiting.set(connection, earlier);
    return undefined;
  }
  if (earlier && leases.has(key)) interruptLease(earlier, context, "another ADD of the attachment has begun");
  const lease = newLease(settings, context.now());
  leases.set(key, lease);
  waiting.set(connection, lease);
  wakeLease(lease, context);
  return undefined;
}

/** An ADD that waits for it fails. */
function interruptLease(lease: Lease, context: LeaseContext, reason: string): void {
  context.settle(lease, new CniError(Code.TryAgainLater, reason));
  endLease(lease, context);
}

function check(
  { leases }: Server,
  attachment: Pick<LeaseSettings, "network" | "containerId" | "ifname">,
): DhcpServerAnswer {
  const lease = leases.get(leaseKey(attachment));
  if (!lease) throw new CniError(Code.Internal, `${leaseKey(attachment)} has no lease`);
  if (isAcquiring(lease)) throw new CniError(Code.Internal, `${describeLease(lease)} has lost its lease`);
  return boundAnswer(lease);
}

function boundAnswer({ terms, settings }: Lease): DhcpServerAnswer {
  return { lease: leaseAnswer(terms!, settings.priority) };
}

function findStale({ leases, context }: Server, { network, valid, snapshotTimeMs }: DhcpServerRequest): Lease[] {
  const keys = new Set(valid.map((attachment) => leaseKey({ network: required(network), ...attachment })));
  return [...leases.values()].filter((lease) =>
    lease.settings.network === network && !keys.has(describeLease(lease)) &&
    !context.isAwaited(lease) && lease.createdAt < required(snapshotTimeMs)
  );
}

const describeRelease = ({ settings, terms }: Lease): string =>
  `${terms?.address ?? "no address"} of ${settings.containerId}`;

function countStates(leases: readonly Lease[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { state } of leases) counts[state] = (counts[state] ?? 0) + 1;
  return counts;
}

function settle(server: Server, lease: Lease, error: Error | undefined): void {
  for (const [connection, awaited] of server.waiting) {
    if (awaited === lease) finish(server, connection, error ? errorAnswer(error) : boundAnswer(lease));
  }
}

function finish({ connections, waiting }: Server, connection: Connection, answer: DhcpServerAnswer): void {
  waiting.delete(connection);
  sendAnswer(connection, answer);
  connections.delete(connection);
  connection[Symbol.dispose]();
}

/** The plugin was killed, or asked to end. Nobody learns of the address. */
function abandon({ connections, waiting, context }: Server, connection: Connection): void {
  const lease = waiting.get(connection);
  waiting.delete(connection);
  connections.delete(connection);
  connection[Symbol.dispose]();
  if (!lease || context.isAwaited(lease) || lease.isWithdrawn) return;
  context.log(`${describeLease(lease)}: the ADD has ended before it got an address`);
  endLease(lease, context);
}
