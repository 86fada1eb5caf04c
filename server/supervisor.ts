import { ignoreErrors, ignoreSystemErrors, SystemError } from "../ffi/sys/error.ts";
import { createReadWrite, type Descriptor, descriptor, readAvailable, readText } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { pollAny } from "../ffi/sys/poll.ts";
import { reapAnyChild, startWithDescriptors } from "../ffi/sys/process.ts";
import { openSignals } from "../ffi/sys/signal_descriptor.ts";
import { isIgnored } from "../ffi/sys/signals.ts";
import { O_CLOEXEC, O_NONBLOCK, SIGCHLD, SIGHUP, SIGINT, SIGTERM } from "../ffi/sys/uapi.ts";
import {
  acceptConnection,
  listenOn,
  peerCredentials,
  receivePacket,
  refuseConnections,
  sendDescriptors,
  sendPacket,
} from "../ffi/sys/unix_socket.ts";
import { isAllowed, namespacesOf } from "./caller.ts";
import { formatExit, openParts, type Parts, type PartsOptions } from "./parts.ts";
import type { PartSettings } from "./part_settings.ts";
import {
  hasActivatedListener,
  isLost,
  lockPath,
  QUESTIONS,
  REPLACE_ACCEPTED,
  REPLACE_REFUSED,
  type ServerSockets,
  unlinkSockets,
} from "./sockets.ts";
import { formatStatus } from "./status.ts";
import { MIN_WORKERS, type ServerLimits } from "./limits.ts";
import { notifySystemd, watchdogIntervalMs } from "./systemd.ts";
import type { WorkerOptions } from "./worker_options.ts";
import {
  BUSY,
  IDLE,
  newWorkerRecord,
  openWorkerTable,
  readWorkerRecords,
  REFUSALS,
  STARTING,
  type WorkerRecord,
  writeWorkerRecord,
} from "./worker_table.ts";

export interface ServerOptions {
  readonly sockets: ServerSockets;
  readonly maxWorkers: number;
  readonly logFormat: "text" | "json";
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly limits: ServerLimits;
  readonly parts: PartSettings;
  readonly account?: PartsOptions["account"];
  readonly program: string;
  /** Whether a call starts the next one, though systemd has no sockets for it. */
  readonly isOnDemand: boolean;
  log(message: string): void;
}

// Another worker starts when all were busy for this long.
const BUSY_MS = 20;
// Beyond one worker for each processor, another helps only if the calls wait for something else.
const MAX_ACTIVE_SHARE = 0.6;
// After a worker that ended before it was warm, and after a refusal of the kernel.
const RESTART_DELAY_MS = 1000;
const SOCKET_CHECK_MS = 5000;
const ROUNDS_PER_COLLECTION = 200;
// The oldest leaves when more connect and ask nothing.
const MAX_CLIENTS = 16;

interface Server {
  readonly options: ServerOptions;
  readonly table: Descriptor;
  /** See {@linkcode isAllowed} for what this says of this process. */
  readonly namespaces: string;
  /** The workers' end of a pipe that wakes the supervisor. */
  readonly notifier: number;
  /** Has slots by process number. */
  readonly workers: Map<number, number>;
  readonly parts: Parts;
  readonly endedWorkers: WorkerRecord;
  /** Since when all workers are busy. Times are those of `performance.now()`. */
  busy: { readonly since: number; readonly activeMs: number } | undefined;
  lastAllBusy: number;
  workerStarts: number;
  nextStart: number;
  nextAccept: number;
  /** What the kernel refused the last time is logged once. */
  readonly refused: Set<string>;
  /** When a worker had a call the last time, or a part had work. */
  lastUse: number;
  nextCheck: number;
  isReady: boolean;
  isStopping: boolean;
  isLost: boolean;
  /** Connections that have not asked yet: the supervisor never waits for them. */
  readonly clients: Set<Descriptor>;
  successor: Descriptor | undefined;
}

