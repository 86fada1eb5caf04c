/**
 * From a request to a response: the one way in which every plugin is called, by a runtime from outside and by `cni run` from inside.
 *
 * @see SPEC.md §2 Execution Protocol
 * @module
 */
import { type Netns, NetnsError } from "../../../ffi/netns.ts";
import { stopListening } from "../../../ffi/sys/signals.ts";
import { momentAfterNow } from "../../../ffi/sys/mtime.ts";
import { parsePluginConfig, parseUsable, type PluginConfig } from "../../../spec/plugin_config.ts";
import { type Environment, parseArgs, parseEnvironment, parsePairs } from "../../../spec/env.ts";
import { CniError, Code, ConfigError } from "../../../spec/error.ts";
import { printJson } from "../../../spec/jsonc.ts";
import { printResult } from "../../../spec/result.ts";
import { excerpt } from "../../../spec/schema.ts";
import { LATEST, type Verb } from "../../../spec/version.ts";
import { stopIfAsked } from "./signal.ts";
import { NotRunError } from "./response.ts";
import { type Delegate, delegate, type Invoker, type Request, type Response } from "./delegate.ts";
import { answerVersion, findVersion } from "./version.ts";
import type { AddCall, AttachmentCall, Call, DelCall, Plugin } from "./plugin.ts";

/** A plugin of any configuration. */
// deno-lint-ignore no-explicit-any -- a registry holds plugins of every configuration
export type AnyPlugin = Plugin<any>;

