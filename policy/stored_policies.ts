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
  #stored: ReadonlySet<string> | undefined;

  /** @param dataDirectory survives a reboot */
  constructor(dataDirectory: string, log: (message: string) => void) {
    this.#path = policyNamespacesPath(dataDirectory);
    this.#writing = new OptionalWrite(log, "without the server, pods go by what was stored before");
    this.#stored = ignoreSystemErrors(() => readPolicyNamespaces(this.#path, log));
  }

  /** Adds them to those that are stored. Who ends before the kernel has their policies leaves new pods closed. */
  add(namespaces: readonly string[]): void {
    this.#write(new Set([...this.#stored ?? [], ...namespaces]));
  }

  /** Call it when the kernel has their policies, and no others. */
  replace(namespaces: readonly string[]): void {
    this.#write(new Set(namespaces));
  }

  /** Writes the file if they have changed. */
  #write(namespaces: ReadonlySet<string>): void {
    if (this.#stored?.symmetricDifference(namespaces).size === 0) return;
    const bytes = new TextEncoder().encode(stateText({ namespaces: [...namespaces].sort() }));
    const write = () => inDirectory(parentOf(this.#path), 0o700, () => installBytes(bytes, this.#path, 0o600));
    if (this.#writing.attempt(write)) this.#stored = namespaces;
  }
}
