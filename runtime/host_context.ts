/**
 * What plugins are called in on this machine: its namespace, the built-in plugins, and those of others.
 *
 * @module
 */
import { currentNetns, openNetns } from "../ffi/netns.ts";
import type { Invoker } from "../plugins/lib/protocol/delegate.ts";
import { type Executables, executables } from "../plugins/lib/protocol/exec.ts";
import { embeddedForMany } from "../plugins/lib/protocol/serve_batch.ts";
import type { AnyPlugin, Embedded, Surroundings } from "../plugins/lib/protocol/serve.ts";
import { findPlugin, isIpam, pluginNames } from "../plugins/registry.ts";
import { say } from "../ffi/sys/stdio.ts";

/** How plugins are called. */
export interface SurroundingsOptions {
  /** Plugins of your own, which win over all others of their names. */
  readonly plugins?: readonly AnyPlugin[];
  /** How long a plugin that is a program of its own may run, in milliseconds; a quarter of an hour unless told. */
  readonly timeoutMs?: number;
  /** Takes what plugins of this process say; it goes to standard error unless told. */
  readonly log?: (message: string) => void;
}

/**
 * The machine as it is: plugins run in the namespace that this process is in, and a program in a plugin directory wins over the
 * built-in plugin of its name.
 *
 * @example Answer a call as the program of a plugin does
 * ```ts
 * import { findPlugin, serve, surroundings } from "./mod.ts";
 *
 * const request = { command: process.env.CNI_COMMAND ?? "VERSION", env: process.env, stdin: await Bun.stdin.text() };
 * const { exitCode, stdout } = serve(findPlugin("bridge")!, request, surroundings());
 * console.log(exitCode); // 0
 * console.log(JSON.parse(stdout).cniVersion); // 1.1.0
 * ```
 *
 * @throws {SystemError} without /proc
 */
export function surroundings({ plugins = [], timeoutMs, log = say }: SurroundingsOptions = {}): Surroundings {
  const own = (type: string) => plugins.find(({ name }) => name === type);
  const around: Surroundings = {
    host: currentNetns(),
    openNetns,
    invoker: (directories) => {
      const options = { others: pluginNames(), ...(timeoutMs !== undefined && { timeoutMs }) };
      const administrators = administratorsFirst(
        executables(directories, options),
        embeddedForMany(findPlugin, around),
      );
      return plugins.length === 0 ? administrators : firstOf(embeddedForMany(own, around), administrators);
    },
    log,
  };
  return around;
}

/** A program that the administrator put beside ours wins over the plugin that is built in. */
function administratorsFirst(programs: Executables, builtIn: Embedded): Invoker {
  const choose = (type: string): Invoker => (builtIn.has(type) && !programs.find(type) ? builtIn : programs);
  return {
    givesAddresses: (type) => isIpam(type) || !builtIn.has(type) || programs.find(type) !== undefined,
    invoke: (type, request) => choose(type).invoke(type, request),
    restore: (type, request) => choose(type).restore?.(type, request),
    findProgram: (type) => programs.find(type),
    delMany: (type, requests) => choose(type).delMany?.(type, requests) ?? requests,
  };
}

function firstOf(own: Embedded, others: Invoker): Invoker {
  const choose = (type: string): Invoker => (own.has(type) ? own : others);
  return {
    givesAddresses: (type) => choose(type).givesAddresses?.(type) ?? true,
    invoke: (type, request) => choose(type).invoke(type, request),
    restore: (type, request) => choose(type).restore?.(type, request),
    findProgram: (type) => choose(type).findProgram?.(type),
    delMany: (type, requests) => choose(type).delMany?.(type, requests) ?? requests,
  };
}
