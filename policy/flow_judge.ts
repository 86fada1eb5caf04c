/** When tracked flows are judged: soon after each change, and not all the time. @module */
import type { Netns } from "../ffi/netns/netns.ts";
import { type Netlink, NETLINK_NETFILTER, openNetlink } from "../ffi/netlink/socket.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { judgeFlows } from "./flows.ts";
import type { PolicyCompiler } from "./compiler.ts";

export interface FlowJudgeOptions {
  readonly host: Netns;
  readonly compiler: PolicyCompiler;
  /** Whether pods of these namespaces may be missing. */
  mayLack(namespaces: ReadonlySet<string>): boolean;
  onFailure(error: SystemError): void;
}

/** Others of this process wait at most so long for it. */
const SLICE_MS = 5;
/** Judging takes at most a quarter of the time. */
const PAUSE_FACTOR = 3;

export class FlowJudge implements Disposable {
  readonly #options: FlowJudgeOptions;
  #dump: Netlink | undefined;
  #timer: Timer | undefined;
  #isJudging = false;
  #isAsked = false;
  #isOver = false;
  /** Judging begins at this time of `performance.now()`, or later. */
  #next = 0;
  #cutFlows = 0;

  constructor(options: FlowJudgeOptions) {
    this.#options = options;
    this.#dump = this.#openDump();
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#closeDump();
  }

  /** How many flows were cut when it judged last. */
  get cutFlows(): number {
    return this.#cutFlows;
  }

  /** Call it after each change of the kernel. */
  judgeSoon(): void {
    this.#isAsked = true;
    if (this.#isJudging || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      void this.#judge();
    }, Math.max(0, this.#next - performance.now()));
  }

  async #judge(): Promise<void> {
    const start = performance.now();
    this.#isAsked = false;
    this.#isJudging = true;
    try {
      await this.#judgeAll();
    } catch (error) {
      // The kernel goes on with what was being listed, and refuses to list anything else there.
      this.#closeDump();
      if (!(error instanceof SystemError)) throw error;
      this.#options.onFailure(error);
    }
    this.#isJudging = false;
    const end = performance.now();
    this.#next = end + (end - start) * PAUSE_FACTOR;
    if (this.#isAsked && !this.#isOver) this.judgeSoon();
  }

  async #judgeAll(): Promise<void> {
    const dump = this.#dump ??= this.#openDump();
    const pieces = judgeFlows({ ...this.#options, dump });
    let since = performance.now();
    while (!this.#isOver) {
      const { done, value } = pieces.next();
      if (done) {
        this.#cutFlows = value;
        return;
      }
      if (performance.now() - since < SLICE_MS) continue;
      await Bun.sleep(0);
      since = performance.now();
    }
  }

  #openDump(): Netlink {
    const { host } = this.#options;
    return host.run<Netlink>(() => openNetlink(NETLINK_NETFILTER, host.path));
  }

  #closeDump(): void {
    this.#dump?.[Symbol.dispose]();
    this.#dump = undefined;
  }
}
