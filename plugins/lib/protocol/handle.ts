/** Carries out requests of engines, the runtime and delegating plugins (SPEC §2). @module */
import { nowCeil } from "../../../ffi/sys/mtime.ts";
import { observer, type PluginActivity } from "../../../ffi/sys/observer.ts";
import { stopReportingSignals } from "../../../ffi/sys/signals.ts";
import { parseArgs, parsePairs, requireParameters } from "../../../spec/env.ts";
import { withLocation } from "../../../spec/error.ts";
import { parseUsableKeys } from "../../../spec/plugin_config.ts";
import { requireExpressible, type Result } from "../../../spec/result.ts";
import { findContainerNetns, openContainerNetns } from "./container_netns.ts";
import type { AnyPlugin, HostContext } from "./context.ts";
import { batchIpamDelegate, findIpam, ipamDelegate, type IpamPlugin } from "./delegate.ts";
import type { AddCall, AttachmentCall, DelBatchCall, DelCall, PluginCall } from "./plugin.ts";
import type { DelBatchRequest, PluginRequest, PluginResponse } from "./request.ts";
import { readOnce } from "./shared_reads.ts";
import { throwIfSignalled } from "./signal.ts";

/** Takes the result of an ADD. If it throws, the ADD is undone. */
type Deliver = (result: Result) => void;

/** A failed ADD is undone before this throws. @throws {Error} the original one */
export function handle(
  plugin: AnyPlugin,
  request: PluginRequest | DelBatchRequest,
  context: HostContext,
  deliver?: Deliver,
): PluginResponse {
  const run = () => handleUnobserved(plugin, request, context, deliver);
  return observer ? observer(describeCall(plugin, request), run) : run();
}

function describeCall({ name: plugin }: AnyPlugin, request: PluginRequest | DelBatchRequest): PluginActivity {
  const [first] = request.command === "DEL_BATCH" ? request.requests : [request];
  const { containerId = "", ifname = "", undoesAdd = false } = first ?? {};
  const network = first?.config.name ?? "";
  return { kind: "plugin", plugin, command: request.command, network, containerId, ifname, undoesAdd };
}

function handleUnobserved(
  plugin: AnyPlugin,
  request: PluginRequest | DelBatchRequest,
  context: HostContext,
  deliver?: Deliver,
): PluginResponse {
  const pluginContext = { ...context, log: (message: string) => context.log(`${plugin.name}: ${message}`) };
  if (request.command === "DEL_BATCH") return { remaining: delBatch(plugin, request.requests, pluginContext) };
  if (request.command === "RESTORE" && !plugin.restore) return { restored: [] };
  if (request.command === "DIAGNOSE" && !plugin.diagnose) return {};
  requireParameters(request);
  return withLocation({ network: request.config.name }, () => dispatch(plugin, request, pluginContext, deliver));
}

function dispatch(plugin: AnyPlugin, request: PluginRequest, context: HostContext, deliver?: Deliver): PluginResponse {
  using undo = new DisposableStack();
  // The IPAM plugin runs later, but must get the same time.
  const { snapshotTime = nowCeil(), config } = request;
  const ipam = findIpam(request, context);
  const call = buildCall(plugin, { ...request, snapshotTime }, context, ipam, undo);
  switch (request.command) {
    case "GC": {
      const { validAttachments } = config;
      if (!validAttachments) {
        call.log("Nothing is collected: the request does not say which attachments live (cni.dev/valid-attachments)");
      } else if (plugin.gc) plugin.gc({ ...call, validAttachments, snapshotTime });
      else call.ipam?.gc();
      return {};
    }
    case "STATUS":
      plugin.status ? plugin.status(call) : call.ipam?.status();
      return {};
    case "DIAGNOSE":
      return { problems: diagnose(plugin, request, call, context) };
    default:
      return runAttachmentCommand(plugin, request, buildAttachmentCall(plugin, request, call), context, undo, deliver);
  }
}

function diagnose(
  plugin: AnyPlugin,
  request: PluginRequest,
  call: PluginCall<unknown>,
  context: HostContext,
): readonly string[] {
  const { netns: path, ifname } = request;
  using netns = path === undefined ? undefined : openContainerNetns(request, context);
  return plugin.diagnose!({ ...call, ...netns && { attachment: { netns, ifname } } });
}

