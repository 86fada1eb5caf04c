/**
 * Container networks for programs: the runtime, the plugins, and the kit to write more of them.
 *
 * What is exported here is what the command line is made of. It needs Bun, Linux and, for all that touches the kernel, root.
 *
 * @example Write a plugin
 * ```ts
 * import { plugin, schema } from "./mod.ts";
 *
 * export default plugin({
 *   name: "greet",
 *   about: "Says hello and changes nothing",
 *   config: schema.object({ greeting: schema.withDefault(schema.string, "hello") }),
 *   add: ({ config, log, prevResult }) => {
 *     log(config.greeting);
 *     return prevResult ?? {};
 *   },
 *   del: () => {},
 *   check: () => {},
 * });
 * ```
 *
 * @example Attach a container with the plugins in a directory
 * ```ts
 * import { executables, loadNetwork, runtime } from "./mod.ts";
 *
 * const pluginDirectories = ["/opt/cni/bin"];
 * const log = console.error;
 * const network = loadNetwork("web", { directory: "/etc/cni/net.d", readInput: () => "", log });
 * const result = runtime.add(
 *   {
 *     invoker: executables(pluginDirectories),
 *     pluginDirectories,
 *     cacheDirectory: "/var/lib/cni",
 *     env: process.env,
 *     log,
 *   },
 *   network,
 *   { containerId: "c1", ifname: "eth0", netns: "/run/netns/c1" },
 * );
 * console.log(result.ips);
 * ```
 *
 * @module
 */

// Run networks.
export { loadNetwork, type LoadOptions } from "./cmd/runtime/load.ts";
export * as runtime from "./cmd/runtime/runtime.ts";
export type { RecallParameters } from "./cmd/runtime/recall.ts";
export type { Args } from "./cmd/runtime/cache.ts";
export { type NetworkList, parseNetworkList, type PluginEntry } from "./plugins/spec/network.ts";

// Write plugins.
export {
  type AddCall,
  type AttachmentCall,
  type Call,
  type CheckCall,
  cleanUp,
  type DelCall,
  type GcCall,
  type Plugin,
  plugin,
  requirePrevResult,
} from "./plugins/kit/plugin.ts";
export * as schema from "./plugins/spec/schema.ts";
export type { JsonObject, Route, Schema } from "./plugins/spec/schema.ts";
export type { Attachment, PluginConfig } from "./plugins/spec/config.ts";
export type { Owner } from "./plugins/kit/owner.ts";

// Call plugins, in this process and as programs.
export { type AnyPlugin, embedded, serve, type Surroundings } from "./plugins/kit/serve.ts";
export type { Delegate, Invoker, Request, Response } from "./plugins/kit/delegate.ts";
export { type ExecutableOptions, type Executables, executables } from "./plugins/kit/executable.ts";

// Results and their parts.
export {
  type Dns,
  formatResult,
  type Interface,
  type IpConfig,
  parseResult,
  type Result,
} from "./plugins/spec/result.ts";
export { type Cidr, type Ip, type Mac, parseCidr, parseIp, parseMac } from "./ffi/address.ts";
export { LATEST, type Verb, type Version, VERSIONS } from "./plugins/spec/version.ts";

// Namespaces.
export { createNetns, currentNetns, type Netns, NetnsError, openNetns, type Sync } from "./ffi/netns.ts";
export type { Netlink, Transport } from "./ffi/netlink/socket.ts";

// Errors.
export { CniError, Code, ConfigError, type Where } from "./plugins/spec/error.ts";
export { SystemError } from "./ffi/sys/error.ts";