/**
 * Starts workers, which take the calls, until a signal ends it or another server takes over.
 *
 * @returns the exit status
 */
export function supervise(options: ServerOptions): number {
  const { sockets, env, maxWorkers } = options;
  using resources = new DisposableStack();
  // A parent may have ignored them. The kernel would reap workers, and workers would not end.
  for (const signal of [SIGCHLD, SIGTERM]) sys.signal(signal, null);
  const endingSignals = [SIGHUP, SIGINT, SIGTERM].filter((signal) => !isIgnored(signal));
  const signals = resources.use(openSignals([...endingSignals, SIGCHLD]));
  const [notified, notifier] = openNotifier(resources);
  const server: Server = {
    options,
    namespaces: namespacesOf("self"),
    notifier: notifier.fd,
    workers: new Map(),
    endedWorkers: newWorkerRecord(0),
    parts: resources.use(openParts({ ...options, settings: options.parts, inherited: sockets.ofParts })),
    table: resources.use(openWorkerTable(`${sockets.path}.workers.${process.pid}`, maxWorkers)),
    busy: undefined,
    lastAllBusy: -Infinity,
    workerStarts: 0,
    nextStart: 0,
    nextAccept: 0,
    refused: new Set(),
    lastUse: performance.now(),
    nextCheck: 0,
    isReady: false,
    isStopping: false,
    isLost: false,
    clients: new Set(),
    successor: undefined,
  };
  const watchdogMs = watchdogIntervalMs(env);
  let readyFds: readonly number[] = [];
  for (let round = 1; !server.isStopping || hasChildren(server); round++) {
    // Else the heap grows for long.
    if (round % ROUNDS_PER_COLLECTION === 0) Bun.gc(true);
    const waitMs = server.isStopping ? Infinity : adjustWorkers(server);
    const isServing = server.isReady && !server.isStopping;
    // What nobody waits for starts once the workers are warm.
    if (isListening(server) && !isServing) server.parts.startAsked(readyFds);
    const partWaitMs = isServing ? server.parts.start(readyFds) : Infinity;
    const partListeners = isListening(server) ? server.parts.listeners() : [];
    const { clients, successor } = server;
    const acceptDelayMs = server.nextAccept - performance.now();
    const acceptor = acceptDelayMs > 0 ? [] : [sockets.control];
    const controls = isListening(server) ? [...acceptor, ...clients, ...successor ? [successor] : []] : [];
    const retryMs = acceptDelayMs > 0 ? acceptDelayMs : Infinity;
    const checkMs = isServing ? Math.min(SOCKET_CHECK_MS, options.limits.idleMs) : Infinity;
    const timeoutMs = Math.ceil(Math.min(waitMs, partWaitMs, retryMs, checkMs, watchdogMs ?? Infinity));
    const fds = [signals, notified, ...controls, ...partListeners].map(({ fd }) => fd);
    const ready = pollAny(fds, timeoutMs === Infinity ? -1 : timeoutMs);
    readyFds = ready;
    if (watchdogMs !== undefined) notifySystemd(env, "WATCHDOG=1");
    if (ready.includes(notified.fd)) readAvailable(notified.fd);
    if (ready.includes(signals.fd) && signals.read() !== SIGCHLD) stop(server);
    reapChildren(server);
    if (isServing) checkSocketNames(server);
    if (isServing) endIfIdle(server);
    if (server.isStopping) continue;
    for (const client of clients) if (ready.includes(client.fd)) answerClient(server, client);
    if (successor && ready.includes(successor.fd)) finishTakeover(server, successor);
    if (!server.isStopping && ready.includes(sockets.control.fd)) acceptClient(server);
  }
  return server.isLost ? 1 : 0;
}

