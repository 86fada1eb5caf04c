/**
 * The entry point: the name this binary is called by decides what it is.
 *
 * @module
 */
import { type AnyPlugin, printError, serve, type Surroundings } from "../plugins/kit/serve.ts";
import { findPlugin } from "../plugins/registry.ts";
import { VERSIONS } from "../plugins/spec/version.ts";
import { runCli } from "./cli.ts";
import { print, printLast, readInput, readPromptInput, say } from "./stdio.ts";
import { surroundings } from "./surroundings.ts";
import { programVersion } from "./version.ts";

/** The last part of a path. */
const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

/** @param timeoutMs how long a plugin that is a program of its own may run; for ever unless told */
function atMost(timeoutMs?: number): Surroundings {
  return surroundings(timeoutMs === undefined ? {} : { timeoutMs });
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
  return runCli(process.argv.slice(2), { calledAs, env: process.env, surroundings: atMost, servePlugin });
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
