import { parseResult, type Result } from "../spec/result.ts";
import { LATEST } from "../spec/version.ts";
import type { CacheEntry } from "./cache.ts";

export function parseCachedResult({ result }: CacheEntry): Result | undefined {
  try {
    return result === undefined ? undefined : parseResult(result, LATEST);
  } catch {
    return undefined;
  }
}
