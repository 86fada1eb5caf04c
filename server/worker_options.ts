import type { ServerLimits } from "./limits.ts";

/** The argument of a worker, as JSON. */
export interface WorkerOptions {
  readonly serverPid: number;
  /** In the table of workers. */
  readonly slot: number;
  readonly slots: number;
  /** A file whose locks tell which ADDs run, in this server and in the one that takes its place. */
  readonly lockPath: string;
  readonly logFormat: "text" | "json";
  /** False for a worker that is needed at once. */
  readonly warmUp: boolean;
  /** Whether somebody reads what workers report. */
  readonly hasMetrics: boolean;
  readonly limits: ServerLimits;
}
