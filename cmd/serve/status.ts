import { programVersion } from "../version.ts";
import { privateBytes } from "./memory.ts";
import type { WorkerRecord } from "./worker_table.ts";

/** What `cni serve --status --json` prints. */
export interface ServerStatus {
  readonly version: string;
  /** Of the supervisor. */
  readonly pid: number;
  /** Calls since the server started. */
  readonly served: number;
  /** Calls that ran without the server, by reason. Calls that did not reach it are not counted. */
  readonly fellBack: {
    /** The caller is not root in the namespaces of the server. */
    readonly notAllowed: number;
    /** The shim speaks another version. */
    readonly otherVersion: number;
    /** The server has no such plugin. */
    readonly notServed: number;
    /** The shim waited for a second, or ended. */
    readonly gone: number;
  };
  readonly workers: readonly {
    readonly pid: number;
    readonly state: (typeof STATES)[number];
    readonly served: number;
    readonly privateBytes: number;
  }[];
  /** Of the supervisor and its workers. */
  readonly privateBytes: number;
}

/** By number, see {@linkcode WorkerRecord}. */
const STATES = ["starting", "idle", "busy", "ending"] as const;

export function formatStatus(records: readonly WorkerRecord[], endedWorkers: WorkerRecord): string {
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
    served: sum("served"),
    fellBack: {
      notAllowed: sum("notAllowed"),
      otherVersion: sum("otherVersion"),
      notServed: sum("notServed"),
      gone: sum("gone"),
    },
    workers,
    privateBytes: workers.reduce((total, worker) => total + worker.privateBytes, privateBytes(process.pid)),
  };
  return JSON.stringify(status);
}
