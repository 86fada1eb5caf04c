/** The program's name decides what it is. Modules load on demand: start-up is most of a call. */
import { unblockSignals } from "../ffi/sys/signals.ts";
import { hasPlugin } from "../plugins/registry.ts";
import { servePlugin } from "./serve_plugin.ts";

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

async function main(): Promise<number> {
  const programName = baseName(process.argv0 || process.execPath);
  if (hasPlugin(programName)) return servePlugin(programName);
  const { allowClone3Fallback } = await import("../ffi/sys/clone3_fallback.ts");
  allowClone3Fallback();
  const { runCommandLine } = await import("./cli.ts");
  return runCommandLine(process.argv.slice(2), { programName, env: process.env, findWorkingDirectory });
}

/** Only relative paths need it: its removal is no error. */
function findWorkingDirectory(): string | undefined {
  try {
    return process.cwd();
  } catch {
    return undefined;
  }
}

function exitWith(status: number): never {
  // A signal that ended an ADD was blocked until its error was printed; now it ends the process.
  if (status !== 0) unblockSignals();
  process.exit(status);
}

async function fail(error: unknown): Promise<never> {
  const [{ formatErrorObject }, { printFinalError }] = [
    await import("../plugins/lib/protocol/serve.ts"),
    await import("../ffi/sys/stdio.ts"),
  ];
  printFinalError(formatErrorObject(error, ""));
  exitWith(1);
}

process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
main().then(exitWith, fail);
