/** A plugin's side of the process boundary (SPEC §2 Execution Protocol). @module */
import { parseEnvironment } from "../../../spec/env.ts";
import { CniError } from "../../../spec/error.ts";
import { stringifyJson } from "../../../spec/jsonc.ts";
import { parsePluginConfig } from "../../../spec/plugin_config.ts";
import { findValue, type Schema } from "../../../spec/schema.ts";
import { stringifyResult } from "../../../spec/result.ts";
import { describeUnknownKey, findUnknownPluginKeys } from "../../../spec/unknown_keys.ts";
import { LATEST } from "../../../spec/version.ts";
import type { AnyPlugin, HostContext } from "./context.ts";
import type { ProgramCall } from "./exec.ts";
import { handle } from "./handle.ts";
import type { PluginRequest } from "./request.ts";
import type { ProgramOutput } from "./response.ts";
import { requestedVersion, versionResponse } from "./version.ts";

/** A call from another process. */
export interface PluginCallText extends ProgramCall, Pick<PluginRequest, "snapshotTime" | "findCallerPid"> {
  /** Takes the answer to an ADD. If it throws, the ADD is undone. */
  deliver?(stdout: string): void;
  /** Finds an IPAM plugin's schema. With it, a successful ADD logs unknown keys. */
  readonly findConfigSchema?: (type: string) => Schema<unknown> | undefined;
}

/**
 * Carries out one call. Never throws: every failure becomes an error object.
 *
 * @example
 * ```ts
 * import { plugin, schema, serve, createHostContext } from "./mod.ts";
 *
 * const greet = plugin({
 *   name: "greet",
 *   about: "Says hello and changes nothing",
 *   config: schema.object({ greeting: schema.withDefault(schema.string, "hello") }),
 *   add: ({ config, log, prevResult }) => {
 *     log(config.greeting);
 *     return prevResult ?? {};
 *   },
 *   del: () => {},
 *   check: () => {},
 * });
 * const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "web", type: "greet", greeting: "hi" });
 * const env = { CNI_CONTAINERID: "c1", CNI_IFNAME: "eth0", CNI_NETNS: "/run/netns/c1" };
 * const context = createHostContext({ log: (message) => console.log(message) });
 *
 * const answer = serve(greet, { command: "ADD", env, stdin }, context); // greet: hi
 * console.log(answer.exitCode); // 0
 * const { exitCode, stdout } = serve(greet, { command: "ADD", env: {}, stdin }, context);
 * console.log(exitCode, JSON.parse(stdout).code); // 1 4
 * ```
 */
export function serve(plugin: AnyPlugin, call: PluginCallText, context: HostContext): ProgramOutput {
  const { command, stdin, deliver } = call;
  try {
    if (command === "VERSION") return { exitCode: 0, stdout: versionResponse(stdin) };
    const request = parseCall(plugin, call, context);
    let stdout = "";
    handle(plugin, request, context, (result) => {
      stdout = stringifyResult(result, request.config.cniVersion);
      deliver?.(stdout);
    });
    if (command === "ADD") warnOfUnknownKeys(plugin, request, call, context);
    return { exitCode: 0, stdout };
  } catch (error) {
    return { exitCode: 1, stdout: formatErrorObject(error, stdin) };
  }
}

/** Engines copy this to their logs. */
function warnOfUnknownKeys(
  plugin: AnyPlugin,
  { config, path }: PluginRequest,
  { findConfigSchema }: PluginCallText,
  { locate, log }: HostContext,
): void {
  if (!findConfigSchema) return;
  // A delegate of another plugin owns only `ipam`.
  const isDelegate = config.type !== "" && config.type !== plugin.name;
  const unknownKeys = findUnknownPluginKeys(
    { ...config, type: plugin.name, ...isDelegate && { raw: { ipam: findValue(config.raw, "ipam") } } },
    (type) => type === plugin.name ? plugin.config : findConfigSchema(type),
    (type) => type !== plugin.name && "program" in locate(type, path),
  );
  for (const unknownKey of unknownKeys) {
    log(`${plugin.name}: network "${config.name}": ${describeUnknownKey(unknownKey)}`);
  }
}

export function parseCall({ name }: AnyPlugin, call: PluginCallText, { log }: HostContext): PluginRequest {
  const { env, stdin, snapshotTime, findCallerPid } = call;
  const { command, ...parameters } = parseEnvironment({ ...env, CNI_COMMAND: call.command });
  return {
    ...parameters,
    command: command as PluginRequest["command"],
    config: parsePluginConfig(stdin, command, { warn: (problem) => log(`${name}: ${problem}`) }),
    env,
    ...snapshotTime !== undefined && { snapshotTime },
    ...findCallerPid !== undefined && { findCallerPid },
  };
}

/** The specification's error object, in the request's version if it has one. */
export function formatErrorObject(error: unknown, stdin: string): string {
  return stringifyJson(CniError.from(error).toJSON(requestedVersion(stdin) ?? LATEST), 4);
}
