/**
 * Calls a plugin in this process. Every other helper goes through these functions: nothing else in the tests makes a
 * {@linkcode HostContext}, a {@linkcode RuntimeContext} or a {@linkcode PluginCallText}.
 *
 * @module
 */
import { createNetns, type Netns, openNetns } from "../ffi/netns/netns.ts";
import type { AnyPlugin, HostContext } from "../plugins/lib/protocol/context.ts";
import { callProgram, type ProgramCall } from "../plugins/lib/protocol/exec.ts";
import { handle } from "../plugins/lib/protocol/handle.ts";
import { NotRunError, type ProgramOutput } from "../plugins/lib/protocol/response.ts";
import { type PluginCallText, serve } from "../plugins/lib/protocol/serve.ts";
import { inheritedEnvironment } from "../runtime/call_plugin.ts";
import type { RuntimeContext } from "../runtime/context.ts";
import { parseEnvironment } from "../spec/env.ts";
import { CniError, Code } from "../spec/error.ts";
import { parsePluginConfig } from "../spec/plugin_config.ts";

/** Answers as the program of a plugin does. */
export type AnswerAsProgram = (type: string, call: ProgramCall) => ProgramOutput;

/** Parts of the host that a plugin finds. */
export interface HostContextParts {
  /** The namespace that plugins run in. */
  readonly host: Netns;
  /** Finds the plugins that others delegate to; there are none unless told. */
  readonly findPlugin?: (type: string) => AnyPlugin | undefined;
  /** Answers for all other types, as programs in a plugin directory do. */
  readonly programs?: AnswerAsProgram;
  /** Names for which there is neither. */
  readonly missing?: readonly string[];
  /** Opens the namespaces of containers; the real ones unless told. */
  readonly openNetns?: HostContext["openNetns"];
  /** Lists what caches have; without this, there are none. */
  readonly rememberedAdds?: HostContext["rememberedAdds"];
  /** Takes the lines that plugins log, `bridge: …`. */
  readonly log?: string[];
}

/** Makes what plugins are served in. */
export function newHostContext(parts: HostContextParts): HostContext {
  const { host, findPlugin = () => undefined, programs, missing = [], log = [] } = parts;
  const context: HostContext = {
    host,
    openNetns: parts.openNetns ?? openNetns,
    locate(type) {
      const plugin = findPlugin(type);
      if (plugin) return { plugin };
      if (programs && !missing.includes(type)) return { program: `/programs/${type}`, shadowsBuiltin: false };
      throw new NotRunError(Code.InvalidConfig, `Cannot run plugin "${type}": no such plugin is built in`);
    },
    isIpam: () => true,
    invoke: (location, request) =>
      "plugin" in location ? handle(location.plugin, request, context) : callProgram(
        location,
        request,
        (path, call) =>
          programs!(path.slice("/programs/".length), { ...call, env: { CNI_COMMAND: call.command, ...call.env } }),
      ),
    ...parts.rememberedAdds && { rememberedAdds: parts.rememberedAdds },
    log: (message) => void log.push(message),
  };
  return context;
}

/** Parts of a runtime's context. */
export interface RuntimeContextParts extends Partial<Omit<HostContextParts, "log">> {
  readonly cacheDirectory: string;
  readonly pluginDirectories?: readonly string[];
  readonly env?: RuntimeContext["env"];
  readonly rollback?: boolean;
  /** Takes the lines that the runtime logs, and those of plugins. */
  readonly log?: string[];
}

/** Makes what a runtime works with. Without a host, nothing of the kernel is looked at: any path is an empty namespace. */
export function newRuntimeContext(parts: RuntimeContextParts): RuntimeContext {
  const { cacheDirectory, pluginDirectories = [], env = {}, rollback, log = [] } = parts;
  const standIn = parts.host ? {} : { host: { identity: "host" } as Netns, openNetns: openStandIn };
  return {
    hostContext: newHostContext({ ...standIn, ...parts, log } as HostContextParts),
    pluginDirectories,
    cacheDirectory,
    env: inheritedEnvironment({ ...parts.host && systemBus(), ...env }),
    ...rollback !== undefined && { rollback },
    cachedLists: new Map(),
    restoreConfigs: new Map(),
    log: (message) => void log.push(message),
  };
}

