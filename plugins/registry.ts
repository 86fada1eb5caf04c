/**
 * The list of plugins, and nothing else.
 *
 * Each is loaded when it is asked for: a call needs one or two, and those that it does not need would be half of its start.
 *
 * @module
 */
import type { AnyPlugin } from "./lib/protocol/context.ts";

const PLUGIN_MODULES: Readonly<Record<string, () => Promise<{ readonly default: AnyPlugin }>>> = {
  bandwidth: () => import("./bandwidth/plugin.ts"),
  bridge: () => import("./bridge/plugin.ts"),
  dummy: () => import("./dummy/plugin.ts"),
  firewall: () => import("./firewall/plugin.ts"),
  "host-device": () => import("./host_device/plugin.ts"),
  "host-local": () => import("./host_local/plugin.ts"),
  ipvlan: () => import("./ipvlan/plugin.ts"),
  loopback: () => import("./loopback/plugin.ts"),
  macvlan: () => import("./macvlan/plugin.ts"),
  portmap: () => import("./portmap/plugin.ts"),
  ptp: () => import("./ptp/plugin.ts"),
  sbr: () => import("./sbr/plugin.ts"),
  static: () => import("./static/plugin.ts"),
  tap: () => import("./tap/plugin.ts"),
  tuning: () => import("./tuning/plugin.ts"),
  vlan: () => import("./vlan/plugin.ts"),
  vrf: () => import("./vrf/plugin.ts"),
};

const loadedPlugins: Record<string, AnyPlugin> = Object.create(null);

/**
 * The names of all plugins, sorted.
 *
 * @example
 * ```ts
 * import { pluginNames } from "./mod.ts";
 *
 * console.log(pluginNames().includes("bridge")); // true
 * ```
 */
export function pluginNames(): string[] {
  return Object.keys(PLUGIN_MODULES).sort();
}

/** Whether there is a plugin of this name. */
export function hasPlugin(name: string): boolean {
  return Object.hasOwn(PLUGIN_MODULES, name);
}

/** Whether others can leave addresses to the plugin of this name (SPEC §4 Plugin Delegation). */
export function isIpamPlugin(name: string): boolean {
  return name === "host-local" || name === "static";
}

/** The plugins that a configuration may call: those that its text names. One that has escapes may name any. */
export function pluginsMentionedIn(text: string): string[] {
  return pluginNames().filter((name) => text.includes(`"${name}"`) || text.includes("\\"));
}

/** Loads plugins, all of them unless told. */
export async function loadPlugins(names: readonly string[] = pluginNames()): Promise<void> {
  for (const name of names) loadedPlugins[name] ??= (await PLUGIN_MODULES[name]!()).default;
}

/**
 * The plugin of this name, if there is one. A program that is one plugin finds those that it has loaded.
 *
 * @example
 * ```ts
 * import { findPlugin } from "./mod.ts";
 *
 * console.log(findPlugin("bridge")?.about); // Connects the container to a bridge of the host
 * console.log(findPlugin("nosuch")); // undefined
 * ```
 */
export function findPlugin(name: string): AnyPlugin | undefined {
  return loadedPlugins[name];
}
