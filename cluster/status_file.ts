/** What a part of the server says of itself: a file that doctor, show, metrics and the probe of readiness read. @module */
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { ensureDirectory } from "../ffi/sys/directory.ts";
import { findText } from "../ffi/sys/file.ts";
import { isAlive, ownIdentity, type ProcessIdentity } from "../ffi/sys/process_identity.ts";
import { OptionalWrite } from "./optional_write.ts";

/** How old the times in the file may be. */
const INTERVAL_MS = 10_000;

/** Which process says it, and when. Older servers tell neither. */
export interface StatusOrigin {
  readonly process?: ProcessIdentity;
  /** In milliseconds since 1970. While the process runs, it is renewed every ten seconds. */
  readonly writtenAtMs?: number;
}

/** Whether the part that said it still runs. What is left of an earlier one says nothing of the next. */
export const isCurrent = ({ process }: StatusOrigin): boolean => process !== undefined && isAlive(process);

const statusPath = (stateDirectory: string): string => `${stateDirectory}/status.json`;

export class StatusFile {
  readonly #directory: string;
  readonly #process = ownIdentity();
  readonly #writing: OptionalWrite;
  #written = "";
  #nextWrite = 0;

  constructor(stateDirectory: string, log: (message: string) => void) {
    this.#directory = stateDirectory;
    this.#writing = new OptionalWrite(log, "cni doctor, metrics and /readyz do not know what this part does");
    // By the directory, plugins see whether the part has started since the boot.
    this.#writing.attempt(() => this.#ensureDirectory());
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
    const origin: StatusOrigin = { process: this.#process, writtenAtMs: Date.now() };
    const line = `${JSON.stringify({ ...status, heardAtMs, ...origin })}\n`;
    const isWritten = this.#writing.attempt(() => {
      if (this.#written === "") this.#ensureDirectory();
      replaceFile(statusPath(this.#directory), line);
    });
    if (isWritten) this.#written = text;
  }

  #ensureDirectory(): void {
    ensureDirectory(this.#directory, 0o700);
  }
}

/** Returns `undefined` if no such part has run since the host has started. */
export function findStatusFile<T extends StatusOrigin>(stateDirectory: string): T | undefined {
  const text = findText(statusPath(stateDirectory));
  return text === undefined ? undefined : JSON.parse(text);
}
