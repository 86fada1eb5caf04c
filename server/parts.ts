/** Parts of the server do what outlives a call: each is a process, started when something needs it. @module */
import { listDirectory } from "../ffi/sys/directory.ts";
import { ignoreSystemErrors, SystemError } from "../ffi/sys/error.ts";
import { type Descriptor, descriptor, openFile } from "../ffi/sys/file.ts";
import { sys } from "../ffi/sys/libc.ts";
import { type ExitStatus, startWithDescriptors } from "../ffi/sys/process.ts";
import { O_CLOEXEC, O_NONBLOCK } from "../ffi/sys/uapi.ts";
import { isListenedAt, listenAt } from "../ffi/sys/unix_socket.ts";
import { privateBytes } from "./memory.ts";
import { partCommand, type PartDefinition, partPaths, PARTS } from "./part_definitions.ts";
import type { PartSettings } from "./part_settings.ts";
import { forgetWork, hasSaidNoWork, WORK_FILE_BYTES } from "./part_work.ts";
import { openSharedFile } from "./shared_file.ts";
import { removeSocketName, type SocketName, socketName } from "./sockets.ts";

export interface PartStatus {
  readonly name: string;
  /** Absent while nothing needs its process. */
  readonly pid?: number;
  /** Milliseconds until it starts again, if it has ended. */
  readonly startsInMs?: number;
  readonly isIdle: boolean;
  readonly starts: number;
  readonly privateBytes: number;
}

export interface Parts extends Disposable {
  readonly reports: number;
  listeners(): Descriptor[];
  startAsked(ready: readonly number[]): void;
  /** @returns after how many milliseconds to look again */
  start(ready: readonly number[]): number;
  /** @returns whether it was a part's process */
  forget(pid: number, exitStatus: ExitStatus): boolean;
  isRunning(): boolean;
  hasWork(): boolean;
  status(): PartStatus[];
  /** Gives them to the server that takes over: names are in the order of descriptors. */
  share(): { readonly names: readonly string[]; readonly fds: readonly number[] };
  socketNames(): SocketName[];
  /** @param isShared another server has the sockets */
  end(isShared: boolean): void;
}

interface Part {
  readonly definition: PartDefinition;
  /** Absent while another program has the socket, and for a part without one. */
  listener: Descriptor | undefined;
  socketName: SocketName | undefined;
  pid: number | undefined;
  /** By `performance.now()`; `Infinity`: when a client connects. Without its socket: when to look for that again. */
  nextStart: number;
  starts: number;
  startedAt: number;
  /** A part that cannot start has growing pauses. */
  pauseMs: number;
}

export interface PartsOptions {
  readonly settings: PartSettings;
  /** From systemd, or from the server that this one replaces. */
  readonly inherited: ReadonlyMap<string, Descriptor>;
  readonly program: string;
  readonly account?: Descriptor | undefined;
  log(message: string): void;
}

const RESTART_DELAY_MS = 1000;
// Meanwhile, new policies are not in force, and routes to new nodes are missing.
const MAX_RESTART_DELAY_MS = 10_000;
/** On a slow machine, a part needs some seconds to find out that it cannot start. */
const MIN_RUN_MS = 10_000;
// The parts of a killed server have their sockets until they have ended.
const CLAIM_MS = 30_000;

