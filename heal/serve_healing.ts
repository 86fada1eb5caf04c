import { SystemError } from "../ffi/sys/error.ts";
import { pollAny } from "../ffi/sys/poll.ts";
import { openSignals } from "../ffi/sys/signal_descriptor.ts";
import { SIGINT, SIGTERM } from "../ffi/sys/uapi.ts";
import { GrowingPause } from "./growing_pause.ts";
import { Healer, type HealerOptions } from "./healer.ts";
import { HEALING_LIMITS } from "./limits.ts";

export interface HealingOptions extends HealerOptions {
  /** Ends the process when it can be read: a pipe whose other end the server has. */
  readonly lifetime: number;
  /** Told in each round whether an attachment has rules, or may have some. */
  tellWork(hasRules: boolean): void;
}

const ROUNDS_PER_COLLECTION = 200;
/** Others may change the ruleset a thousand times a second. To wake up for each change takes more than to read it. */
const REST_MS = 20;

/** Call it with all plugins loaded. */
export function serveHealing({ lifetime, tellWork, ...options }: HealingOptions): void {
  using signals = openSignals([SIGINT, SIGTERM]);
  const stops = [lifetime, signals.fd];
  // Nobody knows until it can watch.
  tellWork(true);
  using healer = openHealer(options, stops);
  if (!healer) return;
  for (let round = 1;; round++) {
    healer.round();
    tellWork(healer.hasWork());
    // Else the heap grows for long.
    if (round % ROUNDS_PER_COLLECTION === 0) Bun.gc(true);
    if (pollAny(stops, Math.min(REST_MS, healer.timeoutMs())).length > 0) return;
    const timeoutMs = healer.timeoutMs();
    const ready = pollAny([...stops, ...healer.fds], timeoutMs === Infinity ? -1 : timeoutMs);
    if (stops.some((fd) => ready.includes(fd))) return;
  }
}

/** Tries until the kernel tells of changes: descriptors may lack for a time. `undefined` if it is to end. */
function openHealer(options: HealerOptions, stops: readonly number[]): Healer | undefined {
  const { firstRetryMs, longestRetryMs } = options.limits ?? HEALING_LIMITS;
  const pause = new GrowingPause(firstRetryMs, longestRetryMs);
  for (;;) {
    try {
      const healer = new Healer(options);
      if (pause.isRunning) options.log("Watching the rules of attachments again");
      return healer;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      if (!pause.isRunning) options.log(`Cannot watch the rules of attachments: ${error.message}`);
    }
    if (pollAny(stops, pause.next()).length > 0) return undefined;
  }
}
