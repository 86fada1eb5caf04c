/**
 * Packets between all pairs of namespaces the whole time, each with a number, so that none is lost unseen.
 *
 * @module
 */
import { familyOf, type Ip } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { openInNetns } from "./traffic.ts";

export interface TrafficEnd {
  readonly name: string;
  readonly netns: Netns;
  readonly addresses: readonly Ip[];
}

/** Packets that left, and what became of them. */
export interface SteadyTraffic extends Disposable {
  readonly sent: number;
  /** Waits for late answers, then tells what has none of all that left since a time of `performance.now()`. */
  losses(since: number): Promise<Loss[]>;
  /** Waits until all is answered again. @returns how long after that time the last packet left that was lost */
  recovery(since: number): Promise<number>;
}

/** The first and the last packet by the milliseconds after the time that was asked for. */
export interface Loss {
  readonly flow: string;
  readonly from: string;
  readonly to: string;
  readonly count: number;
  readonly first: number;
  readonly last: number;
  /** For how long no packet of the flow was answered. */
  readonly longestGapMs: number;
}

interface Flow extends Disposable {
  readonly name: string;
  readonly from: string;
  readonly to: string;
  send(number: number): void;
  /** When packets left that have no answer, by their numbers. */
  readonly unanswered: ReadonlyMap<number, number>;
}

const ECHO_PORT = 7;
const INTERVAL_MS = 10;
/** An answer takes less than a millisecond; one of a busy machine takes longer. */
const LATE_MS = 1500;
/** Nothing was lost for so long: it works again. */
const QUIET_MS = 400;
/** What is taken away is missed at once, or when caches of the kernel end. */
const EFFECT_MS = 1500;
const PATIENCE_MS = 10_000;

/** Sends a hundred packets each second from each end to each address of all others. */
export async function startTraffic(ends: readonly TrafficEnd[]): Promise<SteadyTraffic> {
  using resources = new DisposableStack();
  for (const end of ends) resources.use(await openEcho(end.netns));
  const flows: Flow[] = [];
  for (const from of ends) {
    for (const to of ends.filter((end) => end !== from)) {
      for (const address of to.addresses) flows.push(resources.use(await openFlow(from, to.name, address)));
    }
  }
  let number = 0;
  const timer = setInterval(() => {
    number++;
    for (const flow of flows) flow.send(number);
  }, INTERVAL_MS);
  resources.defer(() => clearInterval(timer));
  const owned = resources.move();
  return {
    get sent() {
      return number * flows.length;
    },
    async losses(since) {
      const until = performance.now();
      await Bun.sleep(LATE_MS);
      return flows.flatMap(({ name, from, to, unanswered }) => {
        const lost = [...unanswered].filter(([, time]) => time >= since && time <= until);
        const [first, last] = [lost[0], lost.at(-1)].map((packet) => Math.round((packet?.[1] ?? 0) - since));
        const longestGapMs = Math.round(longestGap(lost));
        const loss = { flow: name, from, to, count: lost.length, first: first!, last: last!, longestGapMs };
        return lost.length === 0 ? [] : [loss];
      });
    },
    async recovery(since) {
      for (;;) {
        const now = performance.now();
        const lost = flows.flatMap(({ unanswered }) => [...unanswered.values()])
          .filter((time) => time >= since && time < now - QUIET_MS / 2);
        const last = Math.max(since, ...lost);
        const isOver = now > since + PATIENCE_MS;
        if (isOver || now > since + EFFECT_MS && now > last + QUIET_MS) return Math.round(last - since);
        await Bun.sleep(INTERVAL_MS * 5);
      }
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}

/** @param lost numbers and times of packets, in the order in which they left */
function longestGap(lost: readonly (readonly [number: number, time: number])[]): number {
  let longest = 0, gapStart = 0, former = NaN;
  for (const [number, time] of lost) {
    if (number !== former + 1) gapStart = time;
    longest = Math.max(longest, time - gapStart + INTERVAL_MS);
    former = number;
  }
  return longest;
}

async function openEcho(netns: Netns): Promise<Disposable> {
  const socket = await openInNetns(netns, () =>
    Bun.udpSocket({
      hostname: "::",
      port: ECHO_PORT,
      socket: { error() {}, data: (self, text, port, from) => void self.send(text, port, from) },
    }));
  return { [Symbol.dispose]: () => socket.close() };
}

async function openFlow(from: TrafficEnd, to: string, address: Ip): Promise<Flow> {
  const unanswered = new Map<number, number>();
  const socket = await openInNetns(from.netns, () =>
    Bun.udpSocket({
      hostname: familyOf(address) === 4 ? "0.0.0.0" : "::",
      socket: { error() {}, data: (_, text) => void unanswered.delete(Number(text.toString())) },
    }));
  return {
    name: `${from.name} -> ${to} ${address}`,
    from: from.name,
    to,
    unanswered,
    send(number) {
      unanswered.set(number, performance.now());
      try {
        socket.send(`${number}`, ECHO_PORT, address);
      } catch {
        // A router that knows no way said so: this packet is lost.
      }
    },
    [Symbol.dispose]: () => socket.close(),
  };
}
