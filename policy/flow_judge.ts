/** When tracked flows are judged: soon after a change that may forbid one, and not all the time. @module */
import type { Netns } from "../ffi/netns/netns.ts";
import { type Netlink, NETLINK_NETFILTER, openNetlink } from "../ffi/netlink/socket.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { judgeFlows } from "./flows.ts";
import type { PolicyCompiler } from "./compiler.ts";
import { inSlices } from "./slices.ts";

export interface FlowJudgeOptions {
  readonly host: Netns;
  readonly compiler: PolicyCompiler;
  /** Whether pods of these namespaces may be missing. */
  mayLack(namespaces: ReadonlySet<string>): boolean;
  onFailure(error: SystemError): void;
}

/** Judging takes at most a quarter of the time, and a twentieth where it is short: an empty table takes 10 ms. */
const PAUSE_FACTOR = 3;
const SHORT_PAUSE_FACTOR = 19;
const SHORT_PAUSE_MS = 500;

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

  /** Call it after each change of the kernel. @param mayForbid whether something that was allowed may be forbidden now */
  judgeSoon(mayForbid: boolean): void {
    const isBusy = this.#isJudging || this.#timer !== undefined;
    // Nothing is cut that may go on.
    if (!mayForbid && !isBusy && this.#cutFlows === 0) return;
    this.#isAsked = true;
    if (isBusy) return;
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
    const took = end - start;
    this.#next = end + Math.max(took * PAUSE_FACTOR, Math.min(took * SHORT_PAUSE_FACTOR, SHORT_PAUSE_MS));
    if (this.#isAsked && !this.#isOver) this.judgeSoon(true);
  }

  async #judgeAll(): Promise<void> {
    const dump = this.#dump ??= this.#openDump();
    this.#cutFlows = await inSlices(judgeFlows({ ...this.#options, dump }), () => this.#isOver) ?? this.#cutFlows;
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
