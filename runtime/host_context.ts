import { currentNetns, openNetns } from "../ffi/netns/netns.ts";
import { printStderr } from "../ffi/sys/stdio.ts";
import type { AnyPlugin, HostContext, PluginLocation } from "../plugins/lib/protocol/context.ts";
import { callProgram, execPlugin, findPluginProgram, missingPluginError } from "../plugins/lib/protocol/exec.ts";
import { handle } from "../plugins/lib/protocol/handle.ts";
import { findPlugin, hasPlugin, isIpamPlugin, pluginNames } from "../plugins/registry.ts";

/** Says how plugins are called. */
export interface HostContextOptions {
  /** Your own plugins, which win over others of their names. */
  readonly plugins?: readonly AnyPlugin[];
  /** The time limit of a program, in milliseconds; default: 15 minutes. */
  readonly timeoutMs?: number;
  /** Where attachments are that may have what the ruleset forgot; default: where libcni has it. */
  readonly cacheDirectory?: string;
  /** Takes messages of built-in plugins; default: standard error. */
  readonly log?: (message: string) => void;
}

/**
 * Plugins run in the thread's namespace; a program in a plugin directory wins over a built-in plugin.
 *
 * @example Answer a call as the program of a plugin does
 * ```ts
 * import { findPlugin, serve, createHostContext } from "./mod.ts";
 *
 * const call = { command: process.env.CNI_COMMAND ?? "VERSION", env: process.env, stdin: await Bun.stdin.text() };
 * const { exitCode, stdout } = serve(findPlugin("bridge")!, call, createHostContext());
 * console.log(exitCode); // 0
 * console.log(JSON.parse(stdout).cniVersion); // 1.1.0
 * ```
 *
 * @throws {SystemError} without /proc
 */
export function createHostContext(
  { plugins = [], timeoutMs, cacheDirectory, log = printStderr }: HostContextOptions = {},
): HostContext {
  const host = currentNetns();
  const context: HostContext = {
    host,
    // The host's handle saves each call a look-up of where to return.
    openNetns: (path) => openNetns(path, host),
    locate: (type, directories) => locate(type, directories, plugins),
    isIpam: (type, directories) =>
      isIpamPlugin(type) || !hasPlugin(type) || plugins.some(({ name }) => name === type) ||
      findPluginProgram(type, directories) !== undefined,
    invoke: (location, request) =>
      "plugin" in location
        ? handle(location.plugin, request, context)
        : callProgram(location, request, (path, call, options) =>
          execPlugin(path, call, { ...timeoutMs !== undefined && { timeoutMs }, ...options })),
    rememberedAdds: (type) => loadRememberedAdds().listRememberedAdds(context, type, cacheDirectory),
    log,
  };
  return context;
}

export function withLog(context: HostContext, log: (message: string) => void): HostContext {
  const heard: HostContext = {
    ...context,
    log,
    invoke: (location, request) =>
      "plugin" in location ? handle(location.plugin, request, heard) : context.invoke(location, request),
  };
  return heard;
}

// Rarely needed: not loaded at start-up.
function loadRememberedAdds(): typeof import("./remembered_adds.ts") {
  return require("./remembered_adds.ts");
}

function locate(type: string, directories: readonly string[], given: readonly AnyPlugin[]): PluginLocation {
  const own = given.find(({ name }) => name === type);
  if (own) return { plugin: own };
  const program = findPluginProgram(type, directories);
  if (program !== undefined) return { program, shadowsBuiltin: hasPlugin(type) };
  const builtin = findPlugin(type);
  if (builtin) return { plugin: builtin };
  throw missingPluginError(directories, type, pluginNames());
}
