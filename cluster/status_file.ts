/** What a part of the server says of itself: a file that doctor, show, metrics and the probe of readiness read. @module */
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { findText } from "../ffi/sys/file.ts";

/** How old the time in the file may be of when the API server was heard. */
const INTERVAL_MS = 10_000;

const statusPath = (stateDirectory: string): string => `${stateDirectory}/status.json`;

export class StatusFile {
  readonly #path: string;
  readonly #log: (message: string) => void;
  #written = "";
  #nextWrite = 0;
  #problem: string | undefined;

  constructor(stateDirectory: string, log: (message: string) => void) {
    this.#path = statusPath(stateDirectory);
    this.#log = log;
  }

  /** Whether the time is to be written again. */
  get isDue(): boolean {
    return performance.now() >= this.#nextWrite;
  }

  /** Writes what has changed, and the time now and then. The part goes on where the file cannot be written. */
  write(status: object, heardAtMs: number | undefined): void {
    const text = JSON.stringify(status);
    if (text === this.#written && !this.isDue) return;
    this.#nextWrite = performance.now() + INTERVAL_MS;
    try {
      replaceFile(this.#path, `${JSON.stringify({ ...status, heardAtMs })}\n`);
      this.#written = text;
      this.#problem = undefined;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      if (error.message !== this.#problem) this.#log(`${error.message}; cni doctor and metrics see an older status`);
      this.#problem = error.message;
    }
  }
}

/** Returns `undefined` if no such part has run since the host has started. */
export function findStatusFile<T>(stateDirectory: string): T | undefined {
  const text = findText(statusPath(stateDirectory));
  return text === undefined ? undefined : JSON.parse(text);
}
