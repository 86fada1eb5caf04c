/** The namespaces that have a policy, in a file: plugins go by it while there is no part to ask. @module */
import { OptionalWrite } from "../cluster/optional_write.ts";
import { installBytes } from "../ffi/sys/atomic_install.ts";
import { inDirectory, parentOf } from "../ffi/sys/directory.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { policyNamespacesPath, readPolicyNamespaces } from "../plugins/lib/policy/stored_namespaces.ts";
import { stateText } from "../plugins/lib/protocol/state_file.ts";

export class StoredPolicies {
  readonly #path: string;
  readonly #writing: OptionalWrite;
  #stored: string | undefined;

  /** @param dataDirectory survives a reboot */
  constructor(dataDirectory: string, log: (message: string) => void) {
    this.#path = policyNamespacesPath(dataDirectory);
    this.#writing = new OptionalWrite(log, "without the server, pods go by what was stored before");
    const known = ignoreSystemErrors(() => readPolicyNamespaces(this.#path, log));
    this.#stored = known && textOf([...known]);
  }

  /** Writes the file if they have changed. */
  store(namespaces: readonly string[]): void {
    const text = textOf(namespaces);
    if (text === this.#stored) return;
    const bytes = new TextEncoder().encode(text);
    const write = () => inDirectory(parentOf(this.#path), 0o700, () => installBytes(bytes, this.#path, 0o600));
    if (this.#writing.attempt(write)) this.#stored = text;
  }
}

const textOf = (namespaces: readonly string[]): string => stateText({ namespaces: namespaces.toSorted() });
