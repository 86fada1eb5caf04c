/**
 * The entry point: the name this binary is called by decides what it is.
 *
 * @module
 */
import { currentNetns, openNetns } from "../ffi/netns.ts";
import type { Invoker } from "../plugins/kit/delegate.ts";
import { type Executables, executables } from "../plugins/kit/executable.ts";
import { type AnyPlugin, embedded, printError, serve, type Surroundings } from "../plugins/kit/serve.ts";
import { findPlugin, pluginNames } from "../plugins/registry.ts";
import { VERSIONS } from "../plugins/spec/version.ts";
import { runCli } from "./cli.ts";
import { print, printLast, readInput, readPromptInput, say } from "./stdio.ts";
import { programVersion } from "./version.ts";

/** The last part of a path. */
const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** @param timeoutMs how long a plugin that is a program of its own may run; for ever unless told */
function surroundings(timeoutMs?: number): Surroundings {
  const around: Surroundings = {
    host: currentNetns(),
    openNetns,
    invoker: (directories) => {
      const options = { others: pluginNames(), ...(timeoutMs !== undefined && { timeoutMs }) };
      return administratorsFirst(executables(directories, options), embedded(findPlugin, around));
    },
    log: say,
  };
  return around;
}

/** A program that the administrator put beside ours wins over the plugin that is built in. */
function administratorsFirst(programs: Executables, builtIn: Invoker & { has(type: string): boolean }): Invoker {
  return {
    invoke: (type, request) => (builtIn.has(type) && !programs.find(type) ? builtIn : programs).invoke(type, request),
  };
}

/** Serves one call from a runtime: parameters in the environment, configuration on standard input. */
function servePlugin(plugin: AnyPlugin): number {
  const command = process.env.CNI_COMMAND ?? "";
  if (command === "") {
    say(`CNI ${plugin.name} plugin ${programVersion()}\nCNI protocol versions supported: ${VERSIONS.join(", ")}`);
    return 0;
  }
  const stdin = command === "VERSION" ? readPromptInput() : readInput();
  const { exitCode, stdout } = serve(plugin, { command, env: process.env, stdin }, surroundings());
  print(stdout);
  return exitCode;
}

function main(): number {
  const calledAs = nameOf(process.argv0 || process.execPath);
  const plugin = findPlugin(calledAs);
  if (plugin) return servePlugin(plugin);
  return runCli(process.argv.slice(2), { calledAs, env: process.env, surroundings, servePlugin });
}

function fail(error: unknown): never {
  printLast(printError(error, ""));
  process.exit(1);
}

process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
try {
  process.exit(main());
} catch (error) {
  fail(error);
}
