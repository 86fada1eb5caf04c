/** The surroundings of a call: the machine, and the other plugins. @module */
import type { Netns } from "../../../ffi/netns.ts";
import type { Owner } from "./owner.ts";
import type { Plugin } from "./plugin.ts";
import type { DelBatchRequest, PluginRequest, PluginResponse } from "./request.ts";

/** A plugin of any configuration. */
// deno-lint-ignore no-explicit-any -- a registry holds plugins of every configuration
export type AnyPlugin = Plugin<any>;

/** A plugin of this process. */
export interface BuiltinPlugin {
  /** Its definition. */
  readonly plugin: AnyPlugin;
}

/** A plugin that is a program of its own. */
export interface PluginProgram {
  /** Its path. */
  readonly program: string;
  /** Whether it replaces a plugin of this process. */
  readonly shadowsBuiltin: boolean;
}

/** Where a plugin is. */
export type PluginLocation = BuiltinPlugin | PluginProgram;

/** The machine that plugins work on, and how they find and call each other. */
export interface HostContext {
  /** The namespace of the plugins themselves. */
  readonly host: Netns;
  /** Opens a container's namespace. @param path CNI_NETNS @throws {NetnsError} */
  openNetns(path: string): Netns;
  /** Finds a plugin. @param directories CNI_PATH @throws {NotRunError} if there is none */
  locate(type: string, directories: readonly string[]): PluginLocation;
  /** Whether plugins can delegate to that plugin (SPEC §4 Plugin Delegation); true if there is no such plugin. */
  isIpam(type: string, directories: readonly string[]): boolean;
  /** Calls a plugin. @throws {CniError} and any other error of the plugin @throws {NotRunError} if it could not be run */
  invoke(location: PluginLocation, request: PluginRequest | DelBatchRequest): PluginResponse;
  /** Why an attachment must be dead, as far as this program remembers it; else `undefined`. */
  goneReason?(owner: Owner): string | undefined;
  /** Takes messages of plugins: `bridge: …`. */
  log(message: string): void;
}
