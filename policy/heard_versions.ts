/**
 * Which versions of the API's lists are in force, in a file. A part that starts again believes no older ones: one of
 * several API servers may lag behind.
 *
 * @module
 */
import { replaceFile } from "../ffi/sys/atomic_file.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { findText } from "../ffi/sys/file.ts";
import { OptionalWrite } from "../cluster/optional_write.ts";
import { isOlderVersion, isVersion } from "../cluster/api/list.ts";

export class HeardVersions {
  readonly #path: string;
  readonly #writing: OptionalWrite;
  readonly #versions: Map<string, string>;
  #isStored = true;

  /** @param stateDirectory empty after a boot, as the kernel is */
  constructor(stateDirectory: string, log: (message: string) => void) {
    this.#path = `${stateDirectory}/versions.json`;
    this.#writing = new OptionalWrite(log, "a part that starts again may believe an API server that lags behind");
    this.#versions = new Map(Object.entries(readVersions(this.#path)));
  }

  /**
   * The list of all namespaces takes the place of those of each, and they take its place.
   *
   * @param asked what the API is asked for
   * @returns the newest version that was heard of it, or of a part of it
   */
  of(asked: string): string | undefined {
    const all = ofAllNamespaces(asked);
    return this.#versions.entries()
      .filter(([each]) => each === asked || each === all || ofAllNamespaces(each) === asked)
      .map(([, version]) => version)
      .reduce<string | undefined>((a, b) => (a === undefined || isOlderVersion(a, b) ? b : a), undefined);
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
    this.#writing.attempt(() => replaceFile(this.#path, JSON.stringify(Object.fromEntries(this.#versions))));
  }
}

const ofAllNamespaces = (asked: string): string => asked.replace(/\/namespaces\/[^/]+\//, "/");

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
