/**
 * From a request to a response: the one way in which every plugin is called, by a runtime from outside and by `cni run` from inside.
 *
 * @see SPEC.md §2 Execution Protocol
 * @module
 */
import { type Netns, NetnsError } from "../../../ffi/netns.ts";
import { stopReportingSignals } from "../../../ffi/sys/signals.ts";
import { nowCeil } from "../../../ffi/sys/mtime.ts";
import { parseLenient, parsePluginConfig, type PluginConfig } from "../../../spec/plugin_config.ts";
import { type Environment, parseArgs, parseEnvironment, parsePairs } from "../../../spec/env.ts";
import { CniError, Code, ConfigError } from "../../../spec/error.ts";
import { stringifyJson } from "../../../spec/jsonc.ts";
import { stringifyResult } from "../../../spec/result.ts";
import { excerpt } from "../../../spec/schema.ts";
import { type CniCommand, LATEST } from "../../../spec/version.ts";
import { throwIfSignalled } from "./signal.ts";
import { NotRunError } from "./response.ts";
import { type Invoker, type IpamDelegate, ipamDelegate, type PluginRequest, type PluginResponse } from "./delegate.ts";
import { requestedVersion, versionResponse } from "./version.ts";
import type { AddCall, AttachmentCall, DelCall, Plugin, PluginCall } from "./plugin.ts";

/** A plugin of any configuration. */
// deno-lint-ignore no-explicit-any -- a registry holds plugins of every configuration
export type AnyPlugin = Plugin<any>;

