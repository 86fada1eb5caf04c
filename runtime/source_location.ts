import { ConfigError } from "../spec/error.ts";
import { locate, parseJson, pathSegments } from "../spec/jsonc.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import type { JsonObject } from "../spec/schema.ts";

/**
 * Makes `web.conflist:4:12, plugins[0].ipam.subnet`.
 *
 * @returns `undefined` for other errors, values of the runtime, and plugins in files of their own
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

/** Leaves out errors of the plugin's clean-up. */
function findConfigError(error: unknown): ConfigError | undefined {
  for (let cause = error; cause instanceof Error;) {
    if (cause instanceof ConfigError) return cause;
    cause = cause instanceof SuppressedError ? cause.suppressed : cause.cause;
  }
  return undefined;
}
