import { loadPlugins, pluginsMentionedIn } from "../../plugins/registry.ts";
import { loadNetwork } from "../../runtime/load.ts";
import { Runtime, type RuntimeOptions } from "../../runtime/runtime.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { CniError } from "../../spec/error.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import type { ArgumentSpec } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import type { OptionSpec, ParsedOptions } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import { printMessage } from "../output/message.ts";
import { printableLines } from "../../spec/printable.ts";
import { TRACE_OPTIONS } from "../trace/options.ts";
import { absolutePath } from "./path.ts";

export const NETWORK_ARGUMENT: ArgumentSpec = {
  name: "NETWORK",
  help: 'a name in the configuration directory, a path (with a "/"), or - for stdin; "default" is built in',
};

export const CONF_DIR_OPTION: OptionSpec = {
  name: "conf-dir",
  value: "DIR",
  env: "NETCONFPATH",
  help: "directory of network configurations (/etc/cni/net.d)",
};

export const CACHE_DIR_OPTION: OptionSpec = {
  name: "cache-dir",
  value: "DIR",
  help: "directory where attachments are remembered (/var/lib/cni)",
};

export const PLUGIN_DIR_OPTION: OptionSpec = {
  name: "plugin-dir",
  value: "DIRS",
  env: "CNI_PATH",
  help: "directories of other plugins, separated by ':'; ':' for none (/opt/cni/bin)",
};

export const JSON_OPTION: OptionSpec = { name: "json", help: "on failure, print the error object on stdout" };

export const DOCUMENT_OPTION: OptionSpec = {
  ...JSON_OPTION,
  help: `print JSON, as with --format json; ${JSON_OPTION.help}`,
};

export const RUNTIME_OPTIONS: readonly OptionSpec[] = [
  CONF_DIR_OPTION,
  PLUGIN_DIR_OPTION,
  CACHE_DIR_OPTION,
  { name: "timeout", value: "TIME", help: "time limit for each plugin that is not built in: 30s, 500ms" },
  ...TRACE_OPTIONS,
  DOCUMENT_OPTION,
];

export interface MessageSink {
  log(message: string): void;
  pluginLog(message: string): void;
}

export const STDERR: MessageSink = { log, pluginLog };

export function keepMessages(): MessageSink & { readonly messages: readonly string[] } {
  const messages: string[] = [];
  return {
    messages,
    log(message) {
      messages.push(message);
      log(message);
    },
    pluginLog(message) {
      messages.push(message);
      pluginLog(message);
    },
  };
}

export const DRY_RUN_OPTION: OptionSpec = {
  name: "dry-run",
  help: "change nothing; print what the command would do, as JSON with --json",
};

export const VERBOSE_OPTION: OptionSpec = {
  name: "verbose",
  short: "v",
  help: "with --dry-run: print each effect, in order",
};

export const DRY_RUN_OPTIONS: readonly OptionSpec[] = [DRY_RUN_OPTION, VERBOSE_OPTION];

export function isDryRun(options: ParsedOptions): boolean {
  if (options.has(VERBOSE_OPTION.name) && !options.has(DRY_RUN_OPTION.name)) {
    throw new UsageError("--verbose says what --dry-run prints: give both");
  }
  return options.has(DRY_RUN_OPTION.name);
}

export function openRuntime(options: ParsedOptions, context: CliContext, sink: MessageSink = STDERR): Runtime {
  return new Runtime(runtimeOptions(options, context, sink));
}

export function runtimeOptions(
  options: ParsedOptions,
  context: CliContext,
  { log, pluginLog }: MessageSink = STDERR,
): RuntimeOptions {
  const timeout = options.find("timeout");
  // Messages say what was done, which a dry run does not do.
  const prefix = isDryRun(options) ? "would report: " : "";
  return {
    env: context.env,
    findCallerPid: context.findParentPid,
    pluginDirectories: pluginDirectories(options, context),
    cacheDirectory: cacheDirectory(options, context),
    ...(timeout !== undefined && { timeoutMs: parseTimeout(timeout) }),
    log: (message) => log(`${prefix}${message}`),
    pluginLog: (message) => pluginLog(`${prefix}${message}`),
  };
}

export function cacheDirectory(options: ParsedOptions, context: CliContext): string {
  return absolutePath(options.find(CACHE_DIR_OPTION.name) ?? "/var/lib/cni", context);
}

export function pluginDirectories(options: ParsedOptions, context: CliContext): string[] {
  return (options.find(PLUGIN_DIR_OPTION.name) ?? "/opt/cni/bin").split(":").filter((path) => path !== "")
    .map((path) => absolutePath(path, context));
}

export function log(message: string): void {
  printMessage(`cni: ${printableLines(message)}`);
}

/** Plugins name links, programs and files of others. */
function pluginLog(message: string): void {
  printMessage(printableLines(message));
}

/** @param logDuplicates for commands that judge a configuration */
export function loadRequested(
  word: string,
  options: ParsedOptions,
  context: CliContext,
  logDuplicates = false,
  sink: MessageSink = STDERR,
): NetworkConfigList {
  return loadNetwork(word, { directory: confDirectory(options, context), log: sink.log, logDuplicates });
}

export function confDirectory(options: ParsedOptions, context: CliContext): string {
  return absolutePath(options.find(CONF_DIR_OPTION.name) ?? "/etc/cni/net.d", context);
}

export function isNetworkName(word: string): boolean {
  return word !== "-" && !word.includes("/");
}

/** Returns the name, if only the attachment's copy of the configuration can be read. */
export function loadAttachedNetwork(
  word: string,
  attachment: Attachment,
  runtime: Runtime,
  options: ParsedOptions,
  context: CliContext,
): NetworkConfigList | string {
  try {
    return loadRequested(word, options, context);
  } catch (error) {
    if (!isNetworkName(word) || runtime.attachedConfiguration(word, attachment) === undefined) throw error;
    const { containerId, ifname } = attachment;
    const { message, details } = CniError.from(error);
    log(details ? `${message} (${details})` : message);
    log(
      `Using the configuration that "${ifname}" of container "${containerId}" on network "${word}" was attached with`,
    );
    return word;
  }
}

/** Loads the plugins of a network, and those that made an attachment to it, which remove it. Loading all takes milliseconds. */
export async function loadPluginsOf(
  network: NetworkConfigList | string,
  attachment: Attachment,
  runtime: Runtime,
): Promise<void> {
  const { name, text } = typeof network === "string" ? { name: network, text: "" } : network;
  await loadPlugins(pluginsMentionedIn(text + (runtime.attachedConfiguration(name, attachment) ?? "")));
}

/** The unit is a second, unless another follows. */
function parseTimeout(text: string): number {
  const [, digits, unit = "s"] = /^([0-9]+(?:\.[0-9]+)?)(ms|s|m)?$/.exec(text) ?? [];
  const ms = Number(digits) * { ms: 1, s: 1000, m: 60_000 }[unit as "ms" | "s" | "m"];
  if (ms >= 1) return Math.round(ms);
  throw new UsageError(`--timeout must be a time such as "30s" or "500ms": got ${JSON.stringify(text)}`);
}
