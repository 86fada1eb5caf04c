import type { PluginSubcommand } from "../plugins/lib/model/plugin_model.ts";
import { findModel, hasPlugin, loadPlugins } from "../plugins/registry.ts";
import type { ProgramStart } from "../program/start.ts";
import { servePlugin } from "./serve_plugin.ts";

/**
 * The program's name decides what it is. Modules load on demand: start-up is most of a call. @returns the exit status
 */
export async function runProgram(start: ProgramStart): Promise<number> {
  try {
    if (hasPlugin(start.programName)) {
      const command = await findSubcommand(start);
      if (command) return await command(start.argv.slice(1), start.env);
      if (!start.env["CNI_TRACE"]) return await servePlugin(start);
      const { tracePlugin } = await import("./trace/plugin_call.ts");
      return await tracePlugin(start, () => servePlugin(start));
    }
    const { allowClone3Fallback } = await import("../ffi/sys/clone3_fallback.ts");
    allowClone3Fallback();
    const { runCommandLine } = await import("./cli.ts");
    return await runCommandLine(start.argv, { ...start, runProgram });
  } catch (error) {
    return printUncaughtError(error);
  }
}

/** Engines pass no words: their calls load nothing for this. */
async function findSubcommand({ programName, argv: [word], env }: ProgramStart): Promise<PluginSubcommand | undefined> {
  if (word === undefined || env["CNI_COMMAND"]) return undefined;
  await loadPlugins([programName]);
  const { commands = {} } = findModel(programName) ?? {};
  return Object.hasOwn(commands, word) ? commands[word] : undefined;
}

/** @returns the exit status */
export async function printUncaughtError(error: unknown): Promise<number> {
  const [{ formatErrorObject }, { printFinalError }] = [
    await import("../plugins/lib/protocol/serve.ts"),
    await import("../ffi/sys/stdio.ts"),
  ];
  printFinalError(formatErrorObject(error, ""));
  return 1;
}
