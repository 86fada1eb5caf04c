/**
 * What the runtime works with.
 *
 * @module
 */
import type { HostContext } from "../plugins/lib/protocol/context.ts";

/** The machine with its plugins, and what the runtime remembers of it. */
export interface RuntimeContext {
  /** Where and how plugins are called. */
  readonly hostContext: HostContext;
  /** Where plugins of others are; passed to plugins that delegate. */
  readonly pluginDirectories: readonly string[];
  /** Where attachments are remembered: `/var/lib/cni`. */
  readonly cacheDirectory: string;
  /** The caller's environment, which programs that are started inherit. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The process that asked, where that is known. */
  readonly findCallerPid?: () => number;
  /** Whether a failed ADD is undone at once; without it the caller owes a DEL. On unless told. */
  readonly rollback?: boolean;
  /** Told of what was gone on in spite of. */
  log(message: string): void;
}
