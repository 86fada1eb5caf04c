/**
 * Being a plugin: one call from a runtime, parameters in the environment, configuration on standard input.
 *
 * @see SPEC.md §2 Execution Protocol
 * @module
 */
import { blockSignals } from "../ffi/sys/signals.ts";
import { versionResponse } from "../plugins/lib/protocol/version.ts";
import { findPlugin, loadPlugins, pluginsMentionedIn } from "../plugins/registry.ts";
import { VERSIONS } from "../spec/version.ts";
import { printStderr, printStdout, readAvailableStdin, readStdin } from "../ffi/sys/stdio.ts";
import { programVersion } from "./version.ts";

/** Serves the call that this process is started for. @returns the exit status */
export async function servePlugin(name: string): Promise<number> {
  const command = process.env.CNI_COMMAND ?? "";
  if (command === "") {
    printStderr(`CNI ${name} plugin ${programVersion()}\nCNI protocol versions supported: ${VERSIONS.join(", ")}`);
    return 0;
  }
  if (command === "VERSION") {
    printStdout(versionResponse(readAvailableStdin()));
    return 0;
  }
  const { allowClone3Fallback } = await import("../ffi/sys/clone3_fallback.ts");
  allowClone3Fallback();
  const stdin = readStdin();
  const [{ serve }, { createHostContext }] = [
    await import("../plugins/lib/protocol/serve.ts"),
    await import("../runtime/host_context.ts"),
  ];
  // With the plugins that the configuration may name as delegates.
  await loadPlugins([name, ...pluginsMentionedIn(stdin)]);
  const isAdd = command === "ADD";
  if (isAdd) blockSignals();
  const context = createHostContext();
  using _host = context.host;
  // Engines know who lives by the time they start a plugin, and what comes while it starts is not among them.
  const snapshotTime = BigInt(Math.ceil(performance.timeOrigin)) * 1_000_000n;
  const call = {
    command,
    env: process.env,
    stdin,
    snapshotTime,
    findCallerPid: () => process.ppid,
    findConfigSchema: (type: string) => findPlugin(type)?.config,
  };
  // What an engine has not heard of it believes not to be there.
  const deliver = isAdd && { deliver: printStdout };
  const { exitCode, stdout } = serve(findPlugin(name)!, { ...call, ...deliver }, context);
  if (!isAdd || exitCode !== 0) printStdout(stdout);
  return exitCode;
}
