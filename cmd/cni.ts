import { unblockSignals } from "../ffi/sys/signals.ts";
import { printUncaughtError, runProgram } from "./program.ts";
import { findWorkingDirectory } from "../program/working_directory.ts";

const baseName = (path: string): string => path.slice(path.lastIndexOf("/") + 1);

function exitWith(status: number): never {
  // A signal that ended an ADD was blocked until its error was printed; now it ends the process.
  if (status !== 0) unblockSignals();
  process.exit(status);
}

/** Last of all: the caller has its answer. Also if that is an error: `dhcp` fails without a server. */
async function leaveServerBehind({ argv0, env }: NodeJS.Process, status: number): Promise<void> {
  // Who names a socket has a server, or wants none.
  if (env.CNI_COMMAND !== "ADD" || env.CNI_SOCKET || !argv0.startsWith("/")) return;
  // Only a shim starts this program beside itself.
  const program = `${argv0.slice(0, argv0.lastIndexOf("/"))}/cni-full`;
  try {
    const { findStat } = await import("../ffi/sys/stat.ts");
    if (!findStat(program)) return;
    const behind = await import("../server/leave_behind.ts");
    behind.leaveServerBehind(program);
  } catch (error) {
    // Where nothing works, the answer says so.
    if (status !== 0) return;
    const { printStderr } = await import("../ffi/sys/stdio.ts");
    printStderr(`cni: no server for the next calls: ${(error as Error).message}`);
  }
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
}).then(async (status) => {
  await leaveServerBehind(process, status);
  exitWith(status);
}, fail);
