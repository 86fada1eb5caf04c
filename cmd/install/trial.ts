import { hasProgramMark } from "../../ffi/sys/program_mark.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import { execPlugin } from "../../plugins/lib/protocol/exec.ts";
import { parseErrorObject } from "../../plugins/lib/protocol/response.ts";
import { pluginNames } from "../../plugins/registry.ts";
import { CniError, Code } from "../../spec/error.ts";

const TIMEOUT_MS = 10_000;
/** No server listens there, so a shim starts the program. */
const ENV = { CNI_SOCKET: "/dev/null" };

/** Asks a plugin for its versions, which changes nothing. @returns why it does not run */
export function findStartProblem(plugin: string): string | undefined {
  try {
    const call = { command: "VERSION", env: ENV, stdin: "" };
    const { exitCode, stdout, stderr } = execPlugin(plugin, call, { timeoutMs: TIMEOUT_MS, onStderr: () => {} });
    if (exitCode === 0) return undefined;
    // Glibc's loader prints no object.
    return parseErrorObject(stdout)?.msg ?? (stderr || `it ended with status ${exitCode}`);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    return error.details === undefined ? error.message : `${error.message}: ${error.details}`;
  }
}

/** For a host whose files a container has put there. @throws {CniError} if they do not run */
export function requireStartingPlugins(directories: readonly string[]): void {
  for (const directory of directories) {
    const path = `${directory}/${pluginNames()[0]}`;
    if (!findStat(path)?.isFile || !hasProgramMark(path)) continue;
    const problem = findStartProblem(path);
    if (problem === undefined) continue;
    throw new CniError(Code.InvalidEnvironment, `Cannot serve this host: "${path}" does not run there: ${problem}`);
  }
}
