/**
 * `cni run`: the runtime on the command line.
 *
 * @module
 */
import { blockSignals, stopReportingSignals } from "../../ffi/sys/signals.ts";
import { processStartTime } from "../../ffi/sys/start_time.ts";
import { throwIfSignalled } from "../../plugins/lib/protocol/signal.ts";
import type { HostContext } from "../../plugins/lib/protocol/serve.ts";
import { findPlugin, loadPlugins, pluginsMentionedIn } from "../../plugins/registry.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { parseJson, stringifyJson } from "../../spec/jsonc.ts";
import { formatResult, stringifyResult } from "../../spec/result.ts";
import type { JsonObject } from "../../spec/schema.ts";
import { LATEST } from "../../spec/version.ts";
import type { RunRequest } from "./run_arguments.ts";
import { attachContainer } from "../../runtime/attach.ts";
import { listAttachments, type NetworkAttachment } from "../../runtime/attachments.ts";
import { type CacheEntry, findEntry, listCacheEntries } from "../../runtime/cache.ts";
import { deriveRequests } from "../../runtime/derive.ts";
import { gcNetworkList } from "../../runtime/gc.ts";
import { loadNetwork } from "../../runtime/load.ts";
import { findUnknownKeys } from "../../runtime/unknown_keys.ts";
import { describeAttachment, type RuntimeConf } from "../../runtime/resolve_attachment.ts";
import { restoreAttachments } from "../../runtime/restore.ts";
import {
  type AddRuntimeConf,
  checkNetworkList,
  delNetworkList,
  getNetworkListStatus,
  type RuntimeContext,
} from "../../runtime/operations.ts";
import { printStderr, printStdout } from "../../ffi/sys/stdio.ts";
import { createHostContext } from "../../runtime/host_context.ts";
import { hasCacheFile, resolveAttachmentNames, validAttachments } from "../../runtime/valid_attachments.ts";
import { formatTable } from "../output/table.ts";

/**
 * Carries out what the command line asks for.
 *
 * @throws {CniError} and every other error as its cause made it
 */
export async function executeRun(request: RunRequest, env: RuntimeContext["env"]): Promise<void> {
  if (request.surplus.length > 0) log(`Ignoring what follows the arguments: "${request.surplus.join(" ")}"`);
  // Threads that the runtime starts, as for a long configuration, hold back what is held back by then.
  if (request.verb === "add") blockSignals();
  const addNetwork = request.verb === "add" ? loadRequested(request) : undefined;
  await loadPlugins(addNetwork && !isCached(request, addNetwork) ? pluginsMentionedIn(addNetwork.text) : undefined);
  const { timeoutMs } = request;
  const context = createHostContext(timeoutMs === undefined ? {} : { timeoutMs });
  using _host = context.host;
  const runtime: RuntimeContext = {
    invoker: context.invoker(request.pluginDirectories),
    builtInPlugins: context.invoker([]),
    pluginDirectories: request.pluginDirectories,
    cacheDirectory: request.cacheDirectory,
    env,
    log,
  };
  if (addNetwork) return runAdd(runtime, addNetwork, request, context);
  switch (request.verb) {
    case "check":
    case "del": {
      const network = networkOrCachedName(request);
      const command = request.verb === "check" ? checkNetworkList : delNetworkList;
      return command(runtime, network, runtimeConf(network, request));
    }
    case "gc":
      return runGc(runtime, request, context);
    case "status":
      return runStatus(runtime, loadRequested(request));
    case "restore":
      return runRestore(runtime, request, context);
    case "list":
      return runList(request, context);
    case "derive":
      return runDerive(runtime, request);
  }
}

/** Whether the attachment is remembered, maybe by a configuration with other plugins than that of now. */
function isCached({ cacheDirectory, containerId, ifname }: RunRequest, { name }: NetworkConfigList): boolean {
  return hasCacheFile(cacheDirectory, { network: name, containerId, ifname });
}

function runGc(runtime: RuntimeContext, request: RunRequest, context: HostContext): void {
  const list = loadRequested(request);
  const snapshotTime = processStartTime();
  gcNetworkList(runtime, list, validAttachments(runtime, list, request.valid, context, snapshotTime), snapshotTime);
}

/** What is wrong stands in the document that was printed, so that no other may follow it. */
export class AlreadyReportedError extends CniError {}

