/**
 * Which versions of the API's lists are in force, in a file. A part that starts again believes no older ones: one of
 * several API servers may lag behind.
 *
 * @module
 */
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { ignoreSystemErrors, SystemError } from "../ffi/sys/error.ts";
import { findText } from "../ffi/sys/file.ts";
import { isVersion } from "../cluster/api/list.ts";

export class HeardVersions {
  readonly #path: string;
  readonly #log: (message: string) => void;
  readonly #versions: Map<string, string>;
  #isStored = true;
  #problem: string | undefined;

  /** @param stateDirectory empty after a boot, as the kernel is */
  constructor(stateDirectory: string, log: (message: string) => void) {
    this.#path = `${stateDirectory}/versions.json`;
    this.#log = log;
    this.#versions = new Map(Object.entries(readVersions(this.#path)));
  }

  /** @param asked what the API was asked for */
  of(asked: string): string | undefined {
    return this.#versions.get(asked);
  }

  note(asked: string, version: string): void {
    this.#isStored &&= this.#versions.get(asked) === version;
    this.#versions.set(asked, version);
  }

  forget(asked: string): void {
    this.#versions.delete(asked);
  }

  /** Call it when what was noted is in force. */
  store(): void {
    if (this.#isStored) return;
    this.#isStored = true;
    try {
      replaceFile(this.#path, JSON.stringify(Object.fromEntries(this.#versions)));
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      if (error.message !== this.#problem) {
        this.#log(`${error.message}; a part that starts again may believe an API server that lags behind`);
      }
      this.#problem = error.message;
    }
  }
}

/** Without the file, all lists are believed, as after a boot. */
function readVersions(path: string): Record<string, string> {
  const text = ignoreSystemErrors(() => findText(path));
  try {
    const found = JSON.parse(text ?? "{}") as Record<string, unknown>;
    return Object.fromEntries(Object.entries(found).filter((entry): entry is [string, string] => isVersion(entry[1])));
  } catch {
    return {};
  }
}
