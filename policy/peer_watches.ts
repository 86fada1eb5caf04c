/** Which pods of other nodes are watched: those of namespaces that rules select. @module */

/** Above it, one watch of all pods replaces one for each namespace. */
const MANY = 20;
/** Few again, so that it does not change all the time. */
const FEW = 10;

export interface PeerWatchesOptions {
  /** Follows the pods of a namespace, or of all, until the signal. @param onListed call it when they are known */
  follow(namespace: string | undefined, onListed: () => void, signal: AbortSignal): void;
  /** Pods of others are not followed any more. */
  forgetOthers(namespaces: ReadonlySet<string>): void;
}

interface Watch {
  readonly ending: AbortController;
  hasListed: boolean;
}

export class PeerWatches implements Disposable {
  readonly #options: PeerWatchesOptions;
  /** By namespace; `undefined` is that of all. */
  readonly #watches = new Map<string | undefined, Watch>();

  constructor(options: PeerWatchesOptions) {
    this.#options = options;
  }

  [Symbol.dispose](): void {
    for (const { ending } of this.#watches.values()) ending.abort();
  }

  select(namespaces: ReadonlySet<string>): void {
    const isOfAll = namespaces.size > (this.#watches.has(undefined) ? FEW : MANY);
    const wanted = isOfAll ? [undefined] : [...namespaces];
    for (const each of wanted) if (!this.#watches.has(each)) this.#start(each);
    // Until these have listed, the other ones tell.
    if (!wanted.every((each) => this.#watches.get(each)!.hasListed)) return;
    const surplus = [...this.#watches.keys()].filter((each) =>
      isOfAll ? each !== undefined : each === undefined || !namespaces.has(each)
    );
    for (const each of surplus) this.#end(each);
    if (!isOfAll && surplus.length > 0) this.#options.forgetOthers(namespaces);
  }

  hasListed(namespaces: ReadonlySet<string>): boolean {
    const isListed = (namespace: string | undefined) => this.#watches.get(namespace)?.hasListed === true;
    return isListed(undefined) || [...namespaces].every(isListed);
  }

  #start(namespace: string | undefined): void {
    const watch: Watch = { ending: new AbortController(), hasListed: false };
    this.#watches.set(namespace, watch);
    this.#options.follow(namespace, () => watch.hasListed = true, watch.ending.signal);
  }

  #end(namespace: string | undefined): void {
    this.#watches.get(namespace)!.ending.abort();
    this.#watches.delete(namespace);
  }
}