/** An empty namespace that stands for the one at any path; it has no cookie, by which one could tell it from another. */
function openStandIn(path: string): Netns {
  return Object.create(createNetns(), { path: { value: path }, cookie: { value: undefined } });
}

/** Keeps plugins away from the system bus, and so from a firewalld of the machine; a test may put a bus of its own in its place. */
const systemBus = () => ({
  DBUS_SYSTEM_BUS_ADDRESS: process.env.DBUS_SYSTEM_BUS_ADDRESS ?? "unix:path=/nonexistent/bus",
});

/** The parameters of a request. */
export interface RequestParameters {
  /** The value of CNI_CONTAINERID, `c1` unless told. */
  readonly containerId?: string;
  /** The value of CNI_IFNAME, `eth0` unless told. */
  readonly ifname?: string;
  /** CNI_NETNS; none for `null`, and unless told. */
  readonly netns?: Netns | string | null;
  /** Other variables, which win over the above. */
  readonly env?: Readonly<Record<string, string>>;
  /** Of GC: when its list was made, in nanoseconds since 1970; now unless told. */
  readonly snapshotTime?: bigint;
}

/**
 * Makes a request of version 1.1.0 to the plugin `type` in the network `net`.
 *
 * @param config further keys, which win; or the whole text
 */
export function newRequest(
  type: string,
  command: string,
  config: object | string,
  { containerId = "c1", ifname = "eth0", netns = null, env = {}, snapshotTime }: RequestParameters = {},
): PluginCallText {
  return {
    command,
    env: {
      CNI_CONTAINERID: containerId,
      CNI_IFNAME: ifname,
      CNI_NETNS: netns === null ? "" : typeof netns === "string" ? netns : netns.path,
      CNI_PATH: "",
      ...systemBus(),
      ...env,
    },
    stdin: typeof config === "string" ? config : requestText(type, config),
    ...snapshotTime !== undefined && { snapshotTime },
  };
}

/** The configuration of version 1.1.0 for the plugin `type` in the network `net`, as it stands on stdin. */
export function requestText(type: string, config: object): string {
  return JSON.stringify({ cniVersion: "1.1.0", name: "net", type, ...config });
}

/** Has a plugin answer a request. Gives what a program would have left: its exit status, and its text on stdout. */
export function respond(plugin: AnyPlugin, request: PluginCallText, context: HostContext): ProgramOutput {
  return serve(plugin, request, context);
}

/** Has a plugin answer a request. Gives the document it printed, `undefined` for none. @throws {CniError} its error */
export function invokePlugin(plugin: AnyPlugin, request: PluginCallText, context: HostContext): unknown {
  const { exitCode, stdout } = respond(plugin, request, context);
  const document = stdout === "" ? undefined : JSON.parse(stdout);
  if (exitCode === 0) return document;
  const { code, msg, details } = document;
  throw new CniError(code, msg, details ? { details } : {});
}

/**
 * Has a plugin put back the rules that are missing.
 *
 * @param request that of an ADD, with the attachment's result as `prevResult`
 * @returns what was missing, in words
 */
export function restorePlugin(
  plugin: AnyPlugin,
  { env, stdin }: PluginCallText,
  context: HostContext,
): readonly string[] {
  const { command: _, ...parameters } = parseEnvironment({ ...env, CNI_COMMAND: "ADD" });
  const request = { ...parameters, command: "RESTORE" as const, config: parsePluginConfig(stdin, "ADD"), env };
  return handle(plugin, request, context).restored!;
}

/** The error that a call must throw, as a plugin answers with it. @throws {Error} if the call succeeds */
export function errorOfCall(call: () => unknown): CniError {
  try {
    call();
  } catch (error) {
    return CniError.from(error);
  }
  throw new Error("Expected an error, and there was none");
}
