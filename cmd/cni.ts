/**
 * The entry point: the name this binary is called by decides what it is.
 *
 * What is needed is loaded then: the start of a call is most of what it takes.
 *
 * @module
 */
import { letSignalsThrough } from "../ffi/sys/signals.ts";
import { hasPlugin } from "../plugins/registry.ts";
import { servePlugin } from "./serve_plugin.ts";

/** The last part of a path. */
const nameOf = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

async function main(): Promise<number> {
  const calledAs = nameOf(process.argv0 || process.execPath);
  if (hasPlugin(calledAs)) return servePlugin(calledAs);
  const { permitThreads } = await import("../ffi/sys/clone3_fallback.ts");
  permitThreads();
  const { runCli } = await import("./cli.ts");
  return runCli(process.argv.slice(2), { calledAs, env: process.env });
}

function end(status: number): never {
  // Whoever asked for the end of an ADD hears why it failed, and then sees the process end by that.
  if (status !== 0) letSignalsThrough();
  process.exit(status);
}

async function fail(error: unknown): Promise<never> {
  const [{ printError }, { printLast }] = [
    await import("../plugins/lib/protocol/serve.ts"),
    await import("../ffi/sys/stdio.ts"),
  ];
  printLast(printError(error, ""));
  end(1);
}

process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
main().then(end, fail);
