import type { PluginLocation } from "../plugins/lib/protocol/context.ts";
import { attemptOrLog } from "../plugins/lib/protocol/plugin.ts";
import type { PluginCommand, PluginRequest, PluginResponse } from "../plugins/lib/protocol/request.ts";
import { isTrue } from "../spec/env.ts";
import { CniError, Code } from "../spec/error.ts";
import {
  derivePluginConfig,
  deriveProgramConfig,
  type NetworkConfigList,
  type PluginEntry,
  type PluginRequestOptions,
} from "../spec/network_config_list.ts";
import type { Attachment, PluginConfig } from "../spec/plugin_config.ts";
import { type Result, resultAsSeenIn } from "../spec/result.ts";
import type { JsonObject } from "../spec/schema.ts";
import type { Args } from "./cache.ts";
import type { RuntimeContext } from "./context.ts";
import { DEFAULT_NETWORK } from "./default_network.ts";
import { findSourceLocation } from "./source_location.ts";

export interface ResolvedRuntimeConf extends Attachment {
  readonly netns?: string;
  readonly args: Args;
  readonly capabilityArgs: JsonObject;
}

export interface PluginCallOptions {
  readonly command: PluginCommand;
  /** Absent for GC and STATUS calls. */
  readonly parameters?: ResolvedRuntimeConf;
  readonly prevResult?: Result | undefined;
  readonly validAttachments?: readonly Attachment[];
  /** When `validAttachments` was made, in nanoseconds since 1970. */
  readonly snapshotTime?: bigint;
  /** The error of the failed ADD named unusable keys already. */
  readonly undoesAdd?: true;
}

export class MissingPluginError extends CniError {}

/** @throws {CniError} with the plugin's code, naming plugin and command */
export function callPlugin(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: PluginCallOptions,
): PluginResponse {
  return withPluginName(list, plugin, options.command, () => {
    const location = locatePlugin(runtime, list, plugin);
    return runtime.hostContext.invoke(location, buildRequest(runtime, list, plugin, location, options));
  });
}

/** Logs what stops packets although ADD succeeds, and failures of plugins. */
export function logProblems(runtime: RuntimeContext, list: NetworkConfigList, parameters?: ResolvedRuntimeConf): void {
  const log = (message: string) => runtime.log(`Network "${list.name}": ${message}`);
  for (const plugin of list.plugins) {
    attemptOrLog(log, () => {
      const options: PluginCallOptions = { command: "DIAGNOSE", ...parameters && { parameters } };
      callPlugin(runtime, list, plugin, options).problems?.forEach(log);
    });
  }
}

export function callAdd(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: Omit<PluginCallOptions, "command">,
): Result {
  const { result, resultVersion = list.cniVersion } = callPlugin(runtime, list, plugin, {
    ...options,
    command: "ADD",
  });
  if (resultVersion !== list.cniVersion) {
    const expected = `network "${list.name}" has ${list.cniVersion}`;
    runtime.log(
      `Plugin "${plugin.type}" answered in version ${resultVersion}, but ${expected}: its result was converted`,
    );
  }
  return result!;
}

/** Only for built-in plugins. @returns those that still need a call of their own */
export function callDelBatch<O extends PluginCallOptions>(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  calls: readonly O[],
): ReadonlySet<O> {
  try {
    const remaining = withPluginName(list, plugin, "DEL", () => {
      const location = locatePlugin(runtime, list, plugin);
      if (!("plugin" in location)) return calls;
      const optionsOf = new Map(
        calls.map((options) => [buildRequest(runtime, list, plugin, location, options), options]),
      );
      const requests = [...optionsOf.keys()];
      const { remaining = [] } = runtime.hostContext.invoke(location, { command: "DEL_BATCH", requests });
      return remaining.map((request) => optionsOf.get(request)!);
    });
    return new Set(remaining);
  } catch (error) {
    runtime.log(
      `Cannot detach ${calls.length} containers from network "${list.name}" together: ${describeFailure(error)}`,
    );
    return new Set(calls);
  }
}

/** The built-in network uses only built-in plugins: others may not speak its version. */
export function locatePlugin(
  { hostContext, pluginDirectories }: RuntimeContext,
  list: NetworkConfigList,
  { type }: PluginEntry,
): PluginLocation {
  try {
    return hostContext.locate(type, isDefaultNetwork(list) ? [] : pluginDirectories);
  } catch (error) {
    const { code, message, details } = CniError.from(error);
    if (code !== Code.InvalidConfig && code !== Code.InvalidEnvironment) throw error;
    throw new MissingPluginError(code, message, { ...(details && { details }), cause: error });
  }
}

