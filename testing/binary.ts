/**
 * Runs the compiled binary as container engines do: by a link, with an environment and a configuration on stdin.
 *
 * @module
 */

import { test } from "bun:test";
import { existsSync, lstatSync, mkdirSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { CNI_PROGRAM, REPOSITORY_ROOT } from "../scripts/src/repository.ts";

export { CNI_PROGRAM };

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
  /** Nothing unless told. */
  readonly stdin?: string;
  /** A command that ends by executing its arguments: `["sh", "-c", 'ulimit -v 1; exec "$@"', "sh"]`. */
  readonly wrapper?: readonly string[];
}

/** How to start a plugin, besides {@link ENGINE_ENV}. */
export interface PluginStart extends ProcessStart {
  /** `/` unless told. */
  readonly cwd?: string;
}

/** The path of a link to the binary that is named like a plugin. @throws {Error} When the binary was not built. */
export function pluginLink(name: string): string {
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
export function runPlugin(name: string, { env, stdin, cwd, wrapper }: PluginStart = {}): FinishedProcess {
  const child = Bun.spawnSync([...(wrapper ?? []), pluginLink(name)], {
    cwd: cwd ?? "/",
    env: { ...ENGINE_ENV, ...env },
    stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
    stdout: "pipe",
    stderr: "pipe",
  });
  return finishedProcess(child);
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
