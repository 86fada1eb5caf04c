/**
 * One call of one plugin of a network: what it is asked, what it answers, and whose failure it was.
 *
 * @module
 */
import { parseAnswer } from "../plugins/lib/protocol/response.ts";
import { invokeChecked, type Invoker, type Request, type Response } from "../plugins/lib/protocol/delegate.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { CniError, Code } from "../spec/error.ts";
import { deriveRequest, type NetworkList, type PluginEntry } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import type { JsonObject } from "../spec/schema.ts";
import { atLeast, type Verb } from "../spec/version.ts";
import type { Args } from "./cache.ts";
import { DEFAULT_NETWORK } from "./default_network.ts";
import { findPosition } from "./source_location.ts";

/** What calls are made with. */
export interface Caller {
  readonly invoker: Invoker;
  /** Calls the plugins of this program alone, where it is not to be another that answers: in the network that is built in. */
  readonly ownPlugins?: Invoker;
  readonly pluginDirectories: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  log(message: string): void;
}

/** The attachment a call is about. */
export interface Parameters extends Attachment {
  readonly netns?: string;
  readonly args: Args;
  readonly capabilityArgs: JsonObject;
}

/** What a call asks for, beyond the configuration. */
export interface CallOptions {
  readonly verb: Verb;
  /** Absent for GC and STATUS. */
  readonly parameters?: Parameters;
  readonly prevResult?: Result | undefined;
  readonly validAttachments?: readonly Attachment[];
  /** When that list was made, in nanoseconds since 1970. */
  readonly madeAt?: bigint;
}

/** There is no such plugin, so nothing was done. */
export class MissingPluginError extends CniError {}

/** Calls a plugin. @throws {CniError} with the plugin's code, naming plugin and command */
export function callPlugin(caller: Caller, list: NetworkList, plugin: PluginEntry, options: CallOptions): void {
  named(list, plugin, options.verb, () => void request(caller, list, plugin, options));
}

/**
 * Has a plugin of this process carry out many DELs of one network together.
 *
 * @returns those that are still to be called for, each by itself
 */
export function callForMany<O extends CallOptions>(
  caller: Caller,
  list: NetworkList,
  plugin: PluginEntry,
  all: readonly O[],
): ReadonlySet<O> {
  const requests = new Map(all.map((each) => [requestOf(caller, list, plugin, each), each]));
  const { delMany } = invokerFor(caller, list);
  if (!delMany) return new Set(all);
  try {
    const left = named(list, plugin, "DEL", () => delMany(plugin.type, [...requests.keys()]));
    return new Set(left.map((request) => requests.get(request)!));
  } catch (error) {
    const { message, details } = CniError.from(error);
    const reason = details ? `${message}; ${details}` : message;
    caller.log(`Cannot detach ${all.length} containers from network "${list.name}" together: ${reason}`);
    return new Set(all);
  }
}

/** Calls a plugin that answers with a result. @throws {CniError} with the plugin's code, naming plugin and command */
export function callForResult(caller: Caller, list: NetworkList, plugin: PluginEntry, options: CallOptions): Result {
  return named(list, plugin, options.verb, () => {
    const { result: own, stdout } = request(caller, list, plugin, options);
    // A plugin of this process answers in the version it was asked in.
    if (own) return own;
    const result = parseAnswer(stdout, plugin.type, list.cniVersion);
    const version = JSON.parse(stdout)?.cniVersion || list.cniVersion;
    if (version !== list.cniVersion) {
      const wanted = `network "${list.name}" has ${list.cniVersion}`;
      caller.log(`Plugin "${plugin.type}" answered in version ${version}, but ${wanted}: its result was converted`);
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
export function restorePlugin(
  caller: Caller,
  list: NetworkList,
  plugin: PluginEntry,
  parameters: Parameters,
  prevResult: Result,
): readonly string[] | undefined {
  const options: CallOptions = { verb: "ADD", parameters, prevResult };
  return named(
    list,
    plugin,
    "restore",
    () => invokerFor(caller, list).restore?.(plugin.type, requestOf(caller, list, plugin, options)),
  );
}

function request(caller: Caller, list: NetworkList, plugin: PluginEntry, options: CallOptions): Response {
  const call = requestOf(caller, list, plugin, options);
  const invoker = invokerFor(caller, list);
  return invokeChecked({ invoke: (type, request) => invoke(invoker, type, request) }, plugin.type, call);
}

/** Nobody wrote the built-in network with the plugins of others in mind, and older ones do not even speak its version. */
function invokerFor({ invoker, ownPlugins }: Caller, list: NetworkList): Invoker {
  return ownPlugins && isBuiltIn(list) ? ownPlugins : invoker;
}

function isBuiltIn({ text }: NetworkList): boolean {
  return text === DEFAULT_NETWORK;
}

function requestOf(caller: Caller, list: NetworkList, plugin: PluginEntry, options: CallOptions): Request {
  const { verb, parameters, prevResult, validAttachments, madeAt } = options;
  const stdin = deriveRequest(list, plugin, {
    verb,
    ...(prevResult && { prevResult }),
    ...(parameters && { capabilityArgs: parameters.capabilityArgs }),
    ...(validAttachments && { validAttachments }),
  });
  // The first versions cannot say all of a result, and who asks in them is to see no more than that.
  const isWhole = prevResult && atLeast(list.cniVersion, "0.3.0");
  const env = environment(caller, list, options);
  return { command: verb, env, stdin, ...isWhole && { prevResult }, ...madeAt !== undefined && { madeAt } };
}

/** What a plugin fails with it answers; what is thrown here with this code comes from looking for it. */
function invoke(invoker: Invoker, type: string, request: Request): Response {
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
function environment(
  { env, pluginDirectories, ownPlugins }: Caller,
  list: NetworkList,
  { verb, parameters }: CallOptions,
): Record<string, string | undefined> {
  return {
    ...inherited(env),
    CNI_COMMAND: verb,
    CNI_CONTAINERID: parameters?.containerId ?? "",
    CNI_NETNS: parameters?.netns ?? "",
    CNI_IFNAME: parameters?.ifname ?? "",
    CNI_ARGS: (parameters?.args ?? []).map((pair) => pair.join("=")).join(";"),
    CNI_PATH: ownPlugins && isBuiltIn(list) ? "" : pluginDirectories.join(":"),
    // Only this version has it, and plugins of its time may ask.
    ...(list.cniVersion === "0.1.0" && { CNI_VERSION: list.cniVersion }),
  };
}

function named<T>(list: NetworkList, plugin: PluginEntry, verb: Verb | "restore", call: () => T): T {
  try {
    return call();
  } catch (error) {
    const { code, message, details } = CniError.from(error);
    const Kind = error instanceof MissingPluginError ? MissingPluginError : CniError;
    throw new Kind(code, `plugin "${plugin.type}" (${verb}): ${message}`, {
      details: [findPosition(list, plugin, error), details].filter((part) => part).join("; "),
      cause: error,
    });
  }
}

/** What a plugin gets of our own environment. */
function inherited(env: Caller["env"]): Record<string, string | undefined> {
  const variables: Record<string, string | undefined> = {};
  for (const name in env) {
    if (!name.startsWith("CNI_") || name === "CNI_NETNS_OVERRIDE") variables[name] = env[name];
  }
  return variables;
}
