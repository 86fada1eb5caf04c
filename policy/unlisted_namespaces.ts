/** How long namespaces have waited for the list of their pods. @module */

export class UnlistedNamespaces {
  readonly #hasListed: (namespaces: ReadonlySet<string>) => boolean;
  readonly #since = new Map<string, number>();

  /** @param hasListed whether the pods of all these are known */
  constructor(hasListed: (namespaces: ReadonlySet<string>) => boolean) {
    this.#hasListed = hasListed;
  }

  /** @param selected those whose pods are wanted now */
  note(selected: ReadonlySet<string>): void {
    for (const namespace of this.#since.keys()) if (!selected.has(namespace)) this.#since.delete(namespace);
    for (const namespace of selected) {
      if (this.#hasListed(new Set([namespace]))) this.#since.delete(namespace);
      else if (!this.#since.has(namespace)) this.#since.set(namespace, performance.now());
    }
  }

  /** Whether each of them is listed, or has waited longer. */
  haveListedOrWaited(namespaces: ReadonlySet<string>, waitMs: number): boolean {
    return this.#hasListed(namespaces) ||
      [...namespaces].every((namespace) => this.#hasListed(new Set([namespace])) || this.#ageMs(namespace) > waitMs);
  }

  #ageMs(namespace: string): number {
    const since = this.#since.get(namespace);
    return since === undefined ? 0 : performance.now() - since;
  }
}