/** A server that nobody reaches would keep port 53 and the lock of leases from the next one. */
function checkSocketNames(server: Server): void {
  const { options: { sockets, log }, parts } = server;
  const now = performance.now();
  if (server.isStopping || now < server.nextCheck) return;
  server.nextCheck = now + SOCKET_CHECK_MS;
  const lost = [...sockets.names, ...parts.socketNames()].find(isLost);
  if (!lost) return;
  log(`The socket "${lost.path}" was removed or replaced: this server ends, as nobody reaches it there`);
  server.isLost = true;
  stop(server);
}

/** A node without containers has no server then. */
function endIfIdle(server: Server): void {
  const { options: { sockets, limits, log, maxWorkers, isOnDemand }, parts, successor } = server;
  const isStartedAgain = isOnDemand ||
    hasActivatedListener(sockets) && parts.socketNames().every(({ isActivated }) => isActivated);
  if (server.isStopping || !isStartedAgain || limits.idleMs === Infinity) return;
  const now = performance.now();
  const records = readWorkerRecords(server.table.fd, maxWorkers).filter(({ pid }) => pid !== 0);
  const isUsed = successor !== undefined || records.some(({ state }) => state !== IDLE) || parts.hasWork();
  server.lastUse = isUsed
    ? now
    : Math.max(server.lastUse, ...records.map(({ since }) => since - performance.timeOrigin));
  if (now - server.lastUse < limits.idleMs) return;
  log("No call has come, and no part has work: this server ends, and the next call starts one");
  stop(server);
}

/** Until this server is ready, the one that it is to replace answers. */
function isListening({ isStopping, isReady, options: { sockets } }: Server): boolean {
  return !isStopping && (isReady || !sockets.predecessor);
}

function openNotifier(resources: DisposableStack): readonly [Descriptor, Descriptor] {
  const ends = new Int32Array(2);
  sys.pipe2(ends, O_CLOEXEC | O_NONBLOCK);
  return [resources.use(descriptor(ends[0]!)), resources.use(descriptor(ends[1]!))];
}

/** @returns after how many milliseconds to look again */
function adjustWorkers(server: Server): number {
  const { workers, options: { maxWorkers, limits } } = server;
  const records = readWorkerRecords(server.table.fd, maxWorkers).filter(({ pid }) => workers.has(pid));
  const now = performance.now();
  if (!server.isReady && records.length >= MIN_WORKERS && records.every(({ state }) => state !== STARTING)) {
    becomeReady(server);
  }
  if (workers.size < MIN_WORKERS) {
    if (now < server.nextStart) return server.nextStart - now;
    startWorker(server);
    return workers.size < MIN_WORKERS ? 0 : Infinity;
  }
  if (records.every(({ state }) => state === BUSY)) {
    server.lastAllBusy = now;
    // Nobody tells when calls end.
    if (workers.size === maxWorkers) return limits.extraWorkerIdleMs;
    server.busy ??= { since: now, activeMs: activeMs(records) };
    const busyMs = now - server.busy.since;
    if (busyMs < BUSY_MS) return BUSY_MS - busyMs;
    const share = (activeMs(records) - server.busy.activeMs) / (busyMs * records.length);
    server.busy = undefined;
    if (records.length >= navigator.hardwareConcurrency && share > MAX_ACTIVE_SHARE) return BUSY_MS;
    if (now < server.nextStart) return server.nextStart - now;
    return startWorker(server) ? Infinity : RESTART_DELAY_MS;
  }
  server.busy = undefined;
  if (workers.size === MIN_WORKERS) return Infinity;
  // One that has served no call yet is for calls that may come.
  const warmSince = records.filter(({ served }) => served === 0).map(({ since }) => since - performance.timeOrigin);
  const keepMs = Math.max(server.lastAllBusy, ...warmSince) + limits.extraWorkerIdleMs - now;
  if (keepMs > 0) return keepMs;
  // Those that came last were not warmed up.
  const idle = records.filter(({ state }) => state === IDLE).slice(MIN_WORKERS - workers.size);
  for (const { pid } of idle) endWorker(pid);
  return limits.extraWorkerIdleMs;
}

