/**
 * Keeps a copy of one resource of the API: a list, and then a watch for what changes.
 *
 * An API server that is away, or talks nonsense, changes nothing of the copy.
 *
 * @module
 */
import { excerpt } from "../../spec/jsonc.ts";
import type { ApiAccess } from "./account.ts";
import { ApiClient } from "./client.ts";
import { Garbage } from "../garbage.ts";
import { splitLines } from "./line_splitter.ts";
import { type ApiObject, isApiObject, isOlderVersion, isVersion, type ListSource, readList } from "./list.ts";
import { PATIENCE, type Patience, Pauses } from "./patience.ts";
import { ApiProblem, LostConnection, OldList, Silence } from "./problem.ts";

export type ListVerdict = "taken" | { readonly refused: string };

export type EventType = "ADDED" | "MODIFIED" | "DELETED";

/** @see Kubernetes API meta/v1 WatchEvent */
interface WatchEvent {
  readonly type: EventType | "BOOKMARK" | "ERROR";
  readonly object: unknown;
}

const EVENTS_OF_A_MEGABYTE = 50;
// The status of what is too old to be told.
const GONE = 410;

export interface ReflectorOptions<T> {
  readonly access: ApiAccess;
  /** The list, such as `/api/v1/nodes`. */
  readonly path: string;
  /** What each object of the list is: `Node`. */
  readonly kind: string;
  /** What was known before, from another process. */
  readonly version?: string | undefined;
  /** Only these objects are of interest: `metadata.name=a`. */
  readonly fieldSelector?: string | undefined;
  /** Leaves out of an event's text what `parse` does not read. Where the rest is no JSON, all of it is read. */
  trim?(line: string): string | undefined;
  /** Keeps what matters. An object that it throws an error for is left out, and logged. */
  parse(object: never): T;
  /** All that there is: what is missing was deleted. A refused list is asked for again. */
  onList(items: readonly T[], version: string): ListVerdict;
  onEvent(type: EventType, item: T, version: string): void;
  /** Told of each list, event and bookmark: until then, nothing was missed. */
  onHeard?(): void;
  /** Told each time of what keeps from following, also where a list between was heard. Only the first time is logged. */
  onProblem?(problem: string): void;
  log(message: string): void;
  readonly signal: AbortSignal;
  readonly patience?: Patience;
  /** How many ask the same server for the same; one unless told. */
  clients?(): number;
}

/** Ends with the signal. @throws what `onList` and `onEvent` throw */
export async function reflect<T>(options: ReflectorOptions<T>): Promise<void> {
  await new Reflector(options).run();
}

class Reflector<T> {
  readonly #options: ReflectorOptions<T>;
  readonly #patience: Patience;
  readonly #client: ApiClient;
  readonly #pauses: Pauses;
  readonly #problems = new Set<string>();
  /** Why an object is left out, by its UID. */
  readonly #unusable = new Map<string, string>();
  /** The newest one that was heard of. */
  #version: string | undefined;
  /** Which list to ask for before the next watch. */
  #nextList: ListSource | undefined = "cached";

  constructor(options: ReflectorOptions<T>) {
    this.#options = options;
    this.#patience = options.patience ?? PATIENCE;
    this.#client = new ApiClient(options.access);
    this.#pauses = new Pauses(this.#patience, () => options.clients?.() ?? 1);
    this.#version = options.version;
  }

  async run(): Promise<void> {
    const { signal } = this.#options;
    while (!signal.aborted) {
      try {
        if (this.#nextList) await this.#list(this.#nextList);
        await this.#watch();
      } catch (error) {
        if (signal.aborted) return;
        if (!(error instanceof ApiProblem)) throw error;
        await this.#recover(error);
      }
    }
  }

  async #list(source: ListSource): Promise<void> {
    const { path, kind, onList, onHeard, signal } = this.#options;
    const items: T[] = [];
    const { answerMs, wholeMs } = this.#patience;
    const open = (page: string) =>
      this.#client.open(this.#selected(page), signal, { answerMs, silenceMs: answerMs, wholeMs });
    const unusable = new Set<string>();
    const version = await readList(open, path, kind, source, (object) => {
      const parsed = this.#parse(object);
      if (parsed.length === 0) unusable.add(object.metadata.uid);
      items.push(...parsed);
    });
    this.#requireNotOlder(version, source);
    if (signal.aborted) return;
    const verdict = onList(items, version);
    if (verdict !== "taken") {
      this.#nextList = "latest";
      throw new ApiProblem(`The list of ${this.#server} is not believed`, { details: verdict.refused });
    }
    for (const uid of this.#unusable.keys()) if (!unusable.has(uid)) this.#unusable.delete(uid);
    this.#version = version;
    this.#nextList = undefined;
    onHeard?.();
  }

  /** A server may lag behind the others. What was stored last is older after a backup was restored. */
  #requireNotOlder(version: string, source: ListSource): void {
    const known = this.#version;
    if (known === undefined || !isOlderVersion(version, known)) return;
    const details = `it is of version ${version}, and ${known} is known`;
    if (source === "latest") {
      return void this.#log(`The API of ${this.#server} went back in time, which is believed`, details);
    }
    this.#nextList = "latest";
    throw new OldList(`The list of ${this.#server} is old, and asked for again`, { details });
  }

