import { blockSignals, unblockSignals, withSignalsUnblocked } from "../ffi/sys/signals.ts";
import { allowClone3Fallback } from "../ffi/sys/clone3_fallback.ts";
import { printFinalError, printStderr, printStdout, readAvailableStdin, readStdin } from "../ffi/sys/stdio.ts";
import type { AnyPlugin } from "../plugins/lib/protocol/context.ts";
import { formatErrorObject, serve } from "../plugins/lib/protocol/serve.ts";
import { versionResponse } from "../plugins/lib/protocol/version.ts";
import { findPlugin } from "../plugins/registry.ts";
import { VERSIONS } from "../spec/version.ts";
import { createHostContext } from "./host_context.ts";

/**
 * Makes a program of a plugin. It does the call that an engine has put into the environment and standard input. Then it
 * prints the answer, and sets the exit status of the process.
 *
 * @param env `process.env` unless given
 * @example
 * ```ts
 * import { main, plugin, schema } from "./mod.ts";
 *
 * const greet = plugin({
 *   name: "greet",
 *   about: "Changes nothing",
 *   config: schema.object({}),
 *   add: ({ prevResult }) => prevResult ?? {},
 *   del: () => {},
 *   check: () => {},
 * });
 * main(greet, { CNI_COMMAND: "VERSION" }); // {"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}
 * ```
 */
export function main(plugin: AnyPlugin, env: Readonly<Record<string, string | undefined>> = process.env): void {
  try {
    process.exitCode = serveProcess(plugin, env);
  } catch (error) {
    printFinalError(formatErrorObject(error, ""));
    process.exitCode = 1;
  }
  // A signal that ended an ADD was blocked until its error was printed; now it ends the process.
  if (process.exitCode !== 0) unblockSignals();
}

function serveProcess(plugin: AnyPlugin, env: Readonly<Record<string, string | undefined>>): number {
  const command = env["CNI_COMMAND"] ?? "";
  if (command === "") {
    printStderr(`CNI ${plugin.name} plugin\nCNI protocol versions supported: ${VERSIONS.join(", ")}`);
    return 0;
  }
  if (command === "VERSION") {
    printStdout(versionResponse(readAvailableStdin()));
    return 0;
  }
  allowClone3Fallback();
  const stdin = withSignalsUnblocked(readStdin);
  const isAdd = command === "ADD";
  if (isAdd) blockSignals();
  const context = createHostContext();
  using _host = context.host;
  const findConfigSchema = (type: string) => findPlugin(type)?.config;
  // An ADD whose answer does not reach the engine is undone.
  const deliver = isAdd && { deliver: printStdout };
  const { exitCode, stdout } = serve(plugin, { command, env, stdin, findConfigSchema, ...deliver }, context);
  if (!isAdd || exitCode !== 0) printStdout(stdout);
  return exitCode;
}
