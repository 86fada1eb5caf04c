/** Reads a list of the API, page by page. @module */
import { excerpt } from "../../spec/jsonc.ts";
import { Garbage } from "../garbage.ts";
import { ListSplitter } from "./list_splitter.ts";
import { ApiProblem } from "./problem.ts";

/** Which version of a list is wanted: that of the server's cache, or the last one that was stored. */
export type ListSource = "cached" | "latest";

/** What of an object is read before it is known to be one. */
export interface ApiObject {
  readonly metadata: { readonly name: string; readonly uid: string; readonly resourceVersion: string };
}

interface ListEnvelope {
  readonly kind: string;
  readonly metadata: { readonly resourceVersion: string; readonly continue?: string };
}

const ITEMS_OF_A_MEGABYTE = 50;

type Open = (path: string) => Promise<AsyncIterable<Uint8Array>>;

/**
 * Reads all pages.
 *
 * @param take gets each object, which is forgotten then
 * @returns the version
 * @throws {ApiProblem}
 */
export async function readList(
  open: Open,
  path: string,
  kind: string,
  source: ListSource,
  take: (object: ApiObject) => void,
): Promise<string> {
  // Without a limit, a cache answers in one page.
  let query = source === "cached" ? "?resourceVersion=0" : "";
  for (;;) {
    const { metadata } = await readPage(await open(`${path}${query}`), kind, take);
    if (!metadata.continue) return metadata.resourceVersion;
    query = `?continue=${encodeURIComponent(metadata.continue)}`;
  }
}

async function readPage(
  pieces: AsyncIterable<Uint8Array>,
  kind: string,
  take: (object: ApiObject) => void,
): Promise<ListEnvelope> {
  const garbage = new Garbage(ITEMS_OF_A_MEGABYTE);
  const splitter = new ListSplitter((item) => {
    garbage.step();
    if (isApiObject(item)) take(item);
    else throw new SyntaxError(`an item has no metadata: ${excerpt(item)}`);
  });
  const envelope = await asProblem(`The answer is no ${kind}List`, async () => {
    for await (const piece of pieces) splitter.push(piece);
    return splitter.end() as Partial<ListEnvelope> | null;
  });
  if (envelope?.kind === `${kind}List` && isVersion(envelope.metadata?.resourceVersion)) {
    return envelope as ListEnvelope;
  }
  throw new ApiProblem(`The answer is no ${kind}List`, { details: excerpt(envelope) });
}

/** What cannot be parsed is the server's problem. */
export async function asProblem<T>(message: string, read: () => Promise<T> | T): Promise<T> {
  try {
    return await read();
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new ApiProblem(message, { details: error.message });
  }
}

export function isApiObject(object: unknown): object is ApiObject {
  const { metadata } = (object ?? {}) as Partial<ApiObject>;
  return typeof metadata?.name === "string" && typeof metadata.uid === "string";
}

/** They are numbers: @see Kubernetes API concepts, "Resource versions". */
export function isVersion(version: unknown): version is string {
  return typeof version === "string" && /^[0-9]+$/.test(version);
}

/** They may be too large for a number. */
export function isOlderVersion(a: string, b: string): boolean {
  return BigInt(a) < BigInt(b);
}