function runRestore(runtime: RuntimeContext, request: RunRequest, context: HostContext): void {
  const restoration = restoreAttachments(runtime, context, request.network ? networkToRestore(request) : undefined);
  printStdout(`${stringifyJson(restoration, 4)}\n`);
  const { attachments, problems } = restoration;
  const failed = attachments.filter(({ state }) => state === "failed").length;
  if (failed + problems.length === 0) return;
  const failures = [
    ...failed ? [`${failed} of ${attachments.length} attachments`] : [],
    ...problems.length ? ["what is named above"] : [],
  ];
  throw new AlreadyReportedError(Code.Internal, `Cannot restore ${failures.join(" and ")}`);
}

/** Attachments remember their configuration: it may be gone, or broken by now. */
function networkToRestore(request: RunRequest): NetworkConfigList | string {
  try {
    return loadRequested(request);
  } catch (error) {
    const { network, cacheDirectory } = request;
    if (network === "-" || network.includes("/") || listCacheEntries(cacheDirectory, network).length === 0) throw error;
    return network;
  }
}

/** A table for people, JSON for programs. */
function runList(request: RunRequest, context: HostContext): void {
  const { network, cacheDirectory, json } = request;
  const name = network === "-" || network.includes("/") ? loadRequested(request).name : network || undefined;
  const attachments = listAttachments(cacheDirectory, context, name, log);
  printStdout(
    json ? `${stringifyJson(attachments.map(jsonDocument), 4)}\n` : formatTable(
      ["NETWORK", "CONTAINER", "INTERFACE", "STATE", "ADDRESSES", "NAMESPACE", "REASON"],
      attachments.map(tableRow),
    ),
  );
}

function tableRow(
  { network, containerId, ifname, state, netns = "", reason = "", result }: NetworkAttachment,
): string[] {
  const addresses = (result?.ips ?? []).map(({ address }) => address);
  return [network, containerId, ifname, state, addresses.join(","), netns, reason];
}

/** The result in the newest form, whatever version the network has. */
function jsonDocument({ result, ...rest }: NetworkAttachment): object {
  return { ...rest, ...(result && { result: formatResult(result, LATEST) }) };
}

/** One document: what each plugin would read, in the order of the calls. */
function runDerive(runtime: RuntimeContext, request: RunRequest): void {
  const { command, containerId, cacheDirectory } = request;
  const network = command === "DEL" || command === "CHECK" ? networkOrCachedName(request) : loadRequested(request);
  const valid = typeof network === "string" ? [] : resolveAttachmentNames(cacheDirectory, network.name, request.valid);
  const parameters = containerId === "" && command !== "ADD" ? undefined : runtimeConf(network, request);
  const requests = deriveRequests(runtime, network, { verb: command, ...(parameters && { parameters }), valid });
  printStdout(`${stringifyJson(requests.map(({ type, request }) => ({ type, request: parseJson(request) })), 4)}\n`);
}

function log(message: string): void {
  printStderr(`cni: ${message}`);
}

function loadRequested({ network, confDirectory }: RunRequest): NetworkConfigList {
  return loadNetwork(network, { directory: confDirectory, log });
}

/** What is likely to be a mistake is said first: it may be why the answer is no. */
function runStatus(runtime: RuntimeContext, list: NetworkConfigList): void {
  logUnknownKeys(list);
  getNetworkListStatus(runtime, list);
}

function logUnknownKeys(list: NetworkConfigList): void {
  for (const message of findUnknownKeys(list, (type) => findPlugin(type)?.config)) log(message);
}

function runAdd(runtime: RuntimeContext, list: NetworkConfigList, request: RunRequest, context: HostContext): void {
  const { containerId, ifname, netns = "" } = request;
  const result = attachOrLogUnknownKeys(runtime, list, {
    containerId,
    ifname,
    netns,
    ...runtimeArguments(list, request),
  }, context);
  try {
    throwIfSignalled();
    printStdout(`${stringifyResult(result, list.cniVersion)}\n`);
  } catch (error) {
    // Whoever called this knows nothing of the attachment, so that nobody would ever remove it.
    stopReportingSignals();
    delNetworkList(runtime, list, { containerId, ifname });
    throw error;
  }
}