/** What a plugin is served in. */
export interface HostContext {
  /** The namespace that plugins run in. */
  readonly host: Netns;
  /** Opens the namespace of a container, the path being CNI_NETNS. @throws {NetnsError} */
  openNetns(path: string): Netns;
  /** Finds the plugins that others delegate to, for a list of directories with programs. */
  invoker(directories: readonly string[]): Invoker;
  /** Takes the answer to an ADD before it becomes final: what was done is undone if nobody can be told of it. */
  deliver?(answer: string): void;
  /** Takes what plugins say, each behind its name: `bridge: …`. The command line writes it to stderr. */
  log(message: string): void;
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
export function serve(plugin: AnyPlugin, request: PluginRequest, hostContext: HostContext): PluginResponse {
  const context = { ...hostContext, log: (message: string) => hostContext.log(`${plugin.name}: ${message}`) };
  try {
    if (request.command === "VERSION") return { exitCode: 0, stdout: versionResponse(request.stdin) };
    const environment = parseEnvironment({ ...request.env, CNI_COMMAND: request.command });
    const config = parseRequestOnce(request, environment.command, context);
    const answer = withNetworkInErrors(config, () => dispatch(plugin, request, environment, config, context));
    return { exitCode: 0, stdout: "", ...answer };
  } catch (error) {
    return { exitCode: 1, stdout: formatErrorObject(error, request.stdin), error };
  }
}

/**
 * Has a plugin put back the rules of an attachment that are missing. Unlike {@linkcode serve} it is no command of the specification, so
 * that nobody outside this process can ask for it; the request is that of an ADD, with the attachment's result as `prevResult`.
 *
 * @returns what was missing, in words; nothing for a plugin that has no rules
 * @throws {CniError} and every other error as its cause made it
 */
export function restoreRules(plugin: AnyPlugin, request: PluginRequest, hostContext: HostContext): readonly string[] {
  if (!plugin.restore) return [];
  const context = { ...hostContext, log: (message: string) => hostContext.log(`${plugin.name}: ${message}`) };
  const env = parseEnvironment({ ...request.env, CNI_COMMAND: "ADD" });
  const config = parsePluginConfig(request.stdin, "ADD");
  return withNetworkInErrors(config, () => {
    const call = buildAttachmentCall(plugin, env, buildCall(plugin, request, env, config, context));
    using netns = plugin.ignoresNetns ? undefined : openContainerNetns(env, context);
    return plugin.restore!({ ...call, netns: netns! });
  });
}

/** The error object of the specification, in the version of the request as far as that can be told. */
export function formatErrorObject(error: unknown, stdin: string): string {
  return stringifyJson(CniError.from(error).toJSON(requestedVersion(stdin) ?? LATEST), 4);
}

/** What an ADD answers; the other commands have nothing to say. */
type CommandResponse = Pick<PluginResponse, "stdout" | "result"> | undefined;

function dispatch(
  plugin: AnyPlugin,
  request: PluginRequest,
  env: Environment,
  config: PluginConfig,
  context: HostContext,
): CommandResponse {
  using undo = new DisposableStack();
  // Its IPAM plugin is called with the same request, and comes to that when this one is through with its own.
  const { snapshotTime = nowCeil() } = request;
  const call = buildCall(
    plugin,
    { ...request, snapshotTime },
    env,
    config,
    context,
    env.command === "ADD" ? undo : undefined,
  );
  switch (env.command) {
    case "GC": {
      const validAttachments = config.validAttachments;
      if (!validAttachments) {
        call.log("Nothing is collected: the request does not say which attachments live (cni.dev/valid-attachments)");
      } else if (plugin.gc) plugin.gc({ ...call, validAttachments, snapshotTime });
      else call.ipam?.gc();
      return undefined;
    }
    case "STATUS":
      plugin.status ? plugin.status(call) : call.ipam?.status();
      return undefined;
    default:
      return runAttachmentCommand(plugin, env, buildAttachmentCall(plugin, env, call), context, undo);
  }
}

/** What every command gets. */
export function buildCall(
  plugin: AnyPlugin,
  request: PluginRequest,
  env: Environment,
  config: PluginConfig,
  context: HostContext,
  undo?: DisposableStack,
): PluginCall<unknown> {
  const { host, log } = context;
  const ipam = findIpamDelegate(request, env, config, context, undo);
  const pluginKeys = parsePluginKeys(plugin, config, env, log);
  return { config: pluginKeys, pluginConfig: config, configText: request.stdin, host, ipam, log };
}

/** A plugin that gives no addresses is refused: that of a bridge could be the bridge itself, without end. */
function findIpamDelegate(
  request: PluginRequest,
  { path, command }: Environment,
  { ipamType: type, cniVersion }: PluginConfig,
  { log, invoker }: HostContext,
  undo?: DisposableStack,
): IpamDelegate | undefined {
  if (type === undefined) return undefined;
  const ipamInvoker = invoker(path);
  if (ipamInvoker.isIpam?.(type) ?? true) return ipamDelegate(ipamInvoker, type, request, cniVersion, undo);
  const error = new ConfigError("ipam.type", 'an IPAM plugin such as "host-local"', excerpt(type));
  if (command !== "DEL" && command !== "GC") throw error;
  // It was refused for ADD, so that there is nothing to give back.
  log(`${error.message}; going on without it`);
  return undefined;
}

/** Runs a plugin; a configuration that it cannot use is reported with the network it is of. */
function withNetworkInErrors<T>({ name }: PluginConfig, run: () => T): T {
  try {
    return run();
  } catch (error) {
    throw error instanceof ConfigError ? error.withLocation({ network: name }) : error;
  }
}

/** What the commands on one attachment get. */
export function buildAttachmentCall(
  plugin: AnyPlugin,
  env: Environment,
  call: PluginCall<unknown>,
): AttachmentCall<unknown> {
  const { containerId, ifname } = env;
  return {
    ...call,
    containerId,
    ifname,
    sandbox: env.netns ?? "",
    args: parseDeclaredArgs(plugin, env),
    owner: { network: call.pluginConfig.name, containerId, ifname },
    prevResult: call.pluginConfig.prevResult,
  };
}

/** The plugin's own keys; for DEL, as far as they can be used. */
function parsePluginKeys(
  plugin: AnyPlugin,
  { raw }: PluginConfig,
  { command }: Environment,
  log: HostContext["log"],
): unknown {
  return command === "DEL" ? parseLenient(plugin.config, raw, log).value : plugin.config.parse(raw);
}

/** What cannot be understood must not keep a container from being removed. */
function parseDeclaredArgs(plugin: AnyPlugin, env: Environment): Readonly<Record<string, string>> {
  if (!plugin.args) return {};
  return env.command === "DEL"
    ? Object.fromEntries(parsePairs(env.args))
    : parseArgs(env.args, plugin.args) as Record<string, string>;
}

function runAttachmentCommand(
  plugin: AnyPlugin,
  env: Environment,
  call: AttachmentCall<unknown>,
  context: HostContext,
  undo: DisposableStack,
): CommandResponse {
  using netns = plugin.ignoresNetns
    ? undefined
    : env.command === "DEL"
    ? findContainerNetns(env, context)
    : openContainerNetns(env, context);
  // Whatever is undone needs the namespace, which is closed behind it.
  using _rollback = undo;
  if (env.command === "DEL") {
    plugin.del({ ...call, netns } satisfies DelCall<unknown>);
    return undefined;
  }
  const callWithNetns = { ...call, netns: netns! };
  if (env.command === "CHECK") {
    plugin.check(callWithNetns);
    return undefined;
  }
  try {
    const result = plugin.add({ ...callWithNetns, undo } satisfies AddCall<unknown>);
    // A version that cannot say the result makes the whole ADD fail, so it is printed before what was done becomes final.
    const stdout = stringifyResult(result, call.pluginConfig.cniVersion);
    throwIfSignalled();
    context.deliver?.(stdout);
    undo.move();
    return { stdout, result };
  } catch (error) {
    // Before the undoing begins.
    stopReportingSignals();
    throw error;
  }
}

/** The request that was read last: an IPAM plugin is given that of the plugin that calls it. */
let lastRequest: { readonly text: string; readonly verb: CniCommand; readonly config: PluginConfig } | undefined;

/** The request as the plugins get it. @throws {SyntaxError} @throws {ConfigError} */
export function parseRequestOnce(
  { stdin: text, prevResult }: PluginRequest,
  command: CniCommand,
  { log }: Pick<HostContext, "log">,
): PluginConfig {
  if (lastRequest?.text !== text || lastRequest.verb !== command) {
    lastRequest = { text, verb: command, config: parsePluginConfig(text, command, prevResult, log) };
  }
  return lastRequest.config;
}

/** The container's namespace. @throws {CniError} code 8 if it is none, or the plugin's own: a recycled path once changed hosts */
function openContainerNetns(env: Environment, context: HostContext): Netns {
  try {
    const netns = openUnlessHostNetns(env, context);
    if (netns) return netns;
  } catch (error) {
    throw error instanceof NetnsError ? new CniError(Code.InvalidNetns, error.message, { cause: error }) : error;
  }
  throw new CniError(Code.InvalidNetns, "plugin's netns and netns from CNI_NETNS should not be the same", {
    details: `CNI_NETNS is "${env.netns}"; set CNI_NETNS_OVERRIDE=1 if this is meant`,
  });
}

/** `undefined` if it is the plugin's own, unless that is wanted. @throws {NetnsError} */
function openUnlessHostNetns(env: Environment, { host, openNetns }: HostContext): Netns | undefined {
  const netns = openNetns(env.netns!);
  if (env.netnsOverride || netns.identity !== host.identity) return netns;
  netns[Symbol.dispose]();
  return undefined;
}

/**
 * The container's namespace, unless it is gone. What is left of a removed mount is an ordinary file; and a path that was taken anew, as that of
 * a process by another one of its number, may lead to the plugin's own: nothing of the container is there, and it must not stay attached for
 * ever because of it.
 */
export function findContainerNetns(env: Environment, context: HostContext): Netns | undefined {
  if (env.netns === undefined) return undefined;
  try {
    const netns = openUnlessHostNetns(env, context);
    if (!netns) context.log(`"${env.netns}" leads to the host's own namespace; going on as if it were gone`);
    return netns;
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    if (!error.absent) context.log(`${error.message}; going on as if it were gone`);
    return undefined;
  }
}

/** Plugins of this binary, called in this process. */
export interface BuiltinInvoker extends Required<Pick<Invoker, "invoke" | "restoreRules">> {
  has(type: string): boolean;
}

/** Calls plugins of this binary in this process. */
export function builtinInvoker(find: (type: string) => AnyPlugin | undefined, context: HostContext): BuiltinInvoker {
  return {
    has: (type) => find(type) !== undefined,
    restoreRules(type, request) {
      const plugin = find(type);
      return plugin && restoreRules(plugin, request, context);
    },
    invoke(type, request) {
      const plugin = find(type);
      if (!plugin) throw new NotRunError(Code.InvalidConfig, `Cannot run plugin "${type}": no such plugin is built in`);
      return serve(plugin, request, context);
    },
  };
}
