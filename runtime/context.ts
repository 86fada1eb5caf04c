import type { HostContext } from "../plugins/lib/protocol/context.ts";

export interface RuntimeContext {
  readonly hostContext: HostContext;
  /** Plugins that delegate get it, too. */
  readonly pluginDirectories: readonly string[];
  readonly cacheDirectory: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly findCallerPid?: () => number;
  readonly rollback?: boolean;
  log(message: string): void;
}