function buildCall(
  plugin: AnyPlugin,
  request: PluginRequest,
  context: HostContext,
  ipam: IpamPlugin | undefined,
  undo?: DisposableStack,
): PluginCall<unknown> {
  const { config, command, env, findCallerPid, undoesAdd } = request;
  const { host, log, goneReason, rememberedAdds } = context;
  return {
    // Unusable keys must not keep a container attached.
    config: command === "DEL"
      ? parseUsableKeys(plugin.config, config.raw, undoesAdd ? () => {} : log).value
      : command === "RESTORE"
      ? readOnce(host.nft, config.raw, () => plugin.config.parse(config.raw))
      : plugin.config.parse(config.raw),
    pluginConfig: config,
    env,
    findCallerPid,
    host,
    ...goneReason && { goneReason },
    ...rememberedAdds && { rememberedAdds },
    ipam: ipam && ipamDelegate(ipam, request, context, command === "ADD" ? undo : undefined),
    log,
  };
}

function buildAttachmentCall(
  plugin: AnyPlugin,
  request: PluginRequest,
  call: PluginCall<unknown>,
): AttachmentCall<unknown> {
  const { containerId, ifname, netns, config } = request;
  return {
    ...call,
    containerId,
    ifname,
    sandbox: netns ?? "",
    args: parseDeclaredArgs(plugin, request),
    owner: { network: config.name, containerId, ifname },
    prevResult: config.prevResult,
  };
}

/** Invalid CNI_ARGS must not keep a container attached. */
function parseDeclaredArgs(plugin: AnyPlugin, { command, args }: PluginRequest): Readonly<Record<string, string>> {
  if (!plugin.args) return {};
  return command === "DEL" || plugin.args === "all"
    ? Object.fromEntries(parsePairs(args))
    : parseArgs(args, plugin.args) as Record<string, string>;
}

function runAttachmentCommand(
  plugin: AnyPlugin,
  request: PluginRequest,
  call: AttachmentCall<unknown>,
  context: HostContext,
  undo: DisposableStack,
  deliver?: Deliver,
): PluginResponse {
  const { command, config } = request;
  const dispose = () => undo.dispose();
  using netns = plugin.ignoresNetns
    ? undefined
    : command === "DEL"
    ? findContainerNetns(request, context)
    : openContainerNetns(request, context);
  // Declared after `netns`, so the undo runs before the namespace is closed.
  using _rollback = { [Symbol.dispose]: () => observer ? observer({ kind: "undo" }, dispose) : dispose() };
  if (command === "DEL") {
    plugin.del({ ...call, netns } satisfies DelCall<unknown>);
    return {};
  }
  const callInNetns = { ...call, netns: netns! };
  if (command === "RESTORE") return { restored: plugin.restore!(callInNetns) };
  if (command === "CHECK") {
    plugin.check(callInNetns);
    return {};
  }
  try {
    const result = plugin.add({ ...callInNetns, undo } satisfies AddCall<unknown>);
    requireExpressible(result, config.cniVersion);
    throwIfSignalled();
    deliver?.(result);
    undo.move();
    return { result };
  } catch (error) {
    // A signal must not interrupt the undo.
    stopReportingSignals();
    throw error;
  }
}

interface PreparedCall {
  readonly call: DelBatchCall<unknown>;
  readonly request: PluginRequest;
  readonly ipam: IpamPlugin | undefined;
}

/** @returns the requests that still need a call each */
function delBatch(
  plugin: AnyPlugin,
  requests: readonly PluginRequest[],
  context: HostContext,
): readonly PluginRequest[] {
  // See releaseSteps(): each release needs its link.
  const needsLinks = requests.some(({ config }) => config.ipamType === "dhcp");
  if (!plugin.delBatch || requests.length < 2 || needsLinks) return requests;
  const remaining: PluginRequest[] = [];
  const prepared = new Map<DelBatchCall<unknown>, PreparedCall>();
  for (const request of requests) {
    const preparedCall = prepareCall(plugin, request, context);
    if (preparedCall) prepared.set(preparedCall.call, preparedCall);
    else remaining.push(request);
  }
  const [first, ...others] = prepared.keys();
  if (!first) return remaining;
  const ipam = batchIpamDelegate((call) => prepared.get(call)!, context);
  const calls = plugin.delBatch([first, ...others], ipam);
  return [...remaining, ...calls.map((call) => prepared.get(call)!.request)];
}

/** `undefined` for an invalid request: its own DEL reports why. */
function prepareCall(plugin: AnyPlugin, request: PluginRequest, context: HostContext): PreparedCall | undefined {
  try {
    requireParameters(request);
    const ipam = findIpam(request, context);
    const call: DelBatchCall<unknown> = {
      ...buildAttachmentCall(plugin, request, buildCall(plugin, request, context, ipam)),
      withNetns(call) {
        using netns = plugin.ignoresNetns ? undefined : findContainerNetns(request, context);
        return call(netns);
      },
    };
    return { call, request, ipam };
  } catch {
    return undefined;
  }
}
