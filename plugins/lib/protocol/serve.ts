/**
 * A plugin's side of the process boundary: parameters in the environment and a configuration on stdin become a request, and what comes of
 * it a document and an exit status.
 *
 * @see SPEC.md §2 Execution Protocol
 * @module
 */
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

/** A call as it comes from another process. */
export interface PluginCallText extends ProgramCall, Pick<PluginRequest, "snapshotTime" | "findCallerPid"> {
  /** Takes the answer to an ADD before it becomes final: what was done is undone if nobody can be told of it. */
  deliver?(stdout: string): void;
  /** Finds the keys that an IPAM plugin reads. With it, an ADD that succeeded tells `log` which keys of its configuration nobody reads. */
  readonly findConfigSchema?: (type: string) => Schema<unknown> | undefined;
}

/**
 * Carries out one request. Never throws: whatever goes wrong is the error object of the specification.
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

/** An engine hands it on to its own log, where it is read when a container does not do what was wanted. */
function warnOfUnknownKeys(
  plugin: AnyPlugin,
  { config, path }: PluginRequest,
  { findConfigSchema }: PluginCallText,
  { locate, log }: HostContext,
): void {
  if (!findConfigSchema) return;
  // Where a plugin of others leaves addresses to this one, all but the IPAM part is for that plugin.
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

/** The request that a text holds, for `plugin`. @throws {CniError} @throws {SyntaxError} @throws {ConfigError} */
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

/** The error object of the specification, in the version of the request as far as that can be told. */
export function formatErrorObject(error: unknown, stdin: string): string {
  return stringifyJson(CniError.from(error).toJSON(requestedVersion(stdin) ?? LATEST), 4);
}
