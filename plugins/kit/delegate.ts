/**
 * Running another plugin: one of this binary in this process, or a program of somebody else.
 *
 * @see SPEC.md §4 Plugin Delegation
 * @module
 */
import { type FileStatus, findStatus } from "../../ffi/sys/file.ts";
import { CniError, Code } from "../spec/error.ts";
import { parseResult, type Result } from "../spec/result.ts";
import type { Verb, Version } from "../spec/version.ts";

/** A plugin call as the protocol has it: the parameters in the environment, the configuration as JSON text. */
export interface Request {
  /** CNI_COMMAND: `ADD`. */
  readonly command: string;
  /** CNI_CONTAINERID and its like; other variables are for programs that are started. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The configuration; empty for VERSION, mostly. */
  readonly stdin: string;
}

/** What a plugin answers. */
export interface Response {
  /** 0 for success; with any other, `stdout` should be an error object. */
  readonly exitCode: number;
  /** One JSON document, or nothing. */
  readonly stdout: string;
}

/** Finds a plugin by its type and calls it. */
export interface Invoker {
  /** Calls the plugin and gives its answer, also if that is an error. @throws {CniError} if there is no such plugin, or it cannot be started */
  invoke(type: string, request: Request): Response;
}

/** An IPAM plugin, as the plugin that delegates to it sees it. */
export interface Delegate {
  /** `ipam.type` of the configuration. */
  readonly type: string;
  /** The addresses it gives. Its DEL is called if the ADD that asked for them fails later, or this call itself does. */
  add(): Result;
  /** Gives back what the attachment has. @throws {CniError} what it failed with */
  del(): void;
  /** Asks whether the attachment still has what it was given. @throws {CniError} what it found */
  check(): void;
  /** Gives back what belongs to attachments that live no more. @throws {CniError} what it failed with */
  gc(): void;
  /** Asks whether it has addresses to give. @throws {CniError} with code 50 or 51 if it has none */
  status(): void;
}

/** The plugin `type` called with the same parameters and the same configuration as `request`. */
export function delegate(
  invoker: Invoker,
  type: string,
  request: Request,
  version: Version,
  undo: DisposableStack | undefined,
): Delegate {
  const call = (command: Verb) => invokeChecked(invoker, type, { ...request, command });
  return {
    type,
    add() {
      undo?.defer(() => void call("DEL"));
      return parseAnswer(call("ADD"), type, version);
    },
    del: () => void call("DEL"),
    check: () => void call("CHECK"),
    gc: () => void call("GC"),
    status: () => void call("STATUS"),
  };
}

/** Calls a plugin and returns what it printed. @throws {CniError} the one that it answered with */
export function invokeChecked(invoker: Invoker, type: string, request: Request): string {
  const { exitCode, stdout } = invoker.invoke(type, request);
  if (exitCode === 0) return stdout;
  throw parseError(stdout, type, exitCode);
}

/** The result that a plugin printed, in the current form. @throws {CniError} code 6 if it is none */
export function parseAnswer(stdout: string, type: string, version: Version): Result {
  let answer: unknown;
  try {
    answer = JSON.parse(stdout);
  } catch {
    throw new CniError(Code.DecodeFailure, `Cannot read the result of plugin "${type}": expected one JSON document`, {
      details: `it printed ${excerpt(stdout)}`,
    });
  }
  return parseResult(answer, version);
}

function parseError(stdout: string, type: string, exitCode: number): CniError {
  try {
    const { code, msg, details } = JSON.parse(stdout);
    if (typeof msg === "string" && Number.isInteger(code)) {
      return new CniError(code, msg, details ? { details: String(details) } : {});
    }
  } catch {
    // said below
  }
  return new CniError(
    Code.Internal,
    `Cannot run plugin "${type}": it ended with status ${exitCode} and no error object`,
    {
      details: stdout === "" ? "it printed nothing" : `it printed ${excerpt(stdout)}`,
    },
  );
}

function excerpt(text: string): string {
  const MOST = 200;
  return text === "" ? "nothing" : JSON.stringify(text.length > MOST ? `${text.slice(0, MOST)}…` : text);
}

/** Plugins of other programs, found in directories of executables (SPEC §2 Execution Protocol). */
export interface Executables extends Invoker {
  /** Where the program of that name is, unless it is this binary under another name. */
  find(type: string): string | undefined;
}

/**
 * The plugins in `directories`, of which the first that holds one wins; those that are this binary itself are passed over.
 *
 * @param directories absolute paths; others are ignored, since what they mean would depend on where the caller stands
 * @param timeoutMs how long a plugin may run; for ever unless told
 */
export function executables(directories: readonly string[], timeoutMs?: number): Executables {
  const find = (type: string): string | undefined => {
    for (const directory of directories.filter((each) => each.startsWith("/"))) {
      const path = `${directory}/${type}`;
      const status = findStatus(path);
      if (status?.isFile && status.mode & 0o111) return isOwnProgram(status) ? undefined : path;
    }
    return undefined;
  };
  return {
    find,
    invoke(type, request) {
      const path = find(type);
      if (path) return run(path, request, timeoutMs);
      throw new CniError(
        Code.InvalidConfig,
        `Cannot run plugin "${type}": no such plugin is built in, and no executable has that name`,
        {
          details: directories.length
            ? `looked in ${directories.join(", ")}`
            : "there is no directory to look in: set CNI_PATH",
        },
      );
    },
  };
}

/** True for a link to this binary, and for a copy made by `cni install --copy`, which keeps the time. */
function isOwnProgram(status: FileStatus): boolean {
  const own = findStatus("/proc/self/exe");
  return own?.identity === status.identity || (own?.size === status.size && own.modified === status.modified);
}

function run(path: string, request: Request, timeoutMs: number | undefined): Response {
  // Variables that steer Bun would also steer a plugin that was built with it.
  const env = Object.fromEntries(Object.entries(request.env).filter(([name]) => !name.startsWith("BUN_")));
  const child = Bun.spawnSync([path], {
    env: { ...env, CNI_COMMAND: request.command },
    stdin: new TextEncoder().encode(request.stdin),
    stdout: "pipe",
    stderr: "inherit",
    ...timeoutMs === undefined ? {} : { timeout: timeoutMs, killSignal: "SIGKILL" },
  });
  if (child.exitedDueToTimeout) {
    throw new CniError(Code.TryAgainLater, `Cannot wait for plugin "${path}": it did not end within ${timeoutMs} ms`);
  }
  return { exitCode: child.exitCode ?? 1, stdout: child.stdout.toString() };
}
