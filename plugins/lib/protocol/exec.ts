/**
 * Plugins of other programs: where they are found, and how they are run.
 *
 * @see SPEC.md §2 Execution Protocol
 * @module
 */
import { communicate, type SubprocessResult } from "../../../ffi/sys/subprocess.ts";
import { ignoreErrors, SystemError } from "../../../ffi/sys/error.ts";
import { findEntryNames } from "../../../ffi/sys/directory.ts";
import { writeAll } from "../../../ffi/sys/file.ts";
import { sleep } from "../../../ffi/sys/poll.ts";
import { type FileStat, findStat } from "../../../ffi/sys/stat.ts";
import { type ChildProcess, startProgram } from "../../../ffi/sys/process.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { suggestion } from "../../../spec/suggest.ts";
import { formatPluginConfig } from "../../../spec/plugin_config.ts";
import type { PluginProgram } from "./context.ts";
import type { DelBatchRequest, PluginCommand, PluginRequest, PluginResponse } from "./request.ts";
import { NotRunError, parseErrorObject, parsePluginError, parsePluginResult, type ProgramOutput } from "./response.ts";

/** No result comes near; a plugin that prints more has gone wrong. */
const MAX_OUTPUT_BYTES = 64 * 1024 * 1024;
/** Longer than any plugin works, the slowest DHCP server included; engines give up within minutes. */
const PLUGIN_TIMEOUT_MS = 15 * 60_000;
/** VERSION needs nothing but the program itself. */
const VERSION_TIMEOUT_MS = 10_000;
/** How much of what a plugin said last goes into the error it fails with, in bytes. */
const STDERR_TAIL_BYTES = 1024;
/** How long a program may be busy being written: whoever installs it should be done by then. */
const ETXTBSY_TIMEOUT_MS = 5000;

/** A call as a program gets it. */
export interface ProgramCall {
  /** CNI_COMMAND: `ADD`. */
  readonly command: string;
  /** The other variables. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The configuration; empty for VERSION, mostly. */
  readonly stdin: string;
}

/** How programs are run. */
export interface ExecOptions {
  /** How long a plugin may run, in milliseconds; a quarter of an hour unless told. */
  readonly timeoutMs?: number;
  /** The longest that is waited, whatever the time limit. */
  readonly maxTimeoutMs?: number;
  /** Takes what plugins write to standard error, while they run; it goes to our own unless told. */
  readonly onStderr?: (bytes: Uint8Array) => void;
}

/**
 * The program of that name in `directories`, of which the first that holds one wins; `undefined` if it is this binary under another name.
 *
 * @param directories absolute paths; others are passed over, since what they mean would depend on where the caller stands
 * @throws {NotRunError} code 7 if it is no name
 */
export function findPluginProgram(type: string, directories: readonly string[]): string | undefined {
  requireFileName(type);
  for (const directory of directories) {
    if (!isAbsolute(directory)) continue;
    const path = `${directory}/${type}`;
    const status = findUsableStatus(path);
    if (status && isExecutableFile(status)) return isThisBinary(status) ? undefined : path;
  }
  return undefined;
}

/** The name comes from a configuration, and must not lead out of the directories. */
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

/** A place that cannot be looked at holds nothing that could be run. */
function findUsableStatus(path: string): FileStat | undefined {
  return ignoreErrors(["EACCES", "ENAMETOOLONG"], () => findStat(path));
}

function isExecutableFile({ isFile, mode }: FileStat): boolean {
  return isFile && (mode & 0o111) !== 0;
}

/** True for a link to this binary, and for a copy made by `cni install --copy`, which keeps the time. */
function isThisBinary(status: FileStat): boolean {
  const thisBinary = findStat("/proc/self/exe");
  return thisBinary?.identity === status.identity ||
    (thisBinary?.size === status.size && thisBinary.mtime === status.mtime);
}

/**
 * The error for a plugin that is neither in this process nor a program.
 *
 * @param builtinPlugins names of plugins of this process: a mistyped one may have been meant to be one of them
 */
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
  const hint = suggestion(type, [...builtinPlugins, ...executableNames].filter((name) => name !== type)).replace(
    "; ",
    "",
  );
  return new NotRunError(Code.InvalidConfig, `${reason}, and no executable has that name`, {
    details: [
      ...(hint ? [hint] : []),
      ...(searchedDirectories.length ? [`looked in ${searchedDirectories.join(", ")}`] : []),
      ...(relativeDirectories.length ? [`not in ${relativeDirectories.join(", ")}: not an absolute path`] : []),
      ...searchedDirectories.flatMap((directory) => describeUnusable(`${directory}/${type}`)),
    ].join("; "),
  });
}

/** Why something of the right name is not the plugin. */
function describeUnusable(path: string): string[] {
  const status = findUsableStatus(path);
  if (!status) return [];
  if (isExecutableFile(status)) return [`"${path}" is this very program, which has no such plugin`];
  return [`"${path}" is ${status.isFile ? "not executable" : "not a file"}`];
}

