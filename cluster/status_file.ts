/** What a part of the server says of itself: a file that doctor, show, metrics and the probe of readiness read. @module */
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { findText } from "../ffi/sys/file.ts";
import { OptionalWrite } from "./optional_write.ts";

/** How old the time in the file may be of when the API server was heard. */
const INTERVAL_MS = 10_000;

const statusPath = (stateDirectory: string): string => `${stateDirectory}/status.json`;

export class StatusFile {
  readonly #path: string;
  readonly #writing: OptionalWrite;
  #written = "";
  #nextWrite = 0;

  constructor(stateDirectory: string, log: (message: string) => void) {
    this.#path = statusPath(stateDirectory);
    this.#writing = new OptionalWrite(log, "cni doctor and metrics see an older status");
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
    const line = `${JSON.stringify({ ...status, heardAtMs })}\n`;
    if (this.#writing.attempt(() => replaceFile(this.#path, line))) this.#written = text;
  }
}

/** Returns `undefined` if no such part has run since the host has started. */
export function findStatusFile<T>(stateDirectory: string): T | undefined {
  const text = findText(statusPath(stateDirectory));
  return text === undefined ? undefined : JSON.parse(text);
}
