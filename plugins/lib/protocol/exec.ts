/**
 * Plugins of other programs: where they are found, and how they are run.
 *
 * @see SPEC.md §2 Execution Protocol
 * @module
 */
import { converse, type Outcome } from "../../../ffi/sys/subprocess.ts";
import { SystemError, unless } from "../../../ffi/sys/error.ts";
import { findNames } from "../../../ffi/sys/directory.ts";
import { pause, writeAll } from "../../../ffi/sys/file.ts";
import { type FileStatus, findStatus } from "../../../ffi/sys/stat.ts";
import { type Child, startProgram } from "../../../ffi/sys/process.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { suggestion } from "../../../spec/suggest.ts";
import { NotRunError, readError } from "./response.ts";
import type { Invoker, Request, Response } from "./delegate.ts";

/** No result comes near; a plugin that prints more has gone wrong. */
const MOST_OUTPUT = 64 * 1024 * 1024;
/** Longer than any plugin works, the slowest DHCP server included; engines give up within minutes. */
const LONGEST_MS = 15 * 60_000;
/** VERSION needs nothing but the program itself. */
const LONGEST_VERSION_MS = 10_000;
/** How much of what a plugin said last goes into the error it fails with, in bytes. */
const TAIL = 1024;
/** How long a program may be busy being written: whoever installs it should be done by then. */
const BUSY_MS = 5000;

/** Plugins of other programs, found in directories of executables. */
export interface Executables extends Invoker {
  /** Where the program of that name is, unless it is this binary under another name. @throws {CniError} code 7 if it is no name */
  find(type: string): string | undefined;
}

/** How plugins are found and run. */
export interface ExecutableOptions {
  /** How long a plugin may run, in milliseconds; a quarter of an hour unless told. */
  readonly timeoutMs?: number;
  /** Names of plugins of this process: a mistyped one may have been meant to be one of them. */
  readonly others?: readonly string[];
  /** Takes what plugins write to standard error, while they run; it goes to our own unless told. */
  readonly hear?: (bytes: Uint8Array) => void;
}

/**
 * The plugins in `directories`, of which the first that holds one wins; those that are this binary itself are passed over.
 *
 * They get the environment of the request without the variables that steer Bun, which would also steer a plugin that was built with
 * it. With a time limit they run in process groups of their own; without one, whoever ends our group ends them too.
 *
 * @param directories absolute paths; others are passed over, since what they mean would depend on where the caller stands
 */
export function executables(directories: readonly string[], options: ExecutableOptions = {}): Executables {
  const find = (type: string): string | undefined => {
    refuseName(type);
    for (const directory of directories) {
      if (!isAbsolute(directory)) continue;
      const path = `${directory}/${type}`;
      const status = statusAt(path);
      if (status && isProgram(status)) return isOwnProgram(status) ? undefined : path;
    }
    return undefined;
  };
  return {
    find,
    invoke(type, request) {
      const path = find(type);
      if (path === undefined) throw notFound(directories, type, options.others ?? []);
      const response = run(path, request, options);
      return {
        ...response,
        program: path,
        replaces: options.others?.includes(type) ?? false,
        ...(isRefusal(response) && { lacksVersion: lacksVersion(path, request, options) }),
      };
    },
  };
}

