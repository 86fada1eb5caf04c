import { unblockSignals } from "../ffi/sys/signals.ts";
import { printUncaughtError, runProgram } from "./program.ts";
import { findWorkingDirectory } from "../program/working_directory.ts";

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

function exitWith(status: number): never {
  // A signal that ended an ADD was blocked until its error was printed; now it ends the process.
  if (status !== 0) unblockSignals();
  process.exit(status);
}

const fail = async (error: unknown): Promise<never> => exitWith(await printUncaughtError(error));

process.on("uncaughtException", fail);
process.on("unhandledRejection", fail);
runProgram({
  programName: baseName(process.argv0 || process.execPath),
  argv: process.argv.slice(2),
  env: process.env,
  findWorkingDirectory,
  findParentPid: () => process.ppid,
  startTime: BigInt(Math.ceil(performance.timeOrigin)) * 1_000_000n,
}).then(exitWith, fail);
