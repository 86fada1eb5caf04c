/** Finds and runs plugins that are programs (SPEC §2 Execution Protocol). @module */
import { communicate, type SubprocessResult } from "../../../ffi/sys/subprocess.ts";
import { ignoreErrors, ignoreSystemErrors, SystemError } from "../../../ffi/sys/error.ts";
import { observer } from "../../../ffi/sys/observer.ts";
import { hasProgramMark } from "../../../ffi/sys/program_mark.ts";
import { copyToStderr } from "../../../ffi/sys/stdio.ts";
import { findEntryNames } from "../../../ffi/sys/directory.ts";
import { sleep } from "../../../ffi/sys/poll.ts";
import { type FileStat, findStat } from "../../../ffi/sys/stat.ts";
import { type ChildProcess, startProgram } from "../../../ffi/sys/process.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { suggestion } from "../../../spec/suggest.ts";
import { formatPluginConfig } from "../../../spec/plugin_config.ts";
import type { PluginProgram } from "./context.ts";
import type { DelBatchRequest, PluginCommand, PluginRequest, PluginResponse } from "./request.ts";
import {
  NotRunError,
  parseErrorObject,
  parseJsonOrUndefined,
  parsePluginError,
  parsePluginResult,
  type ProgramOutput,
} from "./response.ts";

const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
/** Longer than the slowest DHCP server; engines give up within minutes. */
const PLUGIN_TIMEOUT_MS = 15 * 60_000;
const VERSION_TIMEOUT_MS = 10_000;
/** Goes into the plugin's error. */
const STDERR_TAIL_BYTES = 1024;
/** How long to wait while an installer still writes the program. */
const ETXTBSY_TIMEOUT_MS = 5000;

/** A call as a program gets it. */
export interface ProgramCall {
  /** The value of CNI_COMMAND, such as `ADD`. */
  readonly command: string;
  /** The environment of the call, without CNI_COMMAND. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The configuration; usually empty for VERSION. */
  readonly stdin: string;
}

export interface ExecOptions {
  readonly timeoutMs?: number;
  readonly maxTimeoutMs?: number;
  /** Takes the plugin's standard error as it comes; ours by default. */
  readonly onStderr?: (bytes: Uint8Array) => void;
}

/**
 * The program in the first directory that has one; `undefined` if it is this binary.
 *
 * @param directories relative ones are skipped: their meaning would depend on the working directory
 * @throws {NotRunError} code 7 if `type` is no file name
 */
export function findPluginProgram(type: string, directories: readonly string[]): string | undefined {
  requireFileName(type);
  for (const directory of directories) {
    if (!isAbsolute(directory)) continue;
    const path = `${directory}/${type}`;
    const status = findUsableStatus(path);
    if (status && isExecutableFile(status)) return isThisBinary(status) || isShim(path, status) ? undefined : path;
  }
  return undefined;
}

/** A configured name must not lead out of the directories. */
function requireFileName(type: string): void {
  if (type !== "" && type !== "." && type !== ".." && !type.includes("/") && !type.includes("\0")) return;
  throw new NotRunError(
    Code.InvalidConfig,
    `Cannot run plugin ${JSON.stringify(type)}: expected the name of a program, without a directory`,
  );
}

function isAbsolute(path: string): boolean {
  return path.startsWith("/");
}

function findUsableStatus(path: string): FileStat | undefined {
  return ignoreErrors(["EACCES", "ENAMETOOLONG"], () => findStat(path));
}

function isExecutableFile({ isFile, mode }: FileStat): boolean {
  return isFile && (mode & 0o111) !== 0;
}

/** A link to this binary, or a copy by `cni install --copy`, which keeps the mtime. */
function isThisBinary(status: FileStat): boolean {
  const thisBinary = findStat("/proc/self/exe");
  return thisBinary?.identity === status.identity ||
    (thisBinary?.size === status.size && thisBinary.mtime === status.mtime);
}

/** Far more than a shim has, and less than any other plugin. */
const MAX_SHIM_BYTES = 32 * 1024;

/** All names of a directory are links to one shim. */
const knownShims = new Set<string>();

/** A shim of any version counts: it would only hand the call to this program. */
function isShim(path: string, { identity, size, mtime }: FileStat): boolean {
  if (size > MAX_SHIM_BYTES) return false;
  const key = `${identity} ${size} ${mtime}`;
  if (!knownShims.has(key)) {
    if (ignoreSystemErrors(() => hasProgramMark(path)) !== true) return false;
    knownShims.add(key);
  }
  return true;
}

