/**
 * What plugins are called in on this machine: its namespace, the built-in plugins, and those of others.
 *
 * @module
 */
import { currentNetns, openNetns } from "../ffi/netns.ts";
import type { Invoker } from "../plugins/lib/protocol/delegate.ts";
import { type ExecInvoker, execInvoker } from "../plugins/lib/protocol/exec.ts";
import { builtinBatchInvoker } from "../plugins/lib/protocol/serve_batch.ts";
import type { AnyPlugin, BuiltinInvoker, HostContext } from "../plugins/lib/protocol/serve.ts";
import { findPlugin, isIpamPlugin, pluginNames } from "../plugins/registry.ts";
import { printStderr } from "../ffi/sys/stdio.ts";

/** How plugins are called. */
export interface HostContextOptions {
  /** Plugins of your own, which win over all others of their names. */
  readonly plugins?: readonly AnyPlugin[];
  /** How long a plugin that is a program of its own may run, in milliseconds; a quarter of an hour unless told. */
  readonly timeoutMs?: number;
  /** Takes what plugins of this process say; it goes to standard error unless told. */
  readonly log?: (message: string) => void;
}

/**
 * The machine as it is: plugins run in the namespace that this process is in, and a program in a plugin directory wins over the
 * built-in plugin of its name.
 *
 * @example Answer a call as the program of a plugin does
 * ```ts
 * import { findPlugin, serve, createHostContext } from "./mod.ts";
 *
 * const request = { command: process.env.CNI_COMMAND ?? "VERSION", env: process.env, stdin: await Bun.stdin.text() };
 * const { exitCode, stdout } = serve(findPlugin("bridge")!, request, createHostContext());
 * console.log(exitCode); // 0
 * console.log(JSON.parse(stdout).cniVersion); // 1.1.0
 * ```
 *
 * @throws {SystemError} without /proc
 */
export function createHostContext(
  { plugins = [], timeoutMs, log = printStderr }: HostContextOptions = {},
): HostContext {
  const findGivenPlugin = (type: string) => plugins.find(({ name }) => name === type);
  const context: HostContext = {
    host: currentNetns(),
    openNetns,
    invoker: (directories) => {
      const options = { builtinPlugins: pluginNames(), ...(timeoutMs !== undefined && { timeoutMs }) };
      const installed = preferPrograms(
        execInvoker(directories, options),
        builtinBatchInvoker(findPlugin, context),
      );
      return plugins.length === 0
        ? installed
        : preferEmbedded(builtinBatchInvoker(findGivenPlugin, context), installed);
    },
    log,
  };
  return context;
}

/** A program that the administrator put beside ours wins over the plugin that is built in. */
function preferPrograms(programs: ExecInvoker, builtIn: BuiltinInvoker): Invoker {
  const invokerOf = (
    type: string,
  ): Invoker => (builtIn.has(type) && !programs.findExecutable(type) ? builtIn : programs);
  return {
    isIpam: (type) => isIpamPlugin(type) || !builtIn.has(type) || programs.findExecutable(type) !== undefined,
    invoke: (type, request) => invokerOf(type).invoke(type, request),
    restoreRules: (type, request) => invokerOf(type).restoreRules?.(type, request),
    findProgram: (type) => programs.findExecutable(type),
    delBatch: (type, requests) => invokerOf(type).delBatch?.(type, requests) ?? requests,
  };
}

function preferEmbedded(embedded: BuiltinInvoker, fallback: Invoker): Invoker {
  const invokerOf = (type: string): Invoker => (embedded.has(type) ? embedded : fallback);
  return {
    isIpam: (type) => invokerOf(type).isIpam?.(type) ?? true,
    invoke: (type, request) => invokerOf(type).invoke(type, request),
    restoreRules: (type, request) => invokerOf(type).restoreRules?.(type, request),
    findProgram: (type) => invokerOf(type).findProgram?.(type),
    delBatch: (type, requests) => invokerOf(type).delBatch?.(type, requests) ?? requests,
  };
}
