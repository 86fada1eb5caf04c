import type { Netns } from "../../ffi/netns/netns.ts";

/**
 * Opens namespaces of containers, one at a time.
 *
 * A host may have more containers than a process may have open files.
 */
export class ContainerNetnsOpener implements Disposable {
  readonly #openNetns: (path: string) => Netns;
  #current: { readonly path: string; readonly netns: Netns } | undefined;

  constructor(openNetns: (path: string) => Netns) {
    this.#openNetns = openNetns;
  }

  /** Usable until the next call for another path. @throws {NetnsError} */
  open(path: string): Netns {
    if (this.#current?.path !== path) {
      this[Symbol.dispose]();
      this.#current = { path, netns: this.#openNetns(path) };
    }
    return this.#current!.netns;
  }

  [Symbol.dispose](): void {
    this.#current?.netns[Symbol.dispose]();
    this.#current = undefined;
  }
}
