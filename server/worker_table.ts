import { type Descriptor, pread, pwrite } from "../ffi/sys/file.ts";
import { openSharedFile } from "./shared_file.ts";

/** Counters of calls have these names. The shim executes the full binary instead. */
export const REFUSALS = ["notAllowed", "otherVersion", "notServed", "tooLong", "withdrawn"] as const;
export type Refusal = (typeof REFUSALS)[number];

// Doubles, in this order.
const FIELDS = ["pid", "state", "since", "served", ...REFUSALS] as const;
const RECORD_BYTES = FIELDS.length * 8;

export const openWorkerTable = (path: string, slots: number): Descriptor => openSharedFile(path, slots * RECORD_BYTES);

export const STARTING = 0, IDLE = 1, BUSY = 2, ENDING = 3;

/** What a worker says of itself. `since`: when the state began, in milliseconds since 1970. The others count calls. */
export type WorkerRecord = Record<(typeof FIELDS)[number], number>;

export function newWorkerRecord(pid: number): WorkerRecord {
  const counters = { served: 0, notAllowed: 0, otherVersion: 0, notServed: 0, tooLong: 0, withdrawn: 0 };
  return { pid, state: STARTING, since: 0, ...counters };
}

export function writeWorkerRecord(table: number, slot: number, record: WorkerRecord): void {
  const values = Float64Array.from(FIELDS, (field) => record[field]);
  pwrite(table, slot * RECORD_BYTES, new Uint8Array(values.buffer));
}

/** An empty slot has the process number 0. */
export function readWorkerRecords(table: number, count: number): WorkerRecord[] {
  const values = new Float64Array(count * FIELDS.length);
  pread(table, 0, new Uint8Array(values.buffer));
  return Array.from(
    { length: count },
    (_, slot) =>
      Object.fromEntries(FIELDS.map((field, i) => [field, values[slot * FIELDS.length + i]!])) as WorkerRecord,
  );
}
