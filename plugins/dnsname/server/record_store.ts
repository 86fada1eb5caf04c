/** The records that are served: those of the state files. */
import type { Netns } from "../../../ffi/netns.ts";
import { findEntryNames } from "../../../ffi/sys/directory.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { findState } from "../../lib/protocol/state_file.ts";
import type { ServerReply, ServerRequest } from "../protocol.ts";
import { isOnHost, isRecordFileName, type NameRecord, parseRecord } from "../record.ts";
import type { NameDirectory } from "./directory.ts";
import type { Listeners } from "./listeners.ts";

export interface RecordStore {
  loadAll(): void;
  hasRecords(): boolean;
  answer(request: ServerRequest): Omit<ServerReply, "version">;
}

export interface RecordStoreOptions {
  readonly directory: string;
  readonly host: Netns;
  readonly names: NameDirectory;
  readonly listeners: Listeners;
  log(message: string): void;
}

export const OTHER_NAMESPACE = "the server runs in another network namespace";

export function newRecordStore({ directory, host, names, listeners, log }: RecordStoreOptions): RecordStore {
  const records = new Map<string, NameRecord>();

  /** @returns why its record is not served */
  const load = (file: string): string | undefined => {
    const found = readRecord(file);
    const previous = records.get(file);
    const record = found && isOnHost(found, host) ? found : undefined;
    if (record) {
      records.set(file, record);
      names.add(record);
      listeners.acquire(record);
    } else records.delete(file);
    // Afterwards, so that no socket is closed and opened again.
    if (previous) {
      names.remove(previous);
      listeners.release(previous);
    }
    return record ? undefined : found ? OTHER_NAMESPACE : `there is no usable file "${directory}/${file}"`;
  };
  const readRecord = (file: string): NameRecord | undefined => {
    try {
      return findState(`${directory}/${file}`, parseRecord, log);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      log(error.message);
      return undefined;
    }
  };

  return {
    loadAll() {
      for (const file of (findEntryNames(directory) ?? []).filter(isRecordFileName)) load(file);
      const problems = [...records.values()].flatMap((record) => listeners.problemsOf(record));
      for (const message of new Set(problems.map((problem) => problem.message))) log(message);
    },
    hasRecords: () => records.size > 0,
    answer({ command, file }) {
      if (file === undefined) return { problems: [] };
      if (!isRecordFileName(file)) return { problems: [], refused: `"${file}" names no record` };
      const refused = command === "changed" ? load(file) : undefined;
      const record = records.get(file);
      if (!record) return { problems: [], refused: refused ?? "the server does not know the container" };
      listeners.refresh(record);
      return { problems: listeners.problemsOf(record) };
    },
  };
}
