/** Plugins that wait for what the part does. @module */
import { bootTimeMs } from "../ffi/sys/boot_clock.ts";

/** After a boot, the way to the API server may come later than this part. Then a pod had better wait than start open. */
const FIRST_ANSWER_MS = 30_000;

export interface AwaitedLists {
  areInForce(): boolean;
  /** Why they do not come. */
  problem(): string | undefined;
}

export class WaitingPlugins {
  /** It is a time of `performance.now()`. */
  readonly #patientUntil = performance.now() + FIRST_ANSWER_MS;
  #waiting: (() => void)[] = [];

  /** Ends with the part's next step that changed the kernel. */
  nextStep(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    return promise;
  }

  run(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const run of waiting) run();
  }

  /** @param untilMs since the boot; later, a problem ends it at once @returns the problem */
  async awaitFirstLists(lists: AwaitedLists, untilMs: number): Promise<string | undefined> {
    let isOver = false;
    const timer = setTimeout(() => {
      isOver = true;
      // Later, others wait for the kernel.
      if (!lists.areInForce()) this.run();
    }, Math.max(0, Math.min(untilMs - bootTimeMs(), this.#patientUntil - performance.now())));
    try {
      while (!lists.areInForce()) {
        const problem = lists.problem();
        if (isOver && problem !== undefined) return problem;
        await this.nextStep();
      }
      return undefined;
    } finally {
      clearTimeout(timer);
    }
  }
}