  #selected(path: string): string {
    const { fieldSelector } = this.#options;
    if (fieldSelector === undefined) return path;
    return `${path}${path.includes("?") ? "&" : "?"}fieldSelector=${encodeURIComponent(fieldSelector)}`;
  }

  async #watch(): Promise<void> {
    const timeoutS = 300 + Math.floor(Math.random() * 300);
    const query = `watch=1&allowWatchBookmarks=true&resourceVersion=${this.#version}&timeoutSeconds=${timeoutS}`;
    const { path, signal } = this.#options;
    const { answerMs, silenceMs } = this.#patience;
    const opening = this.#client.open(this.#selected(`${path}?${query}`), signal, { answerMs, silenceMs });
    const pieces = await opening.catch((error: unknown) => {
      // A server that comes back may have the version of another past, and would tell only what comes after it.
      if (error instanceof LostConnection) this.#nextList = "cached";
      throw error;
    });
    let hasLasted = false;
    const timer = setTimeout(() => {
      hasLasted = true;
      this.#succeed();
    }, this.#patience.lastingMs);
    try {
      const garbage = new Garbage(EVENTS_OF_A_MEGABYTE);
      for await (const line of this.#lines(pieces)) {
        // What has come already may be more than one.
        if (signal.aborted) return;
        this.#read(line);
        garbage.step();
      }
    } catch (error) {
      if (error instanceof Silence) this.#nextList = "cached";
      // Servers, and what is between, end connections from time to time.
      if (!(error instanceof LostConnection && hasLasted)) throw error;
    } finally {
      clearTimeout(timer);
    }
    if (!hasLasted) await this.#pauses.next(signal);
  }

  /** @throws {ApiProblem} */
  #read(line: string): void {
    const { type, object } = this.#parseEvent(line);
    if (type === "ERROR") {
      this.#nextList = "cached";
      const { code, message } = (object ?? {}) as { readonly code?: number; readonly message?: string };
      throw new ApiProblem(`${this.#server} ends the watch with ${code}`, { status: code, details: message });
    }
    const version = (object as ApiObject).metadata.resourceVersion;
    if (isOlderVersion(version, this.#version!)) {
      this.#nextList = "latest";
      const details = `it is of version ${version}, and ${this.#version} is known`;
      throw new ApiProblem(`An event of ${this.#server} is old`, { details });
    }
    if (type !== "BOOKMARK") this.#tellEvent(type, object as ApiObject, version);
    this.#version = version;
    this.#options.onHeard?.();
  }

  /** @throws {ApiProblem} for a line that no event has */
  async *#lines(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
    try {
      yield* splitLines(pieces);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw this.#nonsense(error.message);
    }
  }

  /** @throws {ApiProblem} */
  #parseEvent(line: string): WatchEvent {
    try {
      const event = this.#parseTrimmed(line) ?? JSON.parse(line) as WatchEvent;
      if (event.type === "ERROR") return event;
      const { kind, metadata } = event.object as ApiObject & { readonly kind: string };
      const isUsable = event.type === "BOOKMARK" || isEventType(event.type) && isApiObject(event.object);
      if (isUsable && kind === this.#options.kind && isVersion(metadata.resourceVersion)) return event;
    } catch {
      // The page of a proxy, or half a line.
    }
    throw this.#nonsense(excerpt(line));
  }

  #parseTrimmed(line: string): WatchEvent | undefined {
    const trimmed = this.#options.trim?.(line);
    try {
      return trimmed === undefined ? undefined : JSON.parse(trimmed);
    } catch {
      return undefined;
    }
  }

  #nonsense(details: string): ApiProblem {
    this.#nextList = "cached";
    return new ApiProblem(`${this.#server} tells of no ${this.#options.kind}`, { details });
  }

  #tellEvent(type: EventType, object: ApiObject, version: string): void {
    const [item] = this.#parse(object);
    if (item !== undefined) return this.#options.onEvent(type, item, version);
    if (type !== "DELETED") return;
    // Which one is gone, only a list tells.
    this.#nextList = "latest";
    throw new ApiProblem(`A ${this.#options.kind} was deleted that cannot be used`);
  }

  /** @returns nothing for an object that cannot be used */
  #parse(object: ApiObject): T[] {
    const { name, uid } = object.metadata;
    try {
      const item = this.#options.parse(object as never);
      this.#unusable.delete(uid);
      return [item];
    } catch (error) {
      const { message } = error as Error;
      if (this.#unusable.get(uid) !== message) {
        this.#options.log(`Cannot use ${this.#options.kind} "${name}": ${message}`);
      }
      this.#unusable.set(uid, message);
      return [];
    }
  }

  async #recover(problem: ApiProblem): Promise<void> {
    // What is missing since then is in no watch any more: that is usual.
    if (problem.status === GONE) this.#nextList = "latest";
    else {
      const text = this.#log(problem.message, problem.details);
      if (!(problem instanceof OldList)) this.#options.onProblem?.(text);
    }
    await this.#pauses.next(this.#options.signal, problem.retryAfterMs);
  }

  /** @returns the whole text */
  #log(problem: string, details: string | undefined): string {
    const text = details === undefined ? problem : `${problem}: ${details}`;
    if (!this.#problems.has(problem)) this.#options.log(`Cannot follow ${this.#options.path}: ${text}`);
    this.#problems.add(problem);
    return text;
  }

  #succeed(): void {
    this.#pauses.reset();
    if (this.#problems.size === 0) return;
    this.#problems.clear();
    this.#options.log(`Following ${this.#options.path} of ${this.#server} again`);
  }

  get #server(): string {
    return this.#options.access.server;
  }
}

function isEventType(type: string): type is EventType {
  return type === "ADDED" || type === "MODIFIED" || type === "DELETED";
}
