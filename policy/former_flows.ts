/** Ends the flows of those who had a pod's addresses before, and of pods that have gone. @module */
import type { Ip } from "../ffi/address.ts";
import { deleteFlowsInPieces, SEARCHED_ADDRESSES } from "../ffi/conntrack/conntrack.ts";
import { mayHaveEntriesOf } from "../ffi/conntrack/procfs.ts";
import { type Netlink, NETLINK_NETFILTER, openNetlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { bootTimeMs } from "../ffi/sys/boot_clock.ts";
import { SystemError } from "../ffi/sys/error.ts";
import type { FreeAddresses } from "./free_addresses.ts";
import { inSlices } from "./slices.ts";

interface Walk {
  /** When who asked for an address stops waiting: milliseconds since the boot. */
  readonly untilMs: Map<Ip, number>;
  /** Resolved with the addresses that have no flows of before. */
  readonly done: Promise<ReadonlySet<Ip>>;
}

/** The kernel walks its whole table for them, which takes 10 ms and more: once for all who ask meanwhile. */
export class FormerFlows implements Disposable {
  readonly #host: Netns;
  readonly #log: (message: string) => void;
  readonly #addresses: FreeAddresses;
  /** The one that has not begun. */
  #next: Walk | undefined;
  /** Of the one that has. */
  #running: Walk["untilMs"] = new Map();
  #last: Promise<unknown> = Promise.resolve();
  #isOver = false;

  constructor(host: Netns, addresses: FreeAddresses, log: (message: string) => void) {
    this.#host = host;
    this.#addresses = addresses;
    this.#log = log;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
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
    const awaited = new Set(untilMs.keys());
    const isOver = () => {
      const now = bootTimeMs();
      for (const ip of awaited) if (this.#isOver || now >= untilMs.get(ip)!) awaited.delete(ip);
      return awaited.size === 0;
    };
    try {
      if (isOver()) return awaited;
      const released = this.#addresses.released(SEARCHED_ADDRESSES - awaited.size);
      const watched = new Set(released.keys());
      if (this.#host.run(() => mayHaveEntriesOf([...awaited, ...watched]))) {
        using nl = this.#host.run<Netlink>(() => openNetlink(NETLINK_NETFILTER, this.#host.path));
        await inSlices(deleteFlowsInPieces(nl, awaited, watched), isOver);
        if (isOver()) return awaited;
      }
      this.#addresses.settle(released, watched);
      return awaited;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#log(`Cannot end the connections of ${[...awaited].join(", ")}: ${error.message}`);
      return new Set();
    }
  }
}
