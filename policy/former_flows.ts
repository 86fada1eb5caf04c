/** Ends the flows of those who had a pod's addresses before, and of pods that have gone. @module */
import type { Ip } from "../ffi/address.ts";
import { deleteFlowsInPieces } from "../ffi/conntrack/conntrack.ts";
import { mayHaveEntriesOf } from "../ffi/conntrack/procfs.ts";
import { type Netlink, NETLINK_NETFILTER, openNetlink } from "../ffi/netlink/socket.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { inSlices } from "./slices.ts";

interface Walk {
  readonly ips: Set<Ip>;
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

  /** @returns `false` if the kernel refuses */
  delete(ips: readonly Ip[]): Promise<boolean> {
    const walk = this.#next ??= this.#newWalk();
    for (const ip of ips) walk.ips.add(ip);
    return walk.done;
  }

  #newWalk(): Walk {
    const ips = new Set<Ip>();
    const done = this.#last.then(() => {
      this.#next = undefined;
      return this.#walk(ips);
    });
    this.#last = done;
    return { ips, done };
  }

  async #walk(ips: ReadonlySet<Ip>): Promise<boolean> {
    try {
      if (!this.#host.run(() => mayHaveEntriesOf([...ips]))) return true;
      using nl = this.#host.run<Netlink>(() => openNetlink(NETLINK_NETFILTER, this.#host.path));
      await inSlices(deleteFlowsInPieces(nl, ips), () => this.#isOver);
      return true;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      this.#log(`Cannot end the connections of ${[...ips].join(", ")}: ${error.message}`);
      return false;
    }
  }
}