export function openParts(options: PartsOptions): Parts {
  const { settings, log } = options;
  using resources = new DisposableStack();
  // Nobody writes: its end tells processes that this one ended, also if it was killed.
  const lifetime = openPipe(resources);
  const reports = openPipe(resources, O_NONBLOCK);
  const work = resources.use(openSharedFile(`${settings.socket}.parts.${process.pid}`, WORK_FILE_BYTES)).fd;
  const parts = PARTS.filter(({ name }) => settings.parts.includes(name)).map((definition): Part => ({
    definition,
    listener: undefined,
    socketName: undefined,
    pid: undefined,
    nextStart: 0,
    starts: 0,
    startedAt: 0,
    pauseMs: RESTART_DELAY_MS,
  }));
  // Set by the first round that serves: on a slow machine, workers may take longer than this to get warm.
  let claimUntil = Infinity;
  for (const part of parts) if (!hasSocket(part)) claimSocket(part, options, claimUntil, resources);
  const owned = resources.move();
  let isEnding = false;
  const waiting = () => parts.filter(({ pid }) => pid === undefined);
  const isAsked = ({ listener }: Part, ready: readonly number[]) => !!listener && ready.includes(listener.fd);
  const start = (part: Part) => startPart(part, { lifetime: lifetime.reader.fd, reports, work }, options);
  return {
    reports: reports.writer.fd,
    listeners() {
      const now = performance.now();
      const mayStart = ({ nextStart }: Part) => nextStart === Infinity || nextStart <= now;
      return waiting().filter(mayStart).flatMap(({ listener }) => listener ?? []);
    },
    startAsked(ready) {
      for (const part of waiting()) if (isAsked(part, ready)) start(part);
    },
    start(ready) {
      const now = performance.now();
      claimUntil = Math.min(claimUntil, now + CLAIM_MS);
      for (const part of waiting()) {
        if (!hasSocket(part) && part.nextStart <= now) claimSocket(part, options, claimUntil, owned);
        if (hasSocket(part) && (part.nextStart <= now || isAsked(part, ready))) start(part);
      }
      return Math.min(...waiting().map(({ nextStart }) => nextStart - now), Infinity);
    },
    forget(pid, exitStatus) {
      const part = parts.find((candidate) => candidate.pid === pid);
      if (!part) return false;
      part.pid = undefined;
      if (isEnding) return true;
      const pauseMs = delayStart(part);
      const pause = `${pauseMs / 1000} s`;
      log(`${part.definition.name} (process ${pid}) ended with ${formatExit(exitStatus)}: it starts again in ${pause}`);
      return true;
    },
    isRunning: () => parts.some(({ pid }) => pid !== undefined),
    hasWork: () =>
      parts.some((part) => part.pid === undefined ? isToStart(part) : !hasSaidNoWork(work, part.definition.name)),
    status: () =>
      parts.filter(hasSocket).map(({ definition: { name }, pid, starts, nextStart }) => ({
        name,
        starts,
        privateBytes: pid === undefined ? 0 : privateBytes(pid),
        isIdle: pid !== undefined && hasSaidNoWork(work, name),
        ...pid !== undefined && { pid },
        ...pid === undefined && nextStart !== Infinity &&
          { startsInMs: Math.max(0, Math.round(nextStart - performance.now())) },
      })),
    share() {
      const shared = parts.filter(({ listener }) => listener !== undefined);
      return {
        names: shared.map(({ definition }) => definition.name),
        fds: shared.map(({ listener }) => listener!.fd),
      };
    },
    socketNames: () => parts.flatMap(({ socketName }) => socketName ?? []),
    end(isShared) {
      isEnding = true;
      for (const { socketName } of parts) if (socketName && !isShared) removeSocketName(socketName);
      owned.dispose();
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}

export const formatExit = (exitStatus: ExitStatus): string =>
  "status" in exitStatus ? `status ${exitStatus.status}` : `signal ${exitStatus.signal}`;

interface Pipe {
  readonly reader: Descriptor;
  readonly writer: Descriptor;
}

function openPipe(resources: DisposableStack, flags = 0): Pipe {
  const ends = new Int32Array(2);
  sys.pipe2(ends, O_CLOEXEC | flags);
  return { reader: resources.use(descriptor(ends[0]!)), writer: resources.use(descriptor(ends[1]!)) };
}

const hasSocket = ({ definition, listener }: Part): boolean =>
  definition.socketType === undefined || listener !== undefined;

/** False for one that waits for clients, and for one whose clients another program serves. */
const isToStart = (part: Part): boolean => hasSocket(part) && part.nextStart !== Infinity;

/** Does nothing while another program serves the part's clients. */
function claimSocket(
  part: Part,
  { settings, inherited, log }: PartsOptions,
  claimUntil: number,
  resources: DisposableStack,
): void {
  const { name, socketType } = part.definition;
  const { socket, state } = partPaths(settings.directory, name);
  const given = inherited.get(name);
  if (!given && isListenedAt(socket, socketType!)) {
    const now = performance.now();
    part.nextStart = now < claimUntil ? now + RESTART_DELAY_MS : Infinity;
    if (part.nextStart === Infinity) log(`Another program serves "${socket}": this server does not`);
    return;
  }
  const hasState = (ignoreSystemErrors(() => listDirectory(state)) ?? []).some((entry) => entry.name.endsWith(".json"));
  part.listener = resources.use(given ?? listenAt(socket, socketType));
  part.socketName = socketName(socket, part.listener);
  part.nextStart = hasState ? 0 : Infinity;
}

interface PartFiles {
  readonly lifetime: number;
  readonly reports: Pipe;
  readonly work: number;
}

function startPart(part: Part, files: PartFiles, { settings, program, account, log }: PartsOptions): void {
  const { definition: { name }, listener } = part;
  const { lifetime, reports, work } = files;
  try {
    forgetWork(work, name);
    using nothing = openFile("/dev/null");
    const fds = [
      0,
      1,
      2,
      (listener ?? nothing).fd,
      lifetime,
      (name === "metrics" ? reports.reader : reports.writer).fd,
      work,
      (account ?? nothing).fd,
    ];
    part.pid = startWithDescriptors(
      program,
      [partCommand(name), "serve-part", name, JSON.stringify(settings)],
      [],
      fds,
    );
    part.starts++;
    part.startedAt = performance.now();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    part.startedAt = performance.now();
    log(`${error.withPurpose(`start ${name}`).message}; the next attempt follows in ${delayStart(part) / 1000} s`);
  }
}

/** @returns the pause: twice the last one, unless the part has run for some time, and longer than that */
function delayStart(part: Part): number {
  const now = performance.now();
  const pauseMs = now - part.startedAt > Math.max(part.pauseMs, MIN_RUN_MS) ? RESTART_DELAY_MS : part.pauseMs;
  part.nextStart = now + pauseMs;
  part.pauseMs = Math.min(2 * pauseMs, MAX_RESTART_DELAY_MS);
  return pauseMs;
}