/** The name comes from a configuration, and must not lead out of the directories. */
function refuseName(type: string): void {
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
function statusAt(path: string): FileStatus | undefined {
  return unless(["EACCES", "ENAMETOOLONG"], () => findStatus(path));
}

function isProgram({ isFile, mode }: FileStatus): boolean {
  return isFile && (mode & 0o111) !== 0;
}

/** True for a link to this binary, and for a copy made by `cni install --copy`, which keeps the time. */
function isOwnProgram(status: FileStatus): boolean {
  const own = findStatus("/proc/self/exe");
  return own?.identity === status.identity || (own?.size === status.size && own.modified === status.modified);
}

function notFound(directories: readonly string[], type: string, others: readonly string[]): NotRunError {
  const reason = `Cannot run plugin "${type}": no such plugin is built in`;
  if (directories.length === 0) {
    return new NotRunError(Code.InvalidEnvironment, `${reason}, and CNI_PATH names no directory to look for it`);
  }
  const usable = directories.filter(isAbsolute);
  const ignored = directories.filter((path) => !isAbsolute(path)).map((path) => JSON.stringify(path));
  const there = usable.flatMap((path) => unless(["EACCES", "ENOTDIR", "ENAMETOOLONG"], () => findNames(path)) ?? []);
  const meant = suggestion(type, [...others, ...there].filter((name) => name !== type)).replace("; ", "");
  return new NotRunError(Code.InvalidConfig, `${reason}, and no executable has that name`, {
    details: [
      ...(meant ? [meant] : []),
      ...(usable.length ? [`looked in ${usable.join(", ")}`] : []),
      ...(ignored.length ? [`not in ${ignored.join(", ")}: not an absolute path`] : []),
      ...usable.flatMap((directory) => describeUnusable(`${directory}/${type}`)),
    ].join("; "),
  });
}

/** Why something of the right name is not the plugin. */
function describeUnusable(path: string): string[] {
  const status = statusAt(path);
  if (!status) return [];
  if (isProgram(status)) return [`"${path}" is this very program, which has no such plugin`];
  return [`"${path}" is ${status.isFile ? "not executable" : "not a file"}`];
}

function isRefusal({ exitCode, stdout }: Response): boolean {
  return exitCode !== 0 && readError(stdout)?.code === Code.IncompatibleVersion;
}

/**
 * Asks a program that refused a request for its version whether it does not speak that. The code alone may come from a program that it
 * called in turn, when it had made something already.
 *
 * @returns false also if there is no telling
 */
function lacksVersion(path: string, request: Request, options: ExecutableOptions): boolean {
  const version = memberOf(request.stdin, "cniVersion");
  if (typeof version !== "string") return false;
  const question = { ...request, command: "VERSION", stdin: JSON.stringify({ cniVersion: version }) };
  try {
    const { exitCode, stdout } = run(path, question, { ...options, hear: () => {} }, LONGEST_VERSION_MS);
    const supported = exitCode === 0 && memberOf(stdout, "supportedVersions");
    return Array.isArray(supported) && !supported.includes(version);
  } catch (error) {
    // What the program answered is to be told, not that it cannot be asked any more.
    if (error instanceof CniError || error instanceof SystemError) return false;
    throw error;
  }
}

/** A member of a JSON object; `undefined` if it is none, or has none of that name. */
function memberOf(text: string, name: string): unknown {
  try {
    return (JSON.parse(text) as Readonly<Record<string, unknown>> | null)?.[name];
  } catch {
    return undefined;
  }
}

function run(
  path: string,
  request: Request,
  { timeoutMs, hear = passOn }: ExecutableOptions,
  longestMs: number = LONGEST_MS,
): Response {
  const deadline = performance.now() + Math.min(timeoutMs ?? longestMs, longestMs);
  const group = timeoutMs !== undefined;
  const child = start(path, environment(request), group, deadline);
  let tail: Uint8Array = new Uint8Array(0);
  const listener = (bytes: Uint8Array) => {
    tail = lastOf(tail, bytes);
    hear(bytes);
  };
  const input = new TextEncoder().encode(request.stdin);
  const outcome = converse(child, input, listener, { deadline, mostOutput: MOST_OUTPUT, group });
  const stderr = readTail(tail);
  if (outcome.stopped || !outcome.end) throw stoppedError(path, outcome, timeoutMs, stderr);
  const stdout = new TextDecoder().decode(outcome.output);
  return "signal" in outcome.end
    ? { exitCode: 128 + outcome.end.signal, signal: outcome.end.signal, stdout, stderr }
    : { exitCode: outcome.end.status, stdout, stderr };
}

function environment({ env, command }: Request): string[] {
  const texts = [`CNI_COMMAND=${command}`];
  for (const name of Object.keys(env)) {
    const value = env[name];
    if (value !== undefined && name !== "CNI_COMMAND" && !name.startsWith("BUN_")) texts.push(`${name}=${value}`);
  }
  return texts;
}

/** Starts a program; one that is being replaced is waited for. @throws {CniError} saying why it cannot be started */
function start(path: string, env: readonly string[], group: boolean, deadline: number): Child {
  const last = Math.min(deadline, performance.now() + BUSY_MS);
  for (let wait = 1;; wait = Math.min(wait * 2, 100)) {
    try {
      return startProgram(path, env, group);
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      const left = last - performance.now();
      if (error.code !== "ETXTBSY" || left <= 0) throw startError(error);
      pause(Math.min(wait, Math.ceil(left)));
    }
  }
}

const REASONS: Readonly<Record<string, string>> = {
  EACCES: "its file system may be mounted noexec, or its interpreter may not be executable",
  ENOENT: "the interpreter or the loader that it names does not exist here",
  ENOEXEC: 'it is for another processor, or a script whose first line is not "#!"',
  ETXTBSY: "somebody has it open for writing",
};

function startError(error: SystemError): NotRunError {
  const passing = ["ETXTBSY", "EAGAIN", "EMFILE", "ENFILE", "ENOMEM"].includes(error.code);
  const details = REASONS[error.code];
  return new NotRunError(passing ? Code.TryAgainLater : Code.IoFailure, error.message, {
    ...(details && { details }),
    cause: error,
  });
}

function stoppedError(
  path: string,
  { stopped, end }: Outcome,
  timeoutMs: number | undefined,
  stderr: string,
): CniError {
  const notes = [
    // Without a time limit it has no process group of its own.
    !end ? "it cannot be ended" : `it was ended${timeoutMs === undefined ? "" : ", and what it had started with it"}`,
    ...(stderr ? [`it said ${JSON.stringify(stderr)}`] : []),
  ];
  const options = { details: notes.join("; ") };
  if (stopped === "signal") {
    return new CniError(
      Code.TryAgainLater,
      `Cannot wait for plugin "${path}": this process was asked to end`,
      options,
    );
  }
  return stopped === "output"
    ? new CniError(
      Code.DecodeFailure,
      `Cannot read what plugin "${path}" prints: more than ${MOST_OUTPUT} bytes`,
      options,
    )
    : new CniError(
      Code.TryAgainLater,
      `Cannot wait for plugin "${path}": it did not end within ${timeoutMs ?? LONGEST_MS} ms`,
      options,
    );
}

/** To our own standard error; that nobody reads it any more is no reason to fail. */
function passOn(bytes: Uint8Array): void {
  try {
    writeAll(2, bytes);
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
  }
}

/** One byte more than is shown, by which can be told that something is left out. */
function lastOf(tail: Uint8Array, bytes: Uint8Array): Uint8Array {
  const all = new Uint8Array(tail.length + bytes.length);
  all.set(tail);
  all.set(bytes, tail.length);
  return all.slice(-(TAIL + 1));
}

function readTail(tail: Uint8Array): string {
  if (tail.length <= TAIL) return new TextDecoder().decode(tail).trim();
  // Not from the middle of a character.
  const start = tail.findIndex((byte, index) => index > 0 && (byte & 0xc0) !== 0x80);
  return `…${new TextDecoder().decode(tail.subarray(start)).trimEnd()}`;
}
