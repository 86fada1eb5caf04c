/**
 * One call of one plugin of a network: what it is asked, what it answers, and whose failure it was.
 *
 * @module
 */
import { parsePluginResult } from "../plugins/lib/protocol/response.ts";
import {
  invokeOrThrow,
  type Invoker,
  type PluginRequest,
  type PluginResponse,
} from "../plugins/lib/protocol/delegate.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { CniError, Code } from "../spec/error.ts";
import { deriveRequest, type NetworkConfigList, type PluginEntry } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import type { JsonObject } from "../spec/schema.ts";
import { atLeast, type CniCommand } from "../spec/version.ts";
import type { Args } from "./cache.ts";
import { DEFAULT_NETWORK } from "./default_network.ts";
import { findSourceLocation } from "./source_location.ts";

/** What calls are made with. */
export interface PluginCallContext {
  readonly invoker: Invoker;
  /** Calls the plugins of this program alone, where it is not to be another that answers: in the network that is built in. */
  readonly builtInPlugins?: Invoker;
  readonly pluginDirectories: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  log(message: string): void;
}

/** The attachment a call is about. */
export interface ResolvedRuntimeConf extends Attachment {
  readonly netns?: string;
  readonly args: Args;
  readonly capabilityArgs: JsonObject;
}

/** What a call asks for, beyond the configuration. */
export interface PluginCallOptions {
  readonly verb: CniCommand;
  /** Absent for GC and STATUS. */
  readonly parameters?: ResolvedRuntimeConf;
  readonly prevResult?: Result | undefined;
  readonly validAttachments?: readonly Attachment[];
  /** When that list was made, in nanoseconds since 1970. */
  readonly snapshotTime?: bigint;
}

/** There is no such plugin, so nothing was done. */
export class MissingPluginError extends CniError {}

/** Calls a plugin. @throws {CniError} with the plugin's code, naming plugin and command */
export function callPlugin(
  context: PluginCallContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: PluginCallOptions,
): void {
  withPluginName(list, plugin, options.verb, () => void sendRequest(context, list, plugin, options));
}

/**
 * Has a plugin of this process carry out many DELs of one network together.
 *
 * @returns those that are still to be called for, each by itself
 */
export function callDelMany<O extends PluginCallOptions>(
  context: PluginCallContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  calls: readonly O[],
): ReadonlySet<O> {
  const requests = new Map(calls.map((options) => [buildRequest(context, list, plugin, options), options]));
  const { delBatch } = invokerFor(context, list);
  if (!delBatch) return new Set(calls);
  try {
    const notDone = withPluginName(list, plugin, "DEL", () => delBatch(plugin.type, [...requests.keys()]));
    return new Set(notDone.map((request) => requests.get(request)!));
  } catch (error) {
    const { message, details } = CniError.from(error);
    const reason = details ? `${message}; ${details}` : message;
    context.log(`Cannot detach ${calls.length} containers from network "${list.name}" together: ${reason}`);
    return new Set(calls);
  }
}

/** Calls a plugin that answers with a result. @throws {CniError} with the plugin's code, naming plugin and command */
export function callPluginForResult(
  context: PluginCallContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: PluginCallOptions,
): Result {
  return withPluginName(list, plugin, options.verb, () => {
    const { result: typedResult, stdout } = sendRequest(context, list, plugin, options);
    // A plugin of this process answers in the version it was asked in.
    if (typedResult) return typedResult;
    const result = parsePluginResult(stdout, plugin.type, list.cniVersion);
    const version = JSON.parse(stdout)?.cniVersion || list.cniVersion;
    if (version !== list.cniVersion) {
      const expected = `network "${list.name}" has ${list.cniVersion}`;
      context.log(`Plugin "${plugin.type}" answered in version ${version}, but ${expected}: its result was converted`);
    }
    return result;
  });
}

/**
 * Has a plugin put back what is missing of an attachment's rules, in this process.
 *
 * @returns what that was, in words; `undefined` if the plugin is not in this process
 * @throws {CniError} naming plugin and command
 */
export function callRestore(
  context: PluginCallContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  parameters: ResolvedRuntimeConf,
  prevResult: Result,
): readonly string[] | undefined {
  const options: PluginCallOptions = { verb: "ADD", parameters, prevResult };
  return withPluginName(
    list,
    plugin,
    "restore",
    () => invokerFor(context, list).restoreRules?.(plugin.type, buildRequest(context, list, plugin, options)),
  );
}

