/** Answers containers' questions about names. One thread: what a plugin told it holds from its answer on. */
import { currentNetns } from "../../../ffi/netns/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { ensureDirectory } from "../../../ffi/sys/directory.ts";
import { type EventPoll, openEventPoll } from "../../../ffi/sys/event_poll.ts";
import { lockFile } from "../../../ffi/sys/lock.ts";
import { openSignals } from "../../../ffi/sys/signal_descriptor.ts";
import { SIGINT, SIGTERM } from "../../../ffi/sys/uapi.ts";
import { type AnswerKind, newAnswerCounters } from "./answer_counters.ts";
import { Acceptor } from "./acceptor.ts";
import type { Responder } from "./answer_arrival.ts";
import { Arrivals } from "./arrivals.ts";
import { Connections } from "./connections.ts";
import { serveControl } from "./control.ts";
import { NameDirectory } from "./directory.ts";
import { Forwarder } from "./forwarder.ts";
import { Listeners } from "./listeners.ts";
import { RecordStore } from "./record_store.ts";
import { followResolvers } from "./resolvers.ts";

export interface NamesOptions {
  readonly listener: number;
  /** The end of a pipe. The server ends when nobody has the other end. */
  readonly lifetime: number;
  /** Has a file for each record, and the lock of the server. */
  readonly stateDirectory?: string;
  /** The host's file of resolvers, which is read again when it changes. */
  readonly resolvConf?: string;
  log(message: string): void;
  /** Told after each round whether it has names to answer for. */
  tellWork?(hasNames: boolean): void;
  /** Takes how many questions got this answer, at most once a second. */
  count?(answer: AnswerKind, count: number): void;
}

/** An earlier server may still be ending. */
const LOCK_TIMEOUT_MS = 10_000;

/** Returns when the lifetime ends, or on SIGTERM or SIGINT. */
export function serveNames(options: NamesOptions): void {
  const { listener, lifetime, stateDirectory = "/run/cni/dnsname", resolvConf = "/etc/resolv.conf", log } = options;
  using resources = new DisposableStack();
  ensureDirectory(stateDirectory, 0o700);
  resources.use(lockFile(`${stateDirectory}/lock`, { timeoutMs: LOCK_TIMEOUT_MS }));
  const host = resources.use(currentNetns());
  const poll = resources.use(openEventPoll());

  const names = new NameDirectory();
  const counters = newAnswerCounters((answer, count) => options.count?.(answer, count));
  const forwarder = new Forwarder({
    poll,
    resolvers: followResolvers(resolvConf, (name) => link.find(host.route, name)?.index),
    isOwn: (resolver) => listeners.isListening(resolver.address),
    count: (answer) => counters.add(answer),
  });
  const acceptor = new Acceptor(poll, log);
  const connections = new Connections(poll, acceptor);
  const responder: Responder = { names, forwarder, counters };
  const listeners: Listeners = new Listeners(host, new Arrivals({ host, poll, connections, responder }));
  const store = new RecordStore({ directory: stateDirectory, host, names, listeners, log });
  store.loadAll();
  serveControl(poll, acceptor, listener, (request) => store.answer(request));

  const signals = resources.use(openSignals([SIGTERM, SIGINT]));
  serveUntilReadable([lifetime, signals.fd], poll, [acceptor, forwarder, connections, listeners, counters], () => {
    options.tellWork?.(store.hasRecords);
  });
  counters.flush();
}

/** What has something to do at a time of `performance.now()`; `Infinity` if nothing is due. */
interface Timed {
  deadline(): number;
  expire(): void;
}

/** @param ends descriptors, one of which ends it */
function serveUntilReadable(
  ends: readonly number[],
  poll: EventPoll,
  timed: readonly Timed[],
  beforeWait: () => void,
): void {
  let isEnding = false;
  for (const fd of ends) poll.onReadable(fd, () => void (isEnding = true));
  while (!isEnding) {
    beforeWait();
    const deadline = Math.min(...timed.map((each) => each.deadline()));
    poll.wait(deadline === Infinity ? -1 : Math.max(0, Math.ceil(deadline - performance.now())));
    for (const each of timed) each.expire();
  }
}
