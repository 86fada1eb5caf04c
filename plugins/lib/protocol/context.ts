/**
 * What calls of plugins are made in: the machine, and the plugins that there are.
 *
 * @module
 */
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
  /** Whether it is called instead of a plugin of this process. */
  readonly shadowsBuiltin: boolean;
}

/** Where a plugin is. */
export type PluginLocation = BuiltinPlugin | PluginProgram;

/** The machine that plugins work on, and how they find and call each other. */
export interface HostContext {
  /** The namespace that plugins run in. */
  readonly host: Netns;
  /** Opens the namespace of a container, the path being CNI_NETNS. @throws {NetnsError} */
  openNetns(path: string): Netns;
  /** Where the plugin of that name is. @param directories CNI_PATH @throws {NotRunError} if there is none */
  locate(type: string, directories: readonly string[]): PluginLocation;
  /** Whether plugins can leave addresses to the plugin of that name (SPEC §4 Plugin Delegation); true of one that is not there. */
  isIpam(type: string, directories: readonly string[]): boolean;
  /** Calls a plugin. @throws {CniError} and every other error as its cause made it @throws {NotRunError} if it could not be run */
  invoke(location: PluginLocation, request: PluginRequest | DelBatchRequest): PluginResponse;
  /** Why an attachment cannot live any more, as far as this program remembers it; `undefined` if it may. */
  goneReason?(owner: Owner): string | undefined;
  /** Takes what plugins say, each behind its name: `bridge: …`. The command line writes it to stderr. */
  log(message: string): void;
}
