/**
 * The runtime, the plugins, and the kit to write more of them, as the command line uses them. It needs Bun, Linux and,
 * for all that touches the kernel, root.
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
 * @example Attach a container
 * ```ts
 * import { loadNetwork, Runtime } from "./mod.ts";
 *
 * const runtime = new Runtime({ env: process.env, log: console.error });
 * const result = runtime.add(loadNetwork("web"), { containerId: "c1", ifname: "eth0", netns: "/run/netns/c1" });
 * console.log(result.ips?.map(({ address }) => address)); // [ "10.1.0.2/24" ]
 * runtime.del("web", { containerId: "c1", ifname: "eth0" });
 * ```
 *
 * @module
 */

import { loadPlugins } from "./plugins/registry.ts";

export { type GcOptions, Runtime, type RuntimeOptions, UnknownAttachmentError } from "./runtime/runtime.ts";
export { containerIdOfNetns } from "./runtime/container_id.ts";
export { loadNetwork, type LoadOptions } from "./runtime/load.ts";
export { lintNetworks, type LintNetworksOptions } from "./networks/lint/lint_networks.ts";
export type { LintProblem, LintReport } from "./networks/lint/lint.ts";
export type { Severity } from "./networks/lint/rule.ts";
export type { AddRuntimeConf } from "./runtime/add.ts";
export type { RuntimeConf } from "./runtime/resolve_attachment.ts";
export type { Args, AttachmentKey } from "./runtime/cache.ts";
export type { NetworkAttachment } from "./runtime/attachments.ts";
export type { MissingParts } from "./runtime/missing_parts.ts";
export type { RestoredAttachment, RestoredPlugin, RestoreReport } from "./runtime/restore.ts";
export type { DerivedRequest, DeriveOptions } from "./runtime/derive.ts";
export { type NetworkConfigList, parseNetworkConfigList, type PluginEntry } from "./spec/network_config_list.ts";

export {
  type AddCall,
  type AttachmentCall,
  type BatchIpamDelegate,
  type CheckCall,
  type DelBatch,
  type DelBatchCall,
  type DelCall,
  type DiagnoseCall,
  type GcCall,
  type IpamDelegate,
  type Plugin,
  plugin,
  type PluginCall,
  type PluginService,
  requirePrevResult,
  type RestoreCall,
  runAllSteps,
  type ServiceContext,
} from "./plugins/lib/protocol/plugin.ts";
export * as schema from "./spec/schema.ts";
export type { JsonObject, RouteConfig, Schema } from "./spec/schema.ts";
export type { Attachment, PluginConfig } from "./spec/plugin_config.ts";
export type { Owner } from "./plugins/lib/model/owner.ts";

export { createHostContext, type HostContextOptions } from "./runtime/host_context.ts";
export { findPlugin, pluginNames } from "./plugins/registry.ts";
export { main } from "./runtime/plugin_program.ts";
export { type PluginCallText, serve } from "./plugins/lib/protocol/serve.ts";
export type {
  AnyPlugin,
  BuiltinPlugin,
  HostContext,
  PluginLocation,
  PluginProgram,
} from "./plugins/lib/protocol/context.ts";
export type { RememberedAdd } from "./plugins/lib/protocol/remembered_add.ts";
export type { ProgramCall } from "./plugins/lib/protocol/exec.ts";
export type { ProgramOutput } from "./plugins/lib/protocol/response.ts";
export type { DelBatchRequest, PluginCommand, PluginRequest, PluginResponse } from "./plugins/lib/protocol/request.ts";
export type { Parameters } from "./spec/env.ts";

export {
  convertResult,
  type Dns,
  formatResult,
  type Interface,
  type IpConfig,
  parseResult,
  type Result,
} from "./spec/result.ts";
export { type Cidr, type Ip, type Mac, parseCidr, parseIp, parseMac } from "./ffi/address.ts";
export { type CniCommand, LATEST, type Version, VERSIONS } from "./spec/version.ts";

export { createNetns, currentNetns, type Netns, NetnsError, openNetns, type Sync } from "./ffi/netns/netns.ts";
export type { Netlink } from "./ffi/netlink/socket.ts";

export { CniError, Code, ConfigError, type SourceLocation } from "./spec/error.ts";
export { SystemError } from "./ffi/sys/error.ts";

await loadPlugins();
if (typeof Bun === "undefined") {
  // Under Deno, what reads files and text works. The rest throws an error that says so.
  (await import("./ffi/sys/deno.ts")).useDenoFiles();
  (await import("./spec/jsonc.ts")).setJsoncParser(await import("jsonc-parser"));
}
