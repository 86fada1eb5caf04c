/**
 * Where in the configuration of a network it stands what a plugin refuses.
 *
 * @module
 */
import { ConfigError } from "../spec/error.ts";
import { locate, parseJson, pathSegments } from "../spec/jsonc.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import type { JsonObject } from "../spec/schema.ts";

/**
 * The place of a value that a plugin failed for: `web.conflist:4:12, plugins[0].ipam.subnet`.
 *
 * @param error what the plugin's call ended with
 * @returns `undefined` if it failed for another reason, for what a runtime provides, and for plugins that stand in files of their own
 */
export function findSourceLocation(
  { text, source, plugins }: NetworkConfigList,
  plugin: PluginEntry,
  error: unknown,
): string | undefined {
  const path = findConfigError(error)?.path ?? "";
  const [key = ""] = pathSegments(path);
  if (source === undefined || !Object.hasOwn(plugin.raw, key)) return undefined;
  const isSinglePlugin = !Object.hasOwn(parseJson(text) as JsonObject, "plugins");
  const fullPath = isSinglePlugin ? path : `plugins[${plugins.indexOf(plugin)}].${path}`;
  const { line, column } = locate(text, fullPath) ?? {};
  return `${[source, line, column].filter((part) => part !== undefined).join(":")}, ${fullPath}`;
}

/** The plugin's complaint about its configuration, if that is why it failed; errors of cleaning up after it do not count. */
function findConfigError(error: unknown): ConfigError | undefined {
  for (let cause = error; cause instanceof Error;) {
    if (cause instanceof ConfigError) return cause;
    cause = cause instanceof SuppressedError ? cause.suppressed : cause.cause;
  }
  return undefined;
}