/** Only where it fails, because to look would take a twentieth of a success. */
function attachOrLogUnknownKeys(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  parameters: AddRuntimeConf,
  context: HostContext,
) {
  try {
    return attachContainer(runtime, list, parameters, context);
  } catch (error) {
    logUnknownKeys(list);
    throw error;
  }
}

/** For an attachment that is remembered the name is enough: its configuration may be gone, or broken by now. */
function networkOrCachedName(request: RunRequest): NetworkConfigList | string {
  try {
    return loadRequested(request);
  } catch (error) {
    const { network, containerId, ifname, cacheDirectory } = request;
    if (
      network === "-" || network.includes("/") ||
      !hasCachedConfiguration(cacheDirectory, { network, containerId, ifname })
    ) {
      throw error;
    }
    const { message, details } = CniError.from(error);
    log(details ? `${message} (${details})` : message);
    log(`Using the configuration that ${describeAttachment({ network, containerId, ifname })} was attached with`);
    return network;
  }
}

function hasCachedConfiguration(
  directory: string,
  key: { network: string; containerId: string; ifname: string },
): boolean {
  try {
    return !!findEntry(directory, key)?.config;
  } catch {
    return false;
  }
}

/** What is not given is as it was for add. */
function runtimeConf(network: NetworkConfigList | string, request: RunRequest): RuntimeConf {
  const { containerId, ifname, netns } = request;
  return { containerId, ifname, ...(netns !== undefined && { netns }), ...argumentsOrCached(network, request) };
}

function argumentsOrCached(
  network: NetworkConfigList | string,
  request: RunRequest,
): Pick<RuntimeConf, "args" | "capabilityArgs"> {
  const { verb, command, args, capabilityArgs, publish, ips, mac } = request;
  const given = { ...(args && { args }), ...(capabilityArgs && { capabilityArgs }) };
  const hasOptions = publish.length > 0 || ips.length > 0 || mac !== undefined;
  if (!hasOptions || typeof network === "string") return given;
  try {
    return runtimeArguments(network, request);
  } catch (error) {
    // No plugin of now did it, and what an earlier one did is remembered.
    if (verb !== "del" && !(verb === "derive" && command === "DEL")) throw error;
    log(`${CniError.from(error).message}; going on without it`);
    return given;
  }
}

/**
 * Options of the command line in the way that the network's plugins understand: as capability if one declares it, else as CNI_ARGS.
 *
 * @throws {CniError} code 7 if no plugin of the network would hear of it
 */
export function runtimeArguments(
  list: NetworkConfigList,
  request: RunRequest,
): Pick<CacheEntry, "args" | "capabilityArgs"> {
  const declared = new Set(list.plugins.flatMap((plugin) => plugin.capabilities));
  const capabilityArgs: Record<string, unknown> = { ...request.capabilityArgs };
  const args = [...request.args ?? []];
  const { publish, ips, mac } = request;
  if (publish.length > 0) {
    if (!declared.has("portMappings")) throw missingCapability(list, "portMappings", "--publish");
    capabilityArgs.portMappings = [...arrayOf(capabilityArgs, "portMappings"), ...publish];
  }
  if (declared.has("ips") && ips.length > 0) capabilityArgs.ips = [...arrayOf(capabilityArgs, "ips"), ...ips];
  else if (ips.length > 1) throw missingCapability(list, "ips", "more than one --ip");
  else if (ips[0]) args.push(["IP", ips[0]]);
  if (declared.has("mac") && mac) capabilityArgs.mac = mac;
  else if (mac) args.push(["MAC", mac]);
  // Plugins refuse what they do not know, and every plugin of the network gets the same arguments.
  const hasAddedArgs = args.length > (request.args ?? []).length;
  if (hasAddedArgs && !args.some(([key]) => key === "IgnoreUnknown")) args.unshift(["IgnoreUnknown", "1"]);
  return { args, capabilityArgs };
}

function arrayOf(args: JsonObject, name: string): readonly unknown[] {
  const value = args[name];
  return Array.isArray(value) ? value : [];
}

function missingCapability({ name }: NetworkConfigList, capability: string, option: string): CniError {
  return new CniError(
    Code.InvalidConfig,
    `Cannot use ${option} with network "${name}": no plugin of it has capability "${capability}"`,
    {
      details: `add "capabilities": {"${capability}": true} to the plugin that is to do it`,
    },
  );
}
