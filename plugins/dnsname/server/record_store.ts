/** The records that are served: those of the state files. */
import type { Netns } from "../../../ffi/netns/netns.ts";
import { findEntryNames } from "../../../ffi/sys/directory.ts";
import { SystemError } from "../../../ffi/sys/error.ts";
import { findState } from "../../lib/protocol/state_file.ts";
import type { ServerReply, ServerRequest } from "../protocol.ts";
import { isOnHost, isRecordFileName, type NameRecord, parseRecord } from "../record.ts";
import type { NameDirectory } from "./directory.ts";
import type { Listeners } from "./listeners.ts";

export interface RecordStoreOptions {
  readonly directory: string;
  readonly host: Netns;
  readonly names: NameDirectory;
  readonly listeners: Listeners;
  log(message: string): void;
}

export const OTHER_NAMESPACE = "the server runs in another network namespace";

export class RecordStore {
  readonly #options: RecordStoreOptions;
  readonly #records = new Map<string, NameRecord>();

  constructor(options: RecordStoreOptions) {
    this.#options = options;
  }

  get hasRecords(): boolean {
    return this.#records.size > 0;
  }

  loadAll(): void {
    const { directory, listeners, log } = this.#options;
    for (const file of (findEntryNames(directory) ?? []).filter(isRecordFileName)) this.#load(file);
    const problems = [...this.#records.values()].flatMap((record) => listeners.problemsOf(record));
    for (const message of new Set(problems.map((problem) => problem.message))) log(message);
  }

  answer({ command, file }: ServerRequest): Omit<ServerReply, "version"> {
    const { listeners } = this.#options;
    if (file === undefined) return { problems: [] };
    if (!isRecordFileName(file)) return { problems: [], refused: `"${file}" names no record` };
    const refused = command === "changed" ? this.#load(file) : undefined;
    const record = this.#records.get(file);
    if (!record) return { problems: [], refused: refused ?? "the server does not know the container" };
    listeners.refresh(record);
    return { problems: listeners.problemsOf(record) };
  }

  /** @returns why its record is not served */
  #load(file: string): string | undefined {
    const { directory, host } = this.#options;
    const found = this.#read(file);
    const record = found && isOnHost(found, host) ? found : undefined;
    this.#replace(file, record);
    if (record) return undefined;
    return found ? OTHER_NAMESPACE : `there is no usable file "${directory}/${file}"`;
  }

  #replace(file: string, record: NameRecord | undefined): void {
    const { names, listeners } = this.#options;
    const previous = this.#records.get(file);
    if (record) {
      this.#records.set(file, record);
      names.add(record);
      listeners.acquire(record);
    } else this.#records.delete(file);
    // Afterwards, so that no socket is closed and opened again.
    if (previous) {
      names.remove(previous);
      listeners.release(previous);
    }
  }

  #read(file: string): NameRecord | undefined {
    const { directory, log } = this.#options;
    try {
      return findState(`${directory}/${file}`, parseRecord, log);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      log(error.message);
      return undefined;
    }
  }
}
