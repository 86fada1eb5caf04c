import type { RuntimeContext } from "../runtime/context.ts";

export interface CacheResults<T> {
  readonly results: readonly T[];
  readonly hasFailed: boolean;
}

/** Calls for each cache that is looked after. Failures are logged. */
export type WithEachCache = <T>(call: (runtime: RuntimeContext) => T) => CacheResults<T>;
