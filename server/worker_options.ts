import type { ServerLimits } from "./limits.ts";
import type { WarmUpKind } from "./warm_up.ts";

export interface WorkerOptions {
  readonly serverPid: number;
  /** The place in the table of workers. */
  readonly slot: number;
  readonly slots: number;
  /** Locks of this file tell which ADDs run, in this server and in the one that takes its place. */
  readonly lockPath: string;
  readonly logFormat: "text" | "json";
  /** A worker that is needed at once has no warm-up. */
  readonly warmUp?: WarmUpKind;
  readonly hasMetrics: boolean;
  readonly limits: ServerLimits;
}