/** Sums up how long workers have run or waited for a processor. @see Documentation/scheduler/sched-stats.rst */
function activeMs(records: readonly WorkerRecord[]): number {
  return records.reduce((total, { pid }) => {
    const [runNs = 0, waitNs = 0] = (ignoreSystemErrors(() => readText(`/proc/${pid}/schedstat`)) ?? "").split(" ").map(
      Number,
    );
    return total + (runNs + waitNs) / 1e6;
  }, 0);
}

function becomeReady(server: Server): void {
  const { sockets, env, log } = server.options;
  server.isReady = true;
  // Shims see that this process listens: systemd, the last server or a worker may have done so before.
  listenOn(sockets.listener.fd);
  log(`Listening on "${sockets.path}"`);
  notifySystemd(env, `READY=1\nMAINPID=${process.pid}`);
  if (!sockets.predecessor) return;
  sendPacket(sockets.predecessor.fd, new TextEncoder().encode(QUESTIONS.ready));
  sockets.predecessor[Symbol.dispose]();
}

/** Does what the kernel refuses for lack of processes or descriptors. @returns whether it is done */
function attempt({ refused, options }: Server, purpose: string, action: () => void): boolean {
  try {
    action();
    refused.delete(purpose);
    return true;
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    if (!refused.has(purpose)) options.log(error.withPurpose(purpose).message);
    refused.add(purpose);
    return false;
  }
}

/** Returns false if the kernel refuses: another attempt follows later. */
function startWorker(server: Server): boolean {
  const isStarted = attempt(server, "start a worker", () => spawnWorker(server));
  if (!isStarted) server.nextStart = performance.now() + RESTART_DELAY_MS;
  return isStarted;
}

function spawnWorker(server: Server): void {
  const { options: { sockets, maxWorkers, logFormat, limits, parts, program }, table, workers, notifier } = server;
  const used = new Set(workers.values());
  const slot = Array.from({ length: maxWorkers }, (_, i) => i).find((i) => !used.has(i))!;
  const workerOptions: WorkerOptions = {
    serverPid: process.pid,
    slot,
    slots: maxWorkers,
    lockPath: lockPath(sockets.path),
    logFormat,
    limits,
    ...workers.size < MIN_WORKERS && { warmUp: parts.cluster || parts.policy ? "pods" : "containers" },
    hasMetrics: parts.metricsAddress !== undefined,
  };
  // Somebody may have removed it.
  ignoreErrors(["EEXIST"], () => createReadWrite(workerOptions.lockPath)[Symbol.dispose]());
  const fds = [0, 1, 2, sockets.listener.fd, table.fd, notifier, server.parts.reports];
  const pid = startWithDescriptors(
    program,
    ["cni serve: worker", "serve-worker", JSON.stringify(workerOptions)],
    [],
    fds,
  );
  writeWorkerRecord(table.fd, slot, newWorkerRecord(pid));
  workers.set(pid, slot);
  server.workerStarts++;
}

function endWorker(pid: number): void {
  ignoreErrors(["ESRCH"], () => sys.kill(pid, SIGTERM));
}

const hasChildren = ({ workers, parts }: Server): boolean => workers.size > 0 || parts.isRunning();

function reapChildren(server: Server): void {
  const { workers, parts, endedWorkers, options, table } = server;
  for (let child; hasChildren(server) && (child = reapAnyChild());) {
    const slot = workers.get(child.pid);
    if (slot === undefined) {
      parts.forget(child.pid, child.exitStatus);
      continue;
    }
    workers.delete(child.pid);
    const record = readWorkerRecords(table.fd, options.maxWorkers)[slot]!;
    writeWorkerRecord(table.fd, slot, newWorkerRecord(0));
    for (const counter of ["served", ...REFUSALS] as const) {
      endedWorkers[counter] += record[counter];
    }
    const { exitStatus } = child;
    const isExpected = "status" in exitStatus ? exitStatus.status === 0 : exitStatus.signal === SIGTERM;
    if (!isExpected) {
      options.log(
        `Worker ${child.pid} ended with ${formatExit(exitStatus)}${record.state === BUSY ? " during a call" : ""}`,
      );
    }
    if (record.state === STARTING) server.nextStart = performance.now() + RESTART_DELAY_MS;
  }
}

