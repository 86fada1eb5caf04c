/** Plugins are loaded on demand: loading all would double a call's start-up time. */
import type { PluginModel } from "./lib/model/plugin_model.ts";
import type { AnyPlugin } from "./lib/protocol/context.ts";

const PLUGIN_MODULES: Readonly<Record<string, () => Promise<{ readonly default: AnyPlugin }>>> = {
  bandwidth: () => import("./bandwidth/plugin.ts"),
  bridge: () => import("./bridge/plugin.ts"),
  dhcp: () => import("./dhcp/plugin.ts"),
  dnsname: () => import("./dnsname/plugin.ts"),
  dummy: () => import("./dummy/plugin.ts"),
  firewall: () => import("./firewall/plugin.ts"),
  "host-device": () => import("./host_device/plugin.ts"),
  "host-local": () => import("./host_local/plugin.ts"),
  ipvlan: () => import("./ipvlan/plugin.ts"),
  loopback: () => import("./loopback/plugin.ts"),
  macvlan: () => import("./macvlan/plugin.ts"),
  "network-policy": () => import("./network_policy/plugin.ts"),
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

export function hasPlugin(name: string): boolean {
  return Object.hasOwn(PLUGIN_MODULES, name);
}

/** Whether plugins can delegate to this one (SPEC §4 Plugin Delegation). */
export function isIpamPlugin(name: string): boolean {
  return name === "host-local" || name === "static" || name === "dhcp";
}

/** Text with escapes may name any plugin. */
export function pluginsMentionedIn(text: string): string[] {
  return pluginNames().filter((name) => text.includes(`"${name}"`) || text.includes("\\"));
}

export async function loadPlugins(names: readonly string[] = pluginNames()): Promise<void> {
  for (const name of names) loadedPlugins[name] ??= (await PLUGIN_MODULES[name]!()).default;
}

/**
 * The plugin of this name, if it is loaded.
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

export function findModel(name: string): PluginModel | undefined {
  return loadedPlugins[name]?.model?.();
}
