import type { HostContext } from "../plugins/lib/protocol/context.ts";

/** The machine, its plugins and the cache. */
export interface RuntimeContext {
  readonly hostContext: HostContext;
  /** Where programs are; plugins that delegate get it. */
  readonly pluginDirectories: readonly string[];
  /** Such as `/var/lib/cni`. */
  readonly cacheDirectory: string;
  /** What programs inherit. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The calling process, if known. */
  readonly findCallerPid?: () => number;
  /** As {@linkcode RuntimeOptions.rollback}. */
  readonly rollback?: boolean;
  /** Told of problems that stop nothing. */
  log(message: string): void;
}