/** @param builtinPlugins names to suggest besides those in `directories` */
export function missingPluginError(
  directories: readonly string[],
  type: string,
  builtinPlugins: readonly string[],
): NotRunError {
  const reason = `Cannot run plugin "${type}": no such plugin is built in`;
  if (directories.length === 0) {
    return new NotRunError(Code.InvalidEnvironment, `${reason}, and CNI_PATH names no directory to look for it`);
  }
  const searchedDirectories = directories.filter(isAbsolute);
  const relativeDirectories = directories.filter((path) => !isAbsolute(path)).map((path) => JSON.stringify(path));
  const executableNames = searchedDirectories.flatMap((path) =>
    ignoreErrors(["EACCES", "ENOTDIR", "ENAMETOOLONG"], () => findEntryNames(path)) ?? []
  );
  const otherNames = [...builtinPlugins, ...executableNames].filter((name) => name !== type);
  const hint = suggestion(type, otherNames).replace("; ", "");
  return new NotRunError(Code.InvalidConfig, `${reason}, and no executable has that name`, {
    details: [
      ...(searchedDirectories.length ? [`looked in ${searchedDirectories.join(", ")}`] : []),
      ...(relativeDirectories.length ? [`not in ${relativeDirectories.join(", ")}: not an absolute path`] : []),
      ...searchedDirectories.flatMap((directory) => describeUnusable(`${directory}/${type}`)),
      ...(hint ? [hint] : []),
    ].join("; "),
  });
}

function describeUnusable(path: string): string[] {
  const status = findUsableStatus(path);
  if (!status) return [];
  if (isExecutableFile(status)) return [`"${path}" is this very program, which has no such plugin`];
  return [`"${path}" is ${status.isFile ? "not executable" : "not a file"}`];
}

/**
 * @throws {CniError} the program's error
 * @throws {NotRunError} if it cannot be started, or does not support the request's version
 */
export function callProgram(
  { program, shadowsBuiltin }: PluginProgram,
  request: PluginRequest | DelBatchRequest,
  exec: (path: string, call: ProgramCall, options?: ExecOptions) => ProgramOutput,
): PluginResponse {
  if (request.command === "DEL_BATCH") return { remaining: request.requests };
  if (request.command === "RESTORE" || request.command === "DIAGNOSE") return {};
  const call = formatRequest(request, request.command);
  const output = exec(program, call);
  const type = program.slice(program.lastIndexOf("/") + 1);
  if (output.exitCode !== 0) {
    const isVersionUnsupported = parseErrorObject(output.stdout)?.code === Code.IncompatibleVersion &&
      rejectsVersion(program, call, exec);
    throw parsePluginError({ ...output, program, shadowsBuiltin, isVersionUnsupported }, type);
  }
  if (request.command !== "ADD") return {};
  const result = parsePluginResult(output.stdout, type, request.config.cniVersion);
  return { result, resultVersion: jsonMember(output.stdout, "cniVersion") || request.config.cniVersion };
}

function formatRequest(request: PluginRequest, command: Exclude<PluginCommand, "RESTORE" | "DIAGNOSE">): ProgramCall {
  const { containerId, netns = "", ifname, args, path, config, env } = request;
  return {
    command,
    env: {
      ...env,
      CNI_CONTAINERID: containerId,
      CNI_NETNS: netns,
      CNI_IFNAME: ifname,
      CNI_ARGS: args,
      CNI_PATH: env.CNI_PATH ?? path.join(":"),
      // Plugins of this version may read it.
      ...(config.cniVersion === "0.1.0" && { CNI_VERSION: config.cniVersion }),
    },
    stdin: formatPluginConfig(config, command),
  };
}

/**
 * Whether VERSION confirms that the program does not support the version. The error code alone may come from a
 * delegate, after the program has changed something.
 */
function rejectsVersion(path: string, call: ProgramCall, exec: Parameters<typeof callProgram>[2]): boolean {
  const version = jsonMember(call.stdin, "cniVersion");
  if (typeof version !== "string") return false;
  const versionCall = { ...call, command: "VERSION", stdin: JSON.stringify({ cniVersion: version }) };
  try {
    const { exitCode, stdout } = exec(path, versionCall, { maxTimeoutMs: VERSION_TIMEOUT_MS, onStderr: () => {} });
    const supportedVersions = exitCode === 0 && jsonMember(stdout, "supportedVersions");
    return Array.isArray(supportedVersions) && !supportedVersions.includes(version);
  } catch (error) {
    // Report the program's first error, not this one.
    if (error instanceof CniError || error instanceof SystemError) return false;
    throw error;
  }
}

function jsonMember(text: string, name: string): unknown {
  return (parseJsonOrUndefined(text) as Readonly<Record<string, unknown>> | null | undefined)?.[name];
}

/**
 * BUN_* variables are removed: they would also affect plugins built with Bun. With a time limit the program has its own
 * process group; without one it ends with ours.
 *
 * @throws {NotRunError} if it cannot be started
 * @throws {CniError} if it does not end in time
 */
export function execPlugin(
  path: string,
  call: ProgramCall,
  options: ExecOptions = {},
): ProgramOutput {
  const run = () => execUnobserved(path, call, options);
  return observer ? observer({ kind: "program", path, ...call }, run) : run();
}

