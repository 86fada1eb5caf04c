import { programVersion } from "../program/version.ts";
import { privateBytes } from "./memory.ts";
import type { PartStatus } from "./parts.ts";
import type { WorkerRecord } from "./worker_table.ts";

export interface ServerStatus {
  readonly version: string;
  readonly pid: number;
  /** Whether a call has started it. */
  readonly isOnDemand: boolean;
  /** Whether its first workers are warm. */
  readonly isReady: boolean;
  /** Counts calls since the server started. */
  readonly served: number;
  /** Counts calls that ran without the server. Calls that did not reach it are not counted. */
  readonly fellBack: {
    /** The caller is not root in the namespaces of the server. */
    readonly notAllowed: number;
    /** The shim speaks another version. */
    readonly otherVersion: number;
    /** The server has no such plugin. */
    readonly notServed: number;
    /** Arguments and environment fit into no message. */
    readonly tooLong: number;
    /** The shim waited for a second, or was killed. */
    readonly withdrawn: number;
  };
  readonly workers: readonly {
    readonly pid: number;
    readonly state: (typeof STATES)[number];
    readonly served: number;
    readonly privateBytes: number;
  }[];
  readonly parts: readonly PartStatus[];
  /** Counts processes since the server started, by kind. */
  readonly starts: Readonly<Record<string, number>>;
  /** The sum for the supervisor, its workers and parts. */
  readonly privateBytes: number;
}

const STATES = ["starting", "idle", "busy", "ending"] as const;

export function formatStatus(
  { records, endedWorkers, workerStarts, parts, isReady, isOnDemand }: {
    readonly records: readonly WorkerRecord[];
    readonly endedWorkers: WorkerRecord;
    readonly workerStarts: number;
    readonly parts: readonly PartStatus[];
    readonly isReady: boolean;
    readonly isOnDemand: boolean;
  },
): string {
  const all = [...records, endedWorkers];
  const sum = (field: keyof WorkerRecord) => all.reduce((total, record) => total + record[field], 0);
  const workers = records.map(({ pid, state, served }) => ({
    pid,
    state: STATES[state]!,
    served,
    privateBytes: privateBytes(pid),
  }));
  const status: ServerStatus = {
    version: programVersion(),
    pid: process.pid,
    isOnDemand,
    isReady,
    served: sum("served"),
    fellBack: {
      notAllowed: sum("notAllowed"),
      otherVersion: sum("otherVersion"),
      notServed: sum("notServed"),
      tooLong: sum("tooLong"),
      withdrawn: sum("withdrawn"),
    },
    workers,
    parts,
    starts: { worker: workerStarts, ...Object.fromEntries(parts.map(({ name, starts }) => [name, starts])) },
    privateBytes: [...workers, ...parts].reduce((total, each) => total + each.privateBytes, privateBytes(process.pid)),
  };
  return JSON.stringify(status);
}
