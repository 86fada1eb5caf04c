import type { Netns } from "../../../ffi/netns/netns.ts";
import type { Owner } from "../model/owner.ts";
import type { Plugin } from "./plugin.ts";
import type { RememberedAdd } from "./remembered_add.ts";
import type { DelBatchRequest, PluginRequest, PluginResponse } from "./request.ts";

/** A plugin of any configuration. */
// deno-lint-ignore no-explicit-any -- a registry holds plugins of every configuration
export type AnyPlugin = Plugin<any>;

/** A plugin of this process. */
export interface BuiltinPlugin {
  /** What the plugin's own module exports. */
  readonly plugin: AnyPlugin;
}

/** A plugin that is a separate program. */
export interface PluginProgram {
  /** The absolute path of the program. */
  readonly program: string;
  /** Whether it replaces a built-in plugin. */
  readonly shadowsBuiltin: boolean;
}

/** Where a call of a plugin goes. */
export type PluginLocation = BuiltinPlugin | PluginProgram;

/** The machine, and how plugins find and call each other. */
export interface HostContext {
  /** The namespace in which plugins run: the host's. */
  readonly host: Netns;
  /** Opens a namespace. @param path CNI_NETNS @throws {NetnsError} */
  openNetns(path: string): Netns;
  /** Finds a plugin. @param directories CNI_PATH @throws {NotRunError} if there is no such plugin */
  locate(type: string, directories: readonly string[]): PluginLocation;
  /** Whether plugins can delegate to it (SPEC §4 Plugin Delegation); true for an unknown plugin. */
  isIpam(type: string, directories: readonly string[]): boolean;
  /** Calls a plugin. @throws {Error} the plugin's own @throws {NotRunError} if it could not be run */
  invoke(location: PluginLocation, request: PluginRequest | DelBatchRequest): PluginResponse;
  /** Why an attachment must be dead, if this program remembers a reason. */
  goneReason?(owner: Owner): string | undefined;
  /** Lists the ADDs of a plugin in the caches of engines and of this program. It reads each file: rarely needed. */
  rememberedAdds?(type: string): readonly RememberedAdd[];
  /** Takes messages of plugins: `bridge: …`. */
  log(message: string): void;
}
