import type { PluginConfig } from "../../../spec/plugin_config.ts";
import type { Owner } from "../model/owner.ts";

/** How an attachment of the cache called a plugin. */
export interface RememberedAdd {
  /** The attachment that the ADD made. */
  readonly owner: Owner;
  /** As the plugin got it, with the result of the whole ADD as `prevResult`. */
  readonly pluginConfig: PluginConfig;
  /** Whether its container still is there, and on this host. */
  lives(): boolean;
}
