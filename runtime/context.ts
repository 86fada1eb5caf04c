/** What the runtime works with. */
import type { HostContext } from "../plugins/lib/protocol/context.ts";

/** The machine with its plugins and the cache. */
export interface RuntimeContext {
  readonly hostContext: HostContext;
  /** Where programs are; plugins that delegate get it. */
  readonly pluginDirectories: readonly string[];
  /** Such as `/var/lib/cni`. */
  readonly cacheDirectory: string;
  /** What programs inherit. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The process that asked, where that is known. */
  readonly findCallerPid?: () => number;
  /** Whether a failed ADD is undone at once; else the caller owes a DEL. Default: true. */
  readonly rollback?: boolean;
  /** Told of what was gone on in spite of. */
  log(message: string): void;
}
