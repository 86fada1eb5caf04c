/**
 * Calls a plugin in this process. Every other helper goes through these functions: nothing else in the tests makes a
 * {@linkcode HostContext} or a {@linkcode PluginRequest}, or reads a {@linkcode PluginResponse}.
 *
 * @module
 */
import { type Netns, openNetns } from "../ffi/netns.ts";
import type { Invoker, PluginRequest, PluginResponse } from "../plugins/lib/protocol/delegate.ts";
import { type AnyPlugin, type HostContext, restoreRules, serve } from "../plugins/lib/protocol/serve.ts";
import { builtinBatchInvoker } from "../plugins/lib/protocol/serve_batch.ts";
import { CniError } from "../spec/error.ts";

/** What plugins are to find around them. */
export interface HostContextParts {
  /** The namespace that plugins run in. */
  readonly host: Netns;
  /** Finds the plugins that others delegate to; there are none unless told. */
  readonly findPlugin?: (type: string) => AnyPlugin | undefined;
  /** Answers for all other types, as programs in a plugin directory do. */
  readonly programs?: Invoker["invoke"];
  /** Opens the namespaces of containers; the real ones unless told. */
  readonly openNetns?: HostContext["openNetns"];
  /** Takes the lines that plugins log, `bridge: …`. */
  readonly log?: string[];
}

/** Makes what plugins are served in. */
export function newHostContext(parts: HostContextParts): HostContext {
  const { host, findPlugin = () => undefined, programs, log = [] } = parts;
  const context: HostContext = {
    host,
    openNetns: parts.openNetns ?? openNetns,
    invoker: () => invoker,
    log: (message) => void log.push(message),
  };
  const builtIn = builtinBatchInvoker(findPlugin, context);
  const invoker: Invoker = {
    ...builtIn,
    invoke: (type, request) => programs && !builtIn.has(type) ? programs(type, request) : builtIn.invoke(type, request),
  };
  return context;
}

/** The parameters of a request. */
export interface RequestParameters {
  /** CNI_CONTAINERID, `c1` unless told. */
  readonly containerId?: string;
  /** CNI_IFNAME, `eth0` unless told. */
  readonly ifname?: string;
  /** CNI_NETNS; none for `null`, and unless told. */
  readonly netns?: Netns | string | null;
  /** Other variables; they win. */
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
): PluginRequest {
  return {
    command,
    env: {
      CNI_CONTAINERID: containerId,
      CNI_IFNAME: ifname,
      CNI_NETNS: netns === null ? "" : typeof netns === "string" ? netns : netns.path,
      CNI_PATH: "",
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
export function respond(plugin: AnyPlugin, request: PluginRequest, context: HostContext): PluginResponse {
  return serve(plugin, request, context);
}

/** Has a plugin answer a request. Gives the document it printed, `undefined` for none. @throws {CniError} its error */
export function invokePlugin(plugin: AnyPlugin, request: PluginRequest, context: HostContext): unknown {
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
export function restorePlugin(plugin: AnyPlugin, request: PluginRequest, context: HostContext): readonly string[] {
  return restoreRules(plugin, request, context);
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

/** Keeps plugins of this process away from the system bus, and so from a firewalld of the machine that runs the tests. */
export function withoutSystemBus(): void {
  process.env.DBUS_SYSTEM_BUS_ADDRESS = "unix:path=/nonexistent/bus";
}