function execUnobserved(
  path: string,
  call: ProgramCall,
  { timeoutMs, maxTimeoutMs = PLUGIN_TIMEOUT_MS, onStderr = copyToStderr }: ExecOptions,
): ProgramOutput {
  const deadline = performance.now() + Math.min(timeoutMs ?? maxTimeoutMs, maxTimeoutMs);
  const ownProcessGroup = timeoutMs !== undefined;
  const child = startPlugin(path, environment(call), ownProcessGroup, deadline);
  let tail: Uint8Array = new Uint8Array(0);
  const collectStderr = (bytes: Uint8Array) => {
    tail = appendTail(tail, bytes);
    onStderr(bytes);
  };
  const input = new TextEncoder().encode(call.stdin);
  const limits = { deadline, maxOutputBytes: MAX_OUTPUT_BYTES, processGroup: ownProcessGroup };
  const outcome = communicate(child, input, collectStderr, limits);
  const stderr = decodeTail(tail);
  if (outcome.stopReason || !outcome.exitStatus) throw stoppedError(path, outcome, timeoutMs, stderr);
  const stdout = new TextDecoder().decode(outcome.output);
  return "signal" in outcome.exitStatus
    ? { exitCode: 128 + outcome.exitStatus.signal, signal: outcome.exitStatus.signal, stdout, stderr }
    : { exitCode: outcome.exitStatus.status, stdout, stderr };
}

function environment({ env, command }: ProgramCall): string[] {
  return Object.entries({ ...env, CNI_COMMAND: command })
    .filter(([name, value]) => value !== undefined && !name.startsWith("BUN_"))
    .map(([name, value]) => `${name}=${value}`);
}

function startPlugin(path: string, env: readonly string[], ownProcessGroup: boolean, deadline: number): ChildProcess {
  const busyDeadline = Math.min(deadline, performance.now() + ETXTBSY_TIMEOUT_MS);
  for (let delayMs = 1;; delayMs = Math.min(delayMs * 2, 100)) {
    try {
      return startProgram(path, env, ownProcessGroup);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      const remainingMs = busyDeadline - performance.now();
      if (error.code !== "ETXTBSY" || remainingMs <= 0) throw toNotRunError(error);
      sleep(Math.min(delayMs, Math.ceil(remainingMs)));
    }
  }
}

const EXEC_ERROR_CAUSES: Readonly<Record<string, string>> = {
  EACCES: "its file system may be mounted noexec, or its interpreter may not be executable",
  ENOENT: "the interpreter or the loader that it names does not exist here",
  ENOEXEC: 'it is for another processor, or a script whose first line is not "#!"',
  ETXTBSY: "somebody has it open for writing",
};

function toNotRunError(error: SystemError): NotRunError {
  const isTemporary = ["ETXTBSY", "EAGAIN", "EMFILE", "ENFILE", "ENOMEM"].includes(error.code);
  const details = EXEC_ERROR_CAUSES[error.code];
  return new NotRunError(isTemporary ? Code.TryAgainLater : Code.IoFailure, error.message, {
    ...(details && { details }),
    cause: error,
  });
}

function stoppedError(
  path: string,
  { stopReason, exitStatus }: SubprocessResult,
  timeoutMs: number | undefined,
  stderr: string,
): CniError {
  // Without a time limit it has no process group of its own.
  const ended = timeoutMs === undefined ? "it was ended" : "it was ended with all that it had started";
  const details = [
    exitStatus ? ended : "it cannot be ended",
    ...stderr ? [`it said ${JSON.stringify(stderr)}`] : [],
  ].join("; ");
  if (stopReason === "output") {
    const message = `Cannot read what plugin "${path}" prints: more than ${MAX_OUTPUT_BYTES} bytes`;
    return new CniError(Code.DecodeFailure, message, { details });
  }
  const reason = stopReason === "signal"
    ? "this process was asked to end"
    : `it did not end within ${timeoutMs ?? PLUGIN_TIMEOUT_MS} ms`;
  return new CniError(Code.TryAgainLater, `Cannot wait for plugin "${path}": ${reason}`, { details });
}

/** Keeps one byte more than is shown, to detect truncation. */
function appendTail(tail: Uint8Array, bytes: Uint8Array): Uint8Array {
  const joined = new Uint8Array(tail.length + bytes.length);
  joined.set(tail);
  joined.set(bytes, tail.length);
  return joined.slice(-(STDERR_TAIL_BYTES + 1));
}

function decodeTail(tail: Uint8Array): string {
  if (tail.length <= STDERR_TAIL_BYTES) return new TextDecoder().decode(tail).trim();
  // Start at a whole character.
  const start = tail.findIndex((byte, index) => index > 0 && (byte & 0xc0) !== 0x80);
  return `…${new TextDecoder().decode(tail.subarray(start)).trimEnd()}`;
}
