/**
 * The list of plugins, and nothing else.
 *
 * Imported as they are: with bytecode, modules that only define cost next to nothing to load, and everything after this line can be
 * synchronous.
 *
 * @module
 */
import bandwidth from "./bandwidth.ts";
import bridge from "./bridge.ts";
import firewall from "./firewall.ts";
import hostLocal from "./host_local.ts";
import type { AnyPlugin } from "./kit/serve.ts";
import loopback from "./loopback.ts";
import portmap from "./portmap.ts";
import sbr from "./sbr.ts";
import staticIpam from "./static.ts";
import tuning from "./tuning.ts";

const PLUGINS: readonly AnyPlugin[] = [
  bandwidth,
  bridge,
  firewall,
  hostLocal,
  loopback,
  portmap,
  sbr,
  staticIpam,
  tuning,
];

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
  return PLUGINS.map(({ name }) => name).sort();
}

/**
 * The plugin of this name, if there is one.
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
  return PLUGINS.find((each) => each.name === name);
}
