/**
 * Being a plugin: one call from a runtime, parameters in the environment, configuration on standard input.
 *
 * @see SPEC.md §2 Execution Protocol
 * @module
 */
import { holdSignals } from "../ffi/sys/signals.ts";
import { answerVersion } from "../plugins/lib/protocol/version.ts";
import { findPlugin, loadPlugins, pluginsNamedIn } from "../plugins/registry.ts";
import { VERSIONS } from "../spec/version.ts";
import { print, readInput, readPromptInput, say } from "../ffi/sys/stdio.ts";
import { programVersion } from "./version.ts";

/** Serves the call that this process is started for. @returns the exit status */
export async function servePlugin(name: string): Promise<number> {
  const command = process.env.CNI_COMMAND ?? "";
  if (command === "") {
    say(`CNI ${name} plugin ${programVersion()}\nCNI protocol versions supported: ${VERSIONS.join(", ")}`);
    return 0;
  }
  if (command === "VERSION") {
    print(answerVersion(readPromptInput()));
    return 0;
  }
  const { permitThreads } = await import("../ffi/sys/clone3_fallback.ts");
  permitThreads();
  const stdin = readInput();
  const [{ serve }, { surroundings }] = [
    await import("../plugins/lib/protocol/serve.ts"),
    await import("../runtime/host_context.ts"),
  ];
  // With the plugins that the configuration may name as delegates.
  await loadPlugins([name, ...pluginsNamedIn(stdin)]);
  const isAdd = command === "ADD";
  if (isAdd) holdSignals();
  // What an engine has not heard of it believes not to be there.
  const around = { ...surroundings(), ...(isAdd && { deliver: print }) };
  using _host = around.host;
  // Engines know who lives by the time they start a plugin, and what comes while it starts is not among them.
  const madeAt = BigInt(Math.ceil(performance.timeOrigin)) * 1_000_000n;
  const request = { command, env: process.env, stdin, madeAt };
  const { exitCode, stdout } = serve(findPlugin(name)!, request, around);
  if (!isAdd || exitCode !== 0) print(stdout);
  return exitCode;
}
