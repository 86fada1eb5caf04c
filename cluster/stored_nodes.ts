/** The known nodes in a file, so that their routes are back after a reboot although the API is away. @module */
import { installBytes } from "../ffi/sys/atomic_install.ts";
import { inDirectory, parentOf } from "../ffi/sys/directory.ts";
import { findState, stateText } from "../plugins/lib/protocol/state_file.ts";
import { array, cidr, type Infer, int, ipAddress, knownKeys, lazy, nonEmptyString } from "../spec/schema.ts";
import type { ClusterNode } from "./node.ts";
import { OptionalWrite } from "./optional_write.ts";

const clusterNode = knownKeys({
  uid: nonEmptyString,
  name: nonEmptyString,
  createdAtMs: int(),
  addresses: array(ipAddress),
  podCidrs: array(cidr),
});
const nodesFile = lazy(() => knownKeys({ resourceVersion: nonEmptyString, nodes: array(clusterNode) }));

/** `resourceVersion` is that of the API when it had these nodes. */
export type NodesFile = Infer<typeof nodesFile>;

// Many nodes that come at once are one change.
const DELAY_MS = 3000;

/** @param directory of the cache, which survives a reboot */
export const nodesFilePath = (directory: string): string => `${directory}/cluster/nodes.json`;

/** A damaged file, or that of a newer program, is logged and counts as none. */
export const readNodesFile = (path: string, log: (message: string) => void): NodesFile | undefined =>
  findState(path, (node) => nodesFile.parse(node), log);

export interface StoredNodesOptions {
  /** Of the file, which must survive a reboot. */
  readonly path: string;
  /** Tells what to store, when it is stored. */
  content(): { readonly resourceVersion: string; readonly nodes: Iterable<ClusterNode> };
  log(message: string): void;
  readonly delayMs?: number;
}

export class StoredNodes implements Disposable {
  readonly #options: StoredNodesOptions;
  readonly #writing: OptionalWrite;
  #timer: Timer | undefined;
  /** Tells the nodes that the file has from others: their text is long. */
  #stored = hashOf(undefined);

  constructor(options: StoredNodesOptions) {
    this.#options = options;
    this.#writing = new OptionalWrite(options.log, "after a reboot, routes to other nodes wait for the API");
  }

  read(): NodesFile | undefined {
    const { path, log } = this.#options;
    const file = readNodesFile(path, log);
    this.#stored = hashOf(file?.nodes);
    return file;
  }

  /** Stores the nodes in a moment. */
  change(): void {
    this.#timer ??= setTimeout(() => this.#write(), this.#options.delayMs ?? DELAY_MS);
  }

  [Symbol.dispose](): void {
    if (this.#timer !== undefined) this.#write();
  }

  #write(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const { path, content } = this.#options;
    const { resourceVersion, nodes: known } = content();
    const nodes = [...known];
    const stored = hashOf(nodes);
    if (stored === this.#stored) return;
    const bytes = new TextEncoder().encode(stateText({ resourceVersion, nodes }));
    const write = () => inDirectory(parentOf(path), 0o700, () => installBytes(bytes, path, 0o600));
    if (this.#writing.attempt(write)) this.#stored = stored;
  }
}

const hashOf = (nodes: readonly ClusterNode[] | undefined): number | bigint => Bun.hash(JSON.stringify(nodes ?? ""));