/** Finds nothing where {@linkcode locatePlugin} throws {@linkcode MissingPluginError}. */
export function findLocation(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
): PluginLocation | undefined {
  try {
    return locatePlugin(runtime, list, plugin);
  } catch (error) {
    if (error instanceof MissingPluginError) return undefined;
    throw error;
  }
}

export function isBuiltin(runtime: RuntimeContext, list: NetworkConfigList, plugin: PluginEntry): boolean {
  const location = findLocation(runtime, list, plugin);
  return location !== undefined && "plugin" in location;
}

function isDefaultNetwork({ text }: NetworkConfigList): boolean {
  return text === DEFAULT_NETWORK;
}

function buildRequest(
  { hostContext, env, findCallerPid, pluginDirectories, restoreConfigs }: RuntimeContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  location: PluginLocation,
  { command, parameters, prevResult, validAttachments, snapshotTime, undoesAdd }: PluginCallOptions,
): PluginRequest {
  const { containerId = "", ifname = "", netns, args = [], capabilityArgs } = parameters ?? {};
  const options: PluginRequestOptions = {
    command: configuredCommand(command),
    ...(prevResult && { prevResult }),
    ...(capabilityArgs && { capabilityArgs }),
    ...(validAttachments && { validAttachments }),
  };
  const deriveConfig = (): PluginConfig => {
    if (!("plugin" in location)) return deriveProgramConfig(list, plugin, options);
    if (command === "RESTORE") return deriveRestoreConfig(restoreConfigs, list, plugin, options);
    return derivePluginConfig(list, plugin, options, (problem) => {
      if (!undoesAdd) hostContext.log(`${plugin.type}: ${problem}`);
    });
  };
  return {
    command,
    containerId,
    ifname,
    ...netns && { netns },
    args: args.map((pair) => pair.join("=")).join(";"),
    path: isDefaultNetwork(list) ? [] : pluginDirectories,
    netnsOverride: isTrue(env.CNI_NETNS_OVERRIDE ?? ""),
    config: deriveConfig(),
    env,
    ...undoesAdd && { undoesAdd },
    ...findCallerPid !== undefined && { findCallerPid },
    ...snapshotTime !== undefined && { snapshotTime },
  };
}

/** Restore needs what ADD got. */
function configuredCommand(command: PluginCommand): PluginRequestOptions["command"] {
  if (command === "RESTORE") return "ADD";
  return command === "DIAGNOSE" ? "STATUS" : command;
}

/** Without capability arguments, attachments differ only in the result. */
function deriveRestoreConfig(
  known: RuntimeContext["restoreConfigs"],
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: PluginRequestOptions,
): PluginConfig {
  const { prevResult, capabilityArgs = {} } = options;
  if (!prevResult || plugin.capabilities.some((name) => Object.hasOwn(capabilityArgs, name))) {
    return derivePluginConfig(list, plugin, options);
  }
  const config = known.get(plugin) ?? derivePluginConfig(list, plugin, { command: options.command });
  known.set(plugin, config);
  return { ...config, prevResult: resultAsSeenIn(list.cniVersion, prevResult) };
}

export function describeFailure(error: unknown): string {
  const { message, details } = CniError.from(error);
  return details ? `${message}; ${details}` : message;
}

const COMMAND_NAMES: Partial<Record<PluginCommand, string>> = { RESTORE: "restore", DIAGNOSE: "diagnosis" };

export function withPluginName<T>(
  list: NetworkConfigList,
  plugin: PluginEntry,
  command: PluginCommand,
  call: () => T,
): T {
  try {
    return call();
  } catch (error) {
    const { code, message, details } = CniError.from(error);
    const ErrorClass = error instanceof MissingPluginError ? MissingPluginError : CniError;
    throw new ErrorClass(code, `plugin "${plugin.type}" (${COMMAND_NAMES[command] ?? command}): ${message}`, {
      details: [findSourceLocation(list, plugin, error), details].filter((part) => part).join("; "),
      cause: error,
    });
  }
}

/** Plugins inherit only this CNI_* variable: the others are for us. */
export function inheritedEnvironment(env: RuntimeContext["env"]): RuntimeContext["env"] {
  const variables: Record<string, string | undefined> = {};
  for (const name in env) {
    if (!name.startsWith("CNI_") || name === "CNI_NETNS_OVERRIDE") variables[name] = env[name];
  }
  return variables;
}
