/** Ends the flows of those who had a pod's addresses before, and of pods that have gone. @module */
import type { Ip } from "../ffi/address.ts";
import { deleteFlowsInPieces, dumpFlowsInPieces } from "../ffi/conntrack/conntrack.ts";
import { mayHaveEntriesOf } from "../ffi/conntrack/procfs.ts";
import { type Netlink, NETLINK_NETFILTER, openNetlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { bootTimeMs } from "../ffi/sys/boot_clock.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { SeenAddresses } from "./seen_addresses.ts";
import { inSlices } from "./slices.ts";

interface Walk {
  /** When who asked for an address stops waiting: milliseconds since the boot. */
  readonly untilMs: Map<Ip, number>;
  /** Resolved with the addresses that have no flows of before. */
  readonly done: Promise<ReadonlySet<Ip>>;
}

export interface FormerFlowsOptions {
  /** Whether a pod has this address now. */
  isAttached(ip: Ip): boolean;
  log(message: string): void;
  /** How long after DEL the pod's link may still be there, and with it new flows: in milliseconds. */
  readonly linkGoneMs?: number;
}

const LINK_GONE_MS = 10_000;

/**
 * The kernel walks its whole table for them, which takes 10 ms and more: once for all who ask meanwhile, and not at all
 * for a pod whose addresses had no flows, and nobody since.
 */
export class FormerFlows implements Disposable {
  readonly #host: Netns;
  readonly #options: FormerFlowsOptions;
  /** Of all flows at one time; `undefined`: not listed yet. */
  #listed: SeenAddresses | undefined;
  #hasBegun = false;
  /** Pods have had them since, and may have left flows. */
  readonly #used = new Set<Ip>();
  /** Listed once, and without flows now. */
  readonly #free = new Set<Ip>();
  /** Used, until their pods had ended at this time of `performance.now()`. */
  readonly #released = new Map<Ip, number>();
  /** The one that has not begun. */
  #next: Walk | undefined;
  /** Of the one that has. */
  #running: Walk["untilMs"] = new Map();
  #last: Promise<unknown> = Promise.resolve();
  #isOver = false;

  constructor(host: Netns, options: FormerFlowsOptions) {
    this.#host = host;
    this.#options = options;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
  }

  /** Lists what flows there are, once. Until then, and without it, each pod has its walk. */
  async list(): Promise<void> {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    let found = new SeenAddresses();
    try {
      using nl = this.#openNetlink();
      const pieces = dumpFlowsInPieces(nl, () => void (found = new SeenAddresses()), ({ source, replySource }) => {
        found.add(source);
        found.add(replySource);
      });
      await inSlices(pieces, () => this.#isOver);
      this.#listed = found;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#options.log(
        `Cannot list connections, so each new pod waits until its addresses have none: ${error.message}`,
      );
    }
  }

  /** Call it for pods that others tell of, perhaps late. */
  use(ips: readonly Ip[]): void {
    for (const ip of ips) {
      this.#used.add(ip);
      this.#free.delete(ip);
    }
  }

  /** Call it in ADD. @param untilMs as in {@linkcode delete} @returns `false` if something may be left */
  async attach(ips: readonly Ip[], untilMs: number): Promise<boolean> {
    const isFree = ips.every((ip) => this.#isFree(ip));
    this.use(ips);
    for (const ip of ips) this.#released.delete(ip);
    return isFree || await this.delete(ips, untilMs);
  }

  /** Call it in DEL. @param untilMs as in {@linkcode delete} @returns `false` if something may be left */
  async detach(ips: readonly Ip[], untilMs: number): Promise<boolean> {
    this.use(ips);
    // First: the next pod may come meanwhile.
    for (const ip of ips) this.#released.set(ip, performance.now());
    return await this.delete(ips, untilMs);
  }

  #isFree(ip: Ip): boolean {
    if (this.#listed === undefined || this.#used.has(ip)) return false;
    return this.#free.has(ip) || !this.#listed.mayHave(ip);
  }

  #openNetlink(): Netlink {
    return this.#host.run<Netlink>(() => openNetlink(NETLINK_NETFILTER, this.#host.path));
  }

  /**
   * @param untilMs in milliseconds since the boot: later, nothing is deleted
   * @returns `false` if something may be left
   */
  async delete(ips: readonly Ip[], untilMs: number): Promise<boolean> {
    const walk = this.#next ??= this.#newWalk();
    for (const ip of ips) {
      walk.untilMs.set(ip, Math.min(untilMs, walk.untilMs.get(ip) ?? Infinity));
      // Who asked before may have been killed, and have left it to this one's pod.
      const before = this.#running.get(ip);
      if (before !== undefined) this.#running.set(ip, Math.min(untilMs, before));
    }
    const late = Promise.withResolvers<ReadonlySet<Ip>>();
    // Others of the same walk may wait for longer.
    const timer = setTimeout(() => late.resolve(new Set()), Math.max(0, untilMs - bootTimeMs()));
    const free = await Promise.race([walk.done, late.promise]).finally(() => clearTimeout(timer));
    return ips.every((ip) => free.has(ip));
  }

  #newWalk(): Walk {
    const untilMs: Walk["untilMs"] = new Map();
    const run = () => {
      this.#next = undefined;
      this.#running = untilMs;
      return this.#walk(untilMs);
    };
    const done = this.#last.then(run, run);
    this.#last = done;
    return { untilMs, done };
  }

  async #walk(untilMs: Walk["untilMs"]): Promise<ReadonlySet<Ip>> {
    const released = this.#findReleased(untilMs);
    for (const ip of released) untilMs.set(ip, Infinity);
    const awaited = new Set(untilMs.keys());
    const isOver = () => {
      const now = bootTimeMs();
      for (const ip of awaited) if (this.#isOver || now >= untilMs.get(ip)!) awaited.delete(ip);
      return awaited.size === 0;
    };
    try {
      if (isOver()) return awaited;
      if (this.#host.run(() => mayHaveEntriesOf([...awaited]))) {
        using nl = this.#openNetlink();
        await inSlices(deleteFlowsInPieces(nl, awaited), isOver);
      }
      this.#setFree(released.filter((ip) => awaited.has(ip) && this.#released.has(ip)));
      return awaited;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#options.log(`Cannot end the connections of ${[...awaited].join(", ")}: ${error.message}`);
      return new Set();
    }
  }
  /** Pods that have ended, and whose links are gone: they have no new flows. */
  #findReleased(asked: Walk["untilMs"]): readonly Ip[] {
    const { isAttached, linkGoneMs = LINK_GONE_MS } = this.#options;
    const before = performance.now() - linkGoneMs;
    return [...this.#released].flatMap(([ip, at]) => at <= before && !asked.has(ip) && !isAttached(ip) ? [ip] : []);
  }

  #setFree(ips: readonly Ip[]): void {
    for (const ip of ips) {
      this.#released.delete(ip);
      this.#used.delete(ip);
      if (this.#listed?.mayHave(ip)) this.#free.add(ip);
    }
  }
}
