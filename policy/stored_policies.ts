/** The namespaces that have a policy, in a file: plugins go by it while there is no part to ask. @module */
import { installBytes } from "../ffi/sys/atomic_install.ts";
import { inDirectory, parentOf } from "../ffi/sys/directory.ts";
import { ignoreSystemErrors, SystemError } from "../ffi/sys/error.ts";
import { policyNamespacesPath, readPolicyNamespaces } from "../plugins/lib/policy/stored_namespaces.ts";
import { stateText } from "../plugins/lib/protocol/state_file.ts";

export class StoredPolicies {
  readonly #path: string;
  readonly #log: (message: string) => void;
  #stored: string | undefined;
  #problem: string | undefined;

  /** @param dataDirectory survives a reboot */
  constructor(dataDirectory: string, log: (message: string) => void) {
    this.#path = policyNamespacesPath(dataDirectory);
    this.#log = log;
    const known = ignoreSystemErrors(() => readPolicyNamespaces(this.#path, log));
    this.#stored = known && textOf([...known]);
  }

  /** Writes the file if they have changed. */
  store(namespaces: readonly string[]): void {
    const text = textOf(namespaces);
    if (text === this.#stored) return;
    try {
      const bytes = new TextEncoder().encode(text);
      inDirectory(parentOf(this.#path), 0o700, () => installBytes(bytes, this.#path, 0o600));
      this.#stored = text;
      this.#problem = undefined;
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      if (error.message !== this.#problem) {
        this.#log(`${error.message}; without the server, pods go by what was stored before`);
      }
      this.#problem = error.message;
    }
  }
}

const textOf = (namespaces: readonly string[]): string => stateText({ namespaces: namespaces.toSorted() });
