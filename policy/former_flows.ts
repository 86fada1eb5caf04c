/** Ends the flows of those who had a pod's addresses before, and of pods that have gone. @module */
import type { Ip } from "../ffi/address.ts";
import { deleteFlowsInPieces } from "../ffi/conntrack/conntrack.ts";
import { mayHaveEntriesOf } from "../ffi/conntrack/procfs.ts";
import { type Netlink, NETLINK_NETFILTER, openNetlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { inSlices } from "./slices.ts";

interface Walk {
  /** When who asked for an address stops waiting, in milliseconds since 1970. */
  readonly untilMs: Map<Ip, number>;
  readonly done: Promise<boolean>;
}

/** The kernel walks its whole table for them, which takes 10 ms and more: once for all who ask meanwhile. */
export class FormerFlows implements Disposable {
  readonly #host: Netns;
  readonly #log: (message: string) => void;
  /** The one that has not begun. */
  #next: Walk | undefined;
  #last: Promise<unknown> = Promise.resolve();
  #isOver = false;

  constructor(host: Netns, log: (message: string) => void) {
    this.#host = host;
    this.#log = log;
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
  }

  /**
   * @param untilMs in milliseconds since 1970: later, nothing is deleted
   * @returns `false` if something may be left
   */
  delete(ips: readonly Ip[], untilMs: number): Promise<boolean> {
    const walk = this.#next ??= this.#newWalk();
    for (const ip of ips) walk.untilMs.set(ip, Math.min(untilMs, walk.untilMs.get(ip) ?? Infinity));
    return walk.done;
  }

  #newWalk(): Walk {
    const untilMs: Walk["untilMs"] = new Map();
    const run = () => {
      this.#next = undefined;
      return this.#walk(untilMs);
    };
    const done = this.#last.then(run, run);
    this.#last = done;
    return { untilMs, done };
  }

  /** The first who stops waiting ends it for all. */
  async #walk(untilMs: Walk["untilMs"]): Promise<boolean> {
    const ips = [...untilMs.keys()].filter((ip) => Date.now() < untilMs.get(ip)!);
    const firstMs = Math.min(...ips.map((ip) => untilMs.get(ip)!));
    const isOver = () => this.#isOver || Date.now() >= firstMs;
    try {
      if (ips.length > 0 && this.#host.run(() => mayHaveEntriesOf(ips))) {
        using nl = this.#host.run<Netlink>(() => openNetlink(NETLINK_NETFILTER, this.#host.path));
        await inSlices(deleteFlowsInPieces(nl, new Set(ips)), isOver);
      }
      return ips.length === untilMs.size && !isOver();
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#log(`Cannot end the connections of ${ips.join(", ")}: ${error.message}`);
      return false;
    }
  }
}
