/**
 * What help says of plugins: it is taken from their definitions.
 *
 * @module
 */
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { findPlugin, loadPlugins, pluginNames } from "../plugins/registry.ts";
import { formatRows } from "./help.ts";

/** All plugins, one per line. */
export async function formatPluginList(): Promise<string> {
  await loadPlugins();
  const rows = pluginNames().map((name) => [name, describePlugin(findPlugin(name)!)] as const);
  return `plugins, also run by a link of that name to this program:\n${formatRows(rows)}`;
}

/** One plugin. */
export async function formatPluginHelp(name: string): Promise<string> {
  await loadPlugins([name]);
  return `plugin ${name}:\n  ${describePlugin(findPlugin(name)!)}`;
}

/** What a plugin does for a container, and what it does between calls. */
export function describePlugin({ about, service }: AnyPlugin): string {
  return service ? `${about}; service: ${service.summary}` : about;
}