function sendRequest(
  context: PluginCallContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: PluginCallOptions,
): PluginResponse {
  const call = buildRequest(context, list, plugin, options);
  const invoker = invokerFor(context, list);
  return invokeOrThrow({ invoke: (type, request) => invokeOrMissingPlugin(invoker, type, request) }, plugin.type, call);
}

/** Nobody wrote the built-in network with the plugins of others in mind, and older ones do not even speak its version. */
function invokerFor({ invoker, builtInPlugins }: PluginCallContext, list: NetworkConfigList): Invoker {
  return builtInPlugins && isDefaultNetwork(list) ? builtInPlugins : invoker;
}

function isDefaultNetwork({ text }: NetworkConfigList): boolean {
  return text === DEFAULT_NETWORK;
}

function buildRequest(
  context: PluginCallContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: PluginCallOptions,
): PluginRequest {
  const { verb, parameters, prevResult, validAttachments, snapshotTime } = options;
  const stdin = deriveRequest(list, plugin, {
    command: verb,
    ...(prevResult && { prevResult }),
    ...(parameters && { capabilityArgs: parameters.capabilityArgs }),
    ...(validAttachments && { validAttachments }),
  });
  // The first versions cannot say all of a result, and who asks in them is to see no more than that.
  const hasFullResult = prevResult && atLeast(list.cniVersion, "0.3.0");
  const env = pluginEnvironment(context, list, options);
  return {
    command: verb,
    env,
    stdin,
    ...hasFullResult && { prevResult },
    ...snapshotTime !== undefined && { snapshotTime },
  };
}

/** What a plugin fails with it answers; what is thrown here with this code comes from looking for it. */
function invokeOrMissingPlugin(invoker: Invoker, type: string, request: PluginRequest): PluginResponse {
  try {
    return invoker.invoke(type, request);
  } catch (error) {
    const { code, message, details } = CniError.from(error);
    if (code !== Code.InvalidConfig && code !== Code.InvalidEnvironment) throw error;
    throw new MissingPluginError(code, message, { ...(details && { details }), cause: error });
  }
}

/**
 * All six, empty where they do not apply. Other CNI_* variables were meant for us or for whoever called us, but for one that only
 * plugins read: whoever sets it has asked for what they otherwise refuse.
 */
function pluginEnvironment(
  { env, pluginDirectories, builtInPlugins }: PluginCallContext,
  list: NetworkConfigList,
  { verb, parameters }: PluginCallOptions,
): Record<string, string | undefined> {
  return {
    ...inheritedEnvironment(env),
    CNI_COMMAND: verb,
    CNI_CONTAINERID: parameters?.containerId ?? "",
    CNI_NETNS: parameters?.netns ?? "",
    CNI_IFNAME: parameters?.ifname ?? "",
    CNI_ARGS: (parameters?.args ?? []).map((pair) => pair.join("=")).join(";"),
    CNI_PATH: builtInPlugins && isDefaultNetwork(list) ? "" : pluginDirectories.join(":"),
    // Only this version has it, and plugins of its time may ask.
    ...(list.cniVersion === "0.1.0" && { CNI_VERSION: list.cniVersion }),
  };
}

function withPluginName<T>(
  list: NetworkConfigList,
  plugin: PluginEntry,
  verb: CniCommand | "restore",
  call: () => T,
): T {
  try {
    return call();
  } catch (error) {
    const { code, message, details } = CniError.from(error);
    const ErrorClass = error instanceof MissingPluginError ? MissingPluginError : CniError;
    throw new ErrorClass(code, `plugin "${plugin.type}" (${verb}): ${message}`, {
      details: [findSourceLocation(list, plugin, error), details].filter((part) => part).join("; "),
      cause: error,
    });
  }
}

/** What a plugin gets of our own environment. */
function inheritedEnvironment(env: PluginCallContext["env"]): Record<string, string | undefined> {
  const variables: Record<string, string | undefined> = {};
  for (const name in env) {
    if (!name.startsWith("CNI_") || name === "CNI_NETNS_OVERRIDE") variables[name] = env[name];
  }
  return variables;
}
