import type { HostContext } from "../plugins/lib/protocol/context.ts";
import type { RememberedAdd } from "../plugins/lib/protocol/remembered_add.ts";
import { CniError, ConfigError } from "../spec/error.ts";
import { derivePluginConfig, type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { elsewhereTest } from "./attached_elsewhere.ts";
import { DEFAULT_CACHE_DIRECTORY, listCacheEntries } from "./cache.ts";
import { parseCachedResult } from "./cached_result.ts";
import { netnsGoneReason } from "./netns_gone.ts";

/** Engines and this program may have different caches: both count. */
export function listRememberedAdds(
  context: HostContext,
  type: string,
  cacheDirectory = DEFAULT_CACHE_DIRECTORY,
): RememberedAdd[] {
  const isElsewhere = elsewhereTest(context.host);
  const lists = new Map<string, NetworkConfigList | undefined>();
  const entries = [...new Set([cacheDirectory, DEFAULT_CACHE_DIRECTORY])].flatMap((directory) =>
    listCacheEntries(directory)
  );
  return entries.flatMap((entry) => {
    const prevResult = parseCachedResult(entry);
    if (!prevResult || !entry.netns) return [];
    const { network, containerId, ifname, capabilityArgs, config } = entry;
    const list = lists.has(config) ? lists.get(config) : unlessInvalid(() => parseNetworkConfigList(config));
    lists.set(config, list);
    const plugins = list?.plugins.filter((plugin) => plugin.type === type) ?? [];
    const lives = () => netnsGoneReason(entry, context) === undefined && !isElsewhere(prevResult);
    return plugins.flatMap((plugin) => {
      const options = { command: "ADD", prevResult, capabilityArgs } as const;
      const pluginConfig = unlessInvalid(() => derivePluginConfig(list!, plugin, options));
      return pluginConfig ? { owner: { network, containerId, ifname }, pluginConfig, lives } : [];
    });
  });
}

/** What cannot be read is restored by nobody. */
function unlessInvalid<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (error instanceof ConfigError || error instanceof CniError) return undefined;
    throw error;
  }
}
