/**
 * Runs the compiled binary as container engines do: by a link, with an environment and a configuration on stdin. If the runner has
 * started a server, tests call its shims instead, see `scripts/src/test/with_server.ts`.
 *
 * @module
 */

import { test } from "bun:test";
import { existsSync, lstatSync, mkdirSync, readFileSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { CNI_PROGRAM, REPOSITORY_ROOT } from "../scripts/src/repository.ts";

/** Set by a runner that has started a server: its directory of shims. */
export const SHIM_DIRECTORY: string | undefined = process.env["CNI_SHIM_DIRECTORY"];

/** What tests call as `cni`: the compiled binary, or its shim. */
export const CNI_UNDER_TEST: string = SHIM_DIRECTORY === undefined ? CNI_PROGRAM : join(SHIM_DIRECTORY, "cni");

/** The file of the compiled binary. */
export { CNI_PROGRAM };

/** What a shim needs to find the server; belongs into every environment that a test makes. */
export const SERVER_ENV: Readonly<Record<string, string>> = SHIM_DIRECTORY === undefined
  ? {}
  : { CNI_SOCKET: process.env["CNI_SOCKET"] ?? "" };

/** Everything a container engine sets; a test overrides what it is about. The namespace does not exist. */
export const ENGINE_ENV: Readonly<Record<string, string>> = {
  CNI_COMMAND: "VERSION",
  CNI_CONTAINERID: "hardening",
  CNI_NETNS: "/proc/self/ns/absent",
  CNI_IFNAME: "eth0",
  CNI_PATH: "/nonexistent",
  PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
  // Else a firewalld of the machine that runs the tests would be told of their containers.
  DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus",
  ...SERVER_ENV,
};

/** A process that has ended. */
export interface FinishedProcess {
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The output of a process that has ended, as text. */
export function finishedProcess({ exitCode, stdout, stderr }: Bun.SyncSubprocess<"pipe", "pipe">): FinishedProcess {
  return { exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
}

/** How to start a process. */
export interface ProcessStart {
  /** Entries to add to the environment; a value of "" stays an empty value. */
  readonly env?: Readonly<Record<string, string>>;
  /** What it reads; nothing unless told. */
  readonly stdin?: string;
  /** A command that ends by executing its arguments: `["sh", "-c", 'ulimit -v 1; exec "$@"', "sh"]`. */
  readonly wrapper?: readonly string[];
}

/** How to start a plugin, besides {@link ENGINE_ENV}. */
export interface PluginStart extends ProcessStart {
  /** The working directory: `/` unless told. */
  readonly cwd?: string;
  /** For a test of the process itself, which no server is to replace. */
  readonly inOwnProcess?: boolean;
}

/** The path of a link to the binary that is named like a plugin, or of its shim. @throws {Error} When the binary was not built. */
export function pluginLink(name: string): string {
  return SHIM_DIRECTORY === undefined ? fullProgramLink(name) : join(SHIM_DIRECTORY, name);
}

/** The path of a link to the binary, whether there is a server or not. @throws {Error} When the binary was not built. */
export function fullProgramLink(name: string): string {
  if (!existsSync(CNI_PROGRAM)) {
    throw new Error(`Cannot test the compiled binary: "${CNI_PROGRAM}" is missing, run scripts/build`);
  }
  const folder = join(REPOSITORY_ROOT, "dist/links");
  const link = join(folder, name);
  mkdirSync(folder, { recursive: true });
  if (lstatSync(link, { throwIfNoEntry: false }) && readlinkSync(link) === CNI_PROGRAM) return link;
  rmSync(link, { force: true });
  symlinkSync(CNI_PROGRAM, link);
  return link;
}

/** Runs a plugin to its end. */
export function runPlugin(name: string, { env, stdin, cwd, wrapper, inOwnProcess }: PluginStart = {}): FinishedProcess {
  const program = inOwnProcess ? fullProgramLink(name) : pluginLink(name);
  const child = Bun.spawnSync([...(wrapper ?? []), program], {
    cwd: cwd ?? "/",
    env: { ...ENGINE_ENV, ...env },
    stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
    stdout: "pipe",
    stderr: "pipe",
  });
  return finishedProcess(child);
}

/** Whether the binary waits for input, on stdin or on a file; a shim waits for the server that does. */
export function isReading(pid: number): boolean {
  const [SYS_READ, SYS_POLL, SYS_PPOLL] = process.arch === "arm64" ? [63, 73, 73] : [0, 7, 271];
  const calls = SHIM_DIRECTORY === undefined ? [`${SYS_READ} 0x0 `, `${SYS_POLL} `] : [`${SYS_PPOLL} `];
  const waiting = readFileSync(`/proc/${pid}/syscall`, "utf8");
  return calls.some((call) => waiting.startsWith(call));
}

/** A CNI error as the specification defines it: `code`, `msg`, and nothing else on stdout. */
export interface ErrorDocument {
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
}

/** The error a failed plugin answered with. @throws {Error} When the answer is anything else, with all of it. */
export function errorOf(finished: FinishedProcess): ErrorDocument {
  let document: unknown;
  try {
    document = JSON.parse(finished.stdout);
  } catch {
    document = undefined;
  }
  if (finished.exitCode !== 1 || !isErrorDocument(document)) {
    throw new Error(`Expected one CNI error and exit status 1, got ${JSON.stringify(finished)}`);
  }
  return document;
}

function isErrorDocument(value: unknown): value is ErrorDocument {
  if (typeof value !== "object" || value === null) return false;
  return "code" in value && Number.isInteger(value.code) && "msg" in value && typeof value.msg === "string";
}

/** Defines a test that needs programs; where one is missing it is skipped, and its name says which. */
export function testWith(
  programs: readonly string[],
  name: string,
  body: () => void | Promise<void>,
  timeoutMs?: number,
): void {
  const missing = programs.filter((program) => Bun.which(program) === null);
  if (missing.length === 0) test(name, body, timeoutMs);
  else test.skip(`${name} # needs ${missing.join(", ")}`, body);
}