/**
 * Has a program carry out a request.
 *
 * @param exec runs programs
 * @throws {CniError} the error that it answered with
 * @throws {NotRunError} if it cannot be started, or says that it does not speak the version of the request
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

/** The environment and the text that a program gets. @throws {CniError} if the version cannot say `prevResult` */
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
      // As it came, where it came as text.
      CNI_PATH: env.CNI_PATH ?? path.join(":"),
      // Only this version has it, and plugins of its time may ask.
      ...(config.cniVersion === "0.1.0" && { CNI_VERSION: config.cniVersion }),
    },
    stdin: formatPluginConfig(config, command),
  };
}

/**
 * Asks a program that refused a request for its version whether it does not speak that. The code alone may come from a program that it
 * called in turn, when it had made something already.
 *
 * @returns false also if there is no telling
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
    // What the program answered is to be told, not that it cannot be asked any more.
    if (error instanceof CniError || error instanceof SystemError) return false;
    throw error;
  }
}

/** A member of a JSON object that is text or a list; `undefined` if it is none, or has none of that name. */
function jsonMember(text: string, name: string): unknown {
  try {
    return (JSON.parse(text) as Readonly<Record<string, unknown>> | null)?.[name];
  } catch {
    return undefined;
  }
}

/**
 * Runs a program and waits for its end.
 *
 * It gets the environment of the call without the variables that steer Bun, which would also steer a plugin that was built with it. With
 * a time limit it runs in a process group of its own; without one, whoever ends our group ends it too.
 *
 * @throws {NotRunError} if it cannot be started
 * @throws {CniError} if it does not end in time
 */
export function execPlugin(
  path: string,
  call: ProgramCall,
  { timeoutMs, maxTimeoutMs = PLUGIN_TIMEOUT_MS, onStderr = writeToStderr }: ExecOptions = {},
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
  const outcome = communicate(child, input, collectStderr, {
    deadline,
    maxOutputBytes: MAX_OUTPUT_BYTES,
    processGroup: ownProcessGroup,
  });
  const stderr = decodeTail(tail);
  if (outcome.stopReason || !outcome.exitStatus) throw timeoutError(path, outcome, timeoutMs, stderr);
  const stdout = new TextDecoder().decode(outcome.output);
  return "signal" in outcome.exitStatus
    ? { exitCode: 128 + outcome.exitStatus.signal, signal: outcome.exitStatus.signal, stdout, stderr }
    : { exitCode: outcome.exitStatus.status, stdout, stderr };
}

function environment({ env, command }: ProgramCall): string[] {
  const entries = [`CNI_COMMAND=${command}`];
  for (const name of Object.keys(env)) {
    const value = env[name];
    if (value !== undefined && name !== "CNI_COMMAND" && !name.startsWith("BUN_")) entries.push(`${name}=${value}`);
  }
  return entries;
}

/** Starts a program; one that is being replaced is waited for. @throws {CniError} saying why it cannot be started */
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

function timeoutError(
  path: string,
  { stopReason, exitStatus }: SubprocessResult,
  timeoutMs: number | undefined,
  stderr: string,
): CniError {
  const notes = [
    // Without a time limit it has no process group of its own.
    !exitStatus
      ? "it cannot be ended"
      : `it was ended${timeoutMs === undefined ? "" : ", and what it had started with it"}`,
    ...(stderr ? [`it said ${JSON.stringify(stderr)}`] : []),
  ];
  const options = { details: notes.join("; ") };
  if (stopReason === "signal") {
    return new CniError(
      Code.TryAgainLater,
      `Cannot wait for plugin "${path}": this process was asked to end`,
      options,
    );
  }
  return stopReason === "output"
    ? new CniError(
      Code.DecodeFailure,
      `Cannot read what plugin "${path}" prints: more than ${MAX_OUTPUT_BYTES} bytes`,
      options,
    )
    : new CniError(
      Code.TryAgainLater,
      `Cannot wait for plugin "${path}": it did not end within ${timeoutMs ?? PLUGIN_TIMEOUT_MS} ms`,
      options,
    );
}

/** To our own standard error; that nobody reads it any more is no reason to fail. */
function writeToStderr(bytes: Uint8Array): void {
  try {
    writeAll(2, bytes);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
  }
}

/** One byte more than is shown, by which can be told that something is left out. */
function appendTail(tail: Uint8Array, bytes: Uint8Array): Uint8Array {
  const joined = new Uint8Array(tail.length + bytes.length);
  joined.set(tail);
  joined.set(bytes, tail.length);
  return joined.slice(-(STDERR_TAIL_BYTES + 1));
}

function decodeTail(tail: Uint8Array): string {
  if (tail.length <= STDERR_TAIL_BYTES) return new TextDecoder().decode(tail).trim();
  // Not from the middle of a character.
  const start = tail.findIndex((byte, index) => index > 0 && (byte & 0xc0) !== 0x80);
  return `…${new TextDecoder().decode(tail.subarray(start)).trimEnd()}`;
}
