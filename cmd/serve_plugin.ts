import { blockSignals, withSignalsUnblocked } from "../ffi/sys/signals.ts";
import type { CliContext } from "../program/start.ts";
import { versionResponse } from "../plugins/lib/protocol/version.ts";
import { findPlugin, loadPlugins, pluginsMentionedIn } from "../plugins/registry.ts";
import { VERSIONS } from "../spec/version.ts";
import { printStderr, printStdout, readAvailableStdin, readStdin } from "../ffi/sys/stdio.ts";
import { programVersion } from "../program/version.ts";

/** The call is in the environment and on stdin (SPEC §2). @returns the exit status */
export async function servePlugin(start: CliContext): Promise<number> {
  const { programName: name, env, startTime, findParentPid } = start;
  const command = env.CNI_COMMAND ?? "";
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
  const stdin = withSignalsUnblocked(readStdin);
  const [{ serve }, { createHostContext }] = [
    await import("../plugins/lib/protocol/serve.ts"),
    await import("../runtime/host_context.ts"),
  ];
  // The configuration may name delegates.
  await loadPlugins([name, ...pluginsMentionedIn(stdin)]);
  const isAdd = command === "ADD";
  if (isAdd) blockSignals();
  const context = createHostContext();
  using _host = context.host;
  const call = {
    command,
    env,
    stdin,
    // An engine makes GC's list before it starts this process.
    snapshotTime: startTime,
    findCallerPid: findParentPid,
    findConfigSchema: (type: string) => findPlugin(type)?.config,
  };
  // An ADD whose answer does not reach the engine is undone.
  const deliver = isAdd && { deliver: printStdout };
  const { exitCode, stdout } = serve(findPlugin(name)!, { ...call, ...deliver }, context);
  if (exitCode !== 0) start.onFailure?.(JSON.parse(stdout).code);
  if (!isAdd || exitCode !== 0) printStdout(stdout);
  return exitCode;
}