/** Workers finish their calls. Shims that have not been answered run their calls by themselves. */
function stop(server: Server): void {
  if (server.isStopping) return;
  server.isStopping = true;
  const { sockets, env } = server.options;
  notifySystemd(env, "STOPPING=1");
  // Another server listens there: the one to be replaced, or the one that replaces this.
  const isShared = server.successor !== undefined || (sockets.predecessor !== undefined && !server.isReady);
  if (!isShared) unlinkSockets(sockets);
  endWorkers(server);
  server.parts.end(isShared);
  // A worker that finishes its call has the listener open. systemd keeps its own for the next server.
  if (!isShared && !hasActivatedListener(sockets)) refuseConnections(sockets.listener.fd);
  closeSockets(server);
}

function endWorkers({ workers }: Server): void {
  for (const pid of workers.keys()) endWorker(pid);
}

function closeSockets({ options: { sockets } }: Server): void {
  for (const socket of [sockets.listener, sockets.control]) socket[Symbol.dispose]();
}

function acceptClient(server: Server): void {
  const { options: { sockets }, clients } = server;
  const isAccepted = attempt(server, "accept a connection", () => {
    // A server that takes over accepts too.
    const client = ignoreErrors(["EAGAIN"], () => acceptConnection(sockets.control.fd));
    if (client) clients.add(client);
  });
  if (!isAccepted) server.nextAccept = performance.now() + RESTART_DELAY_MS;
  if (clients.size <= MAX_CLIENTS) return;
  const [oldest] = clients;
  clients.delete(oldest!);
  oldest![Symbol.dispose]();
}

function answerClient(server: Server, connection: Descriptor): void {
  const { options: { sockets, maxWorkers }, clients } = server;
  clients.delete(connection);
  const question = new TextDecoder().decode(receivePacket(connection.fd, new Uint8Array(64)).bytes);
  if (question === QUESTIONS.replace && !isAllowed(peerCredentials(connection.fd), server.namespaces)) {
    sendPacket(connection.fd, Uint8Array.of(REPLACE_REFUSED));
    connection[Symbol.dispose]();
    return;
  }
  if (question === QUESTIONS.replace && !server.successor) {
    server.successor = connection;
    const { names, fds } = server.parts.share();
    const answer = [REPLACE_ACCEPTED, ...new TextEncoder().encode(names.join(" "))];
    sendDescriptors(connection.fd, Uint8Array.from(answer), [sockets.listener.fd, sockets.control.fd, ...fds]);
    return;
  }
  if (question === QUESTIONS.replace) sendPacket(connection.fd, Uint8Array.of(REPLACE_ACCEPTED));
  if (question === QUESTIONS.status) {
    const records = readWorkerRecords(server.table.fd, maxWorkers).filter(({ pid }) => pid !== 0);
    sendPacket(
      connection.fd,
      new TextEncoder().encode(
        formatStatus({ ...server, records, parts: server.parts.status(), isOnDemand: server.options.isOnDemand }),
      ),
    );
  }
  connection[Symbol.dispose]();
}

/** If the other server does not get ready, this one goes on. */
function finishTakeover(server: Server, successor: Descriptor): void {
  const { bytes } = receivePacket(successor.fd, new Uint8Array(64));
  successor[Symbol.dispose]();
  server.successor = undefined;
  if (new TextDecoder().decode(bytes) !== QUESTIONS.ready) return;
  server.isStopping = true;
  endWorkers(server);
  server.parts.end(true);
  closeSockets(server);
}
