/** Pods of this node as their ADDs left them. @module */
import { findCacheEntries, listCacheEntries } from "../runtime/cache.ts";
import { parseCachedResult } from "../runtime/cached_result.ts";
import type { Result } from "../spec/result.ts";

export interface NodePod {
  readonly containerId: string;
  /** `undefined` if it cannot be read. */
  readonly result: Result | undefined;
}

export const listPods = (cacheDirectories: readonly string[], network: string): readonly NodePod[] =>
  cacheDirectories.flatMap((directory) => listCacheEntries(directory, network)).map((entry) => ({
    containerId: entry.containerId,
    result: parseCachedResult(entry),
  }));

/** Reads no more than one file that is a pod's. */
export const hasPods = (cacheDirectories: readonly string[], network: string): boolean =>
  cacheDirectories.some((directory) => !findCacheEntries(directory, network).next().done);
