import type { HostContext } from "../plugins/lib/protocol/context.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import type { PluginConfig } from "../spec/plugin_config.ts";

export interface RuntimeContext {
  readonly hostContext: HostContext;
  /** Plugins that delegate get it, too. */
  readonly pluginDirectories: readonly string[];
  readonly cacheDirectory: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly findCallerPid?: () => number;
  readonly rollback?: boolean;
  /** Cached configurations by their text, which most attachments of a network have in common. */
  readonly cachedLists: Map<string, NetworkConfigList>;
  /** What RESTORE gives to plugins without capability arguments. */
  readonly restoreConfigs: Map<PluginEntry, PluginConfig>;
  log(message: string): void;
}