/** What a plugin is served in. */
export interface Surroundings {
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
 * import { plugin, schema, serve, surroundings } from "./mod.ts";
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
 * const around = surroundings({ log: (message) => console.log(message) });
 *
 * const answer = serve(greet, { command: "ADD", env, stdin }, around); // greet: hi
 * console.log(answer.exitCode); // 0
 * const { exitCode, stdout } = serve(greet, { command: "ADD", env: {}, stdin }, around);
 * console.log(exitCode, JSON.parse(stdout).code); // 1 4
 * ```
 */
export function serve(plugin: AnyPlugin, request: Request, around: Surroundings): Response {
  const surroundings = { ...around, log: (message: string) => around.log(`${plugin.name}: ${message}`) };
  try {
    if (request.command === "VERSION") return { exitCode: 0, stdout: answerVersion(request.stdin) };
    const environment = parseEnvironment({ ...request.env, CNI_COMMAND: request.command });
    const config = readRequest(request, environment.verb, surroundings);
    const answer = forNetwork(config, () => dispatch(plugin, request, environment, config, surroundings));
    return { exitCode: 0, stdout: "", ...answer };
  } catch (error) {
    return { exitCode: 1, stdout: printError(error, request.stdin), error };
  }
}

/**
 * Has a plugin put back the rules of an attachment that are missing. Unlike {@linkcode serve} it is no command of the specification, so
 * that nobody outside this process can ask for it; the request is that of an ADD, with the attachment's result as `prevResult`.
 *
 * @returns what was missing, in words; nothing for a plugin that has no rules
 * @throws {CniError} and every other error as its cause made it
 */
export function restore(plugin: AnyPlugin, request: Request, around: Surroundings): readonly string[] {
  if (!plugin.restore) return [];
  const surroundings = { ...around, log: (message: string) => around.log(`${plugin.name}: ${message}`) };
  const env = parseEnvironment({ ...request.env, CNI_COMMAND: "ADD" });
  const config = parsePluginConfig(request.stdin, "ADD");
  return forNetwork(config, () => {
    const call = attachmentCall(plugin, env, callFor(plugin, request, env, config, surroundings));
    using netns = plugin.ignoresNetns ? undefined : openSandbox(env, surroundings);
    return plugin.restore!({ ...call, netns: netns! });
  });
}

/** The error object of the specification, in the version of the request as far as that can be told. */
export function printError(error: unknown, stdin: string): string {
  return printJson(CniError.from(error).toJSON(findVersion(stdin) ?? LATEST), 4);
}

/** What an ADD answers; the other commands have nothing to say. */
type Answer = Pick<Response, "stdout" | "result"> | undefined;

function dispatch(
  plugin: AnyPlugin,
  request: Request,
  env: Environment,
  config: PluginConfig,
  surroundings: Surroundings,
): Answer {
  using undo = new DisposableStack();
  // Its IPAM plugin is called with the same request, and comes to that when this one is through with its own.
  const { madeAt = momentAfterNow() } = request;
  const call = callFor(
    plugin,
    { ...request, madeAt },
    env,
    config,
    surroundings,
    env.verb === "ADD" ? undo : undefined,
  );
  switch (env.verb) {
    case "GC": {
      const valid = config.validAttachments;
      if (!valid) {
        call.log("Nothing is collected: the request does not say which attachments live (cni.dev/valid-attachments)");
      } else if (plugin.gc) plugin.gc({ ...call, valid, madeAt });
      else call.ipam?.gc();
      return undefined;
    }
    case "STATUS":
      plugin.status ? plugin.status(call) : call.ipam?.status();
      return undefined;
    default:
      return attachmentCommand(plugin, env, attachmentCall(plugin, env, call), surroundings, undo);
  }
}

/** What every command gets. */
export function callFor(
  plugin: AnyPlugin,
  request: Request,
  env: Environment,
  config: PluginConfig,
  surroundings: Surroundings,
  undo?: DisposableStack,
): Call<unknown> {
  const { host, log } = surroundings;
  const ipam = findIpam(request, env, config, surroundings, undo);
  const own = readConfig(plugin, config, env, log);
  return { config: own, request: config, text: request.stdin, host, ipam, log };
}

/** A plugin that gives no addresses is refused: that of a bridge could be the bridge itself, without end. */
function findIpam(
  request: Request,
  { path, verb }: Environment,
  { ipamType: type, cniVersion }: PluginConfig,
  { log, invoker }: Surroundings,
  undo?: DisposableStack,
): Delegate | undefined {
  if (type === undefined) return undefined;
  const found = invoker(path);
  if (found.givesAddresses?.(type) ?? true) return delegate(found, type, request, cniVersion, undo);
  const error = new ConfigError("ipam.type", 'an IPAM plugin such as "host-local"', excerpt(type));
  if (verb !== "DEL" && verb !== "GC") throw error;
  // It was refused for ADD, so that there is nothing to give back.
  log(`${error.message}; going on without it`);
  return undefined;
}

/** Runs a plugin; a configuration that it cannot use is reported with the network it is of. */
function forNetwork<T>({ name }: PluginConfig, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw error instanceof ConfigError ? error.at({ network: name }) : error;
  }
}

/** What the commands on one attachment get. */
export function attachmentCall(plugin: AnyPlugin, env: Environment, call: Call<unknown>): AttachmentCall<unknown> {
  const { containerId, ifname } = env;
  return {
    ...call,
    containerId,
    ifname,
    sandbox: env.netns ?? "",
    args: readArgs(plugin, env),
    owner: { network: call.request.name, containerId, ifname },
    prevResult: call.request.prevResult,
  };
}

/** The plugin's own keys; for DEL, as far as they can be used. */
function readConfig(
  plugin: AnyPlugin,
  { raw }: PluginConfig,
  { verb }: Environment,
  log: Surroundings["log"],
): unknown {
  return verb === "DEL" ? parseUsable(plugin.config, raw, log).value : plugin.config.parse(raw);
}

/** What cannot be understood must not keep a container from being removed. */
function readArgs(plugin: AnyPlugin, env: Environment): Readonly<Record<string, string>> {
  if (!plugin.args) return {};
  return env.verb === "DEL"
    ? Object.fromEntries(parsePairs(env.args))
    : parseArgs(env.args, plugin.args) as Record<string, string>;
}

function attachmentCommand(
  plugin: AnyPlugin,
  env: Environment,
  call: AttachmentCall<unknown>,
  surroundings: Surroundings,
  undo: DisposableStack,
): Answer {
  using netns = plugin.ignoresNetns
    ? undefined
    : env.verb === "DEL"
    ? findNetns(env, surroundings)
    : openSandbox(env, surroundings);
  // Whatever is undone needs the namespace, which is closed behind it.
  using _rollback = undo;
  if (env.verb === "DEL") {
    plugin.del({ ...call, netns } satisfies DelCall<unknown>);
    return undefined;
  }
  const inside = { ...call, netns: netns! };
  if (env.verb === "CHECK") {
    plugin.check(inside);
    return undefined;
  }
  try {
    const result = plugin.add({ ...inside, undo } satisfies AddCall<unknown>);
    // A version that cannot say the result makes the whole ADD fail, so it is printed before what was done becomes final.
    const stdout = printResult(result, call.request.cniVersion);
    stopIfAsked();
    surroundings.deliver?.(stdout);
    undo.move();
    return { stdout, result };
  } catch (error) {
    // Before the undoing begins.
    stopListening();
    throw error;
  }
}

/** The request that was read last: an IPAM plugin is given that of the plugin that calls it. */
let last: { readonly text: string; readonly verb: Verb; readonly config: PluginConfig } | undefined;

/** The request as the plugins get it. @throws {SyntaxError} @throws {ConfigError} */
export function readRequest(
  { stdin: text, prevResult }: Request,
  verb: Verb,
  { log }: Pick<Surroundings, "log">,
): PluginConfig {
  if (last?.text !== text || last.verb !== verb) {
    last = { text, verb, config: parsePluginConfig(text, verb, prevResult, log) };
  }
  return last.config;
}

/** The container's namespace. @throws {CniError} code 8 if it is none, or the plugin's own: a recycled path once changed hosts */
function openSandbox(env: Environment, surroundings: Surroundings): Netns {
  try {
    const netns = openForeign(env, surroundings);
    if (netns) return netns;
  } catch (error) {
    throw error instanceof NetnsError ? new CniError(Code.InvalidNetns, error.message, { cause: error }) : error;
  }
  throw new CniError(Code.InvalidNetns, "plugin's netns and netns from CNI_NETNS should not be the same", {
    details: `CNI_NETNS is "${env.netns}"; set CNI_NETNS_OVERRIDE=1 if this is meant`,
  });
}

/** `undefined` if it is the plugin's own, unless that is wanted. @throws {NetnsError} */
function openForeign(env: Environment, { host, openNetns }: Surroundings): Netns | undefined {
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
export function findNetns(env: Environment, surroundings: Surroundings): Netns | undefined {
  if (env.netns === undefined) return undefined;
  try {
    const netns = openForeign(env, surroundings);
    if (!netns) surroundings.log(`"${env.netns}" leads to the host's own namespace; going on as if it were gone`);
    return netns;
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    if (!error.absent) surroundings.log(`${error.message}; going on as if it were gone`);
    return undefined;
  }
}

/** Plugins of this binary, called in this process. */
export interface Embedded extends Required<Pick<Invoker, "invoke" | "restore">> {
  has(type: string): boolean;
}

/** Calls plugins of this binary in this process. */
export function embedded(find: (type: string) => AnyPlugin | undefined, surroundings: Surroundings): Embedded {
  return {
    has: (type) => find(type) !== undefined,
    restore(type, request) {
      const plugin = find(type);
      return plugin && restore(plugin, request, surroundings);
    },
    invoke(type, request) {
      const plugin = find(type);
      if (!plugin) throw new NotRunError(Code.InvalidConfig, `Cannot run plugin "${type}": no such plugin is built in`);
      return serve(plugin, request, surroundings);
    },
  };
}
