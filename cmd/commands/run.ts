/**
 * `cni run`: the runtime on the command line.
 *
 * @module
 */
import { holdSignals, stopListening } from "../../ffi/sys/signals.ts";
import { startTime } from "../../ffi/sys/start_time.ts";
import { stopIfAsked } from "../../plugins/lib/protocol/signal.ts";
import type { Surroundings } from "../../plugins/lib/protocol/serve.ts";
import { findPlugin, loadPlugins, pluginsNamedIn } from "../../plugins/registry.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { NetworkList } from "../../spec/network_config_list.ts";
import { parseJson, printJson } from "../../spec/jsonc.ts";
import { formatResult, printResult } from "../../spec/result.ts";
import type { JsonObject } from "../../spec/schema.ts";
import { LATEST } from "../../spec/version.ts";
import type { RunRequest } from "./run_arguments.ts";
import { attach } from "../../runtime/attach.ts";
import { type KnownAttachment, listAttachments } from "../../runtime/attachments.ts";
import { type CacheEntry, findEntry, listEntries } from "../../runtime/cache.ts";
import { deriveRequests } from "../../runtime/derive.ts";
import { gc } from "../../runtime/gc.ts";
import { loadNetwork } from "../../runtime/load.ts";
import { findMisspelt } from "../../runtime/unknown_keys.ts";
import { describe, type RecallParameters } from "../../runtime/resolve_attachment.ts";
import { restore } from "../../runtime/restore.ts";
import { type AddParameters, check, del, type RuntimeOptions, status } from "../../runtime/operations.ts";
import { print, say } from "../../ffi/sys/stdio.ts";
import { surroundings } from "../../runtime/host_context.ts";
import { isKnown, meantBy, survivors } from "../../runtime/valid_attachments.ts";
import { formatTable } from "../output/table.ts";

/**
 * Carries out what the command line asks for.
 *
 * @throws {CniError} and every other error as its cause made it
 */
export async function run(request: RunRequest, env: RuntimeOptions["env"]): Promise<void> {
  if (request.surplus.length > 0) log(`Ignoring what follows the arguments: "${request.surplus.join(" ")}"`);
  // Threads that the runtime starts, as for a long configuration, hold back what is held back by then.
  if (request.verb === "add") holdSignals();
  const added = request.verb === "add" ? load(request) : undefined;
  await loadPlugins(added && !isAttached(request, added) ? pluginsNamedIn(added.text) : undefined);
  const { timeoutMs } = request;
  const around = surroundings(timeoutMs === undefined ? {} : { timeoutMs });
  using _host = around.host;
  const runtime: RuntimeOptions = {
    invoker: around.invoker(request.pluginDirectories),
    ownPlugins: around.invoker([]),
    pluginDirectories: request.pluginDirectories,
    cacheDirectory: request.cacheDirectory,
    env,
    log,
  };
  if (added) return runAdd(runtime, added, request, around);
  switch (request.verb) {
    case "check":
    case "del": {
      const network = networkOf(request);
      const command = request.verb === "check" ? check : del;
      return command(runtime, network, recallParameters(network, request));
    }
    case "gc":
      return runGc(runtime, request, around);
    case "status":
      return runStatus(runtime, load(request));
    case "restore":
      return runRestore(runtime, request, around);
    case "list":
      return list(request, around);
    case "derive":
      return derive(runtime, request);
  }
}

/** Whether the attachment is remembered, maybe by a configuration with other plugins than that of now. */
function isAttached({ cacheDirectory, containerId, ifname }: RunRequest, { name }: NetworkList): boolean {
  return isKnown(cacheDirectory, { network: name, containerId, ifname });
}

function runGc(runtime: RuntimeOptions, request: RunRequest, around: Surroundings): void {
  const list = load(request);
  const madeAt = startTime();
  gc(runtime, list, survivors(runtime, list, request.valid, around, madeAt), madeAt);
}

/** What is wrong stands in the document that was printed, so that no other may follow it. */
export class ToldError extends CniError {}

function runRestore(runtime: RuntimeOptions, request: RunRequest, around: Surroundings): void {
  const restoration = restore(runtime, around, request.network ? networkToRestore(request) : undefined);
  print(`${printJson(restoration, 4)}\n`);
  const { attachments, problems } = restoration;
  const failed = attachments.filter(({ state }) => state === "failed").length;
  if (failed + problems.length === 0) return;
  const what = [
    ...failed ? [`${failed} of ${attachments.length} attachments`] : [],
    ...problems.length ? ["what is named above"] : [],
  ];
  throw new ToldError(Code.Internal, `Cannot restore ${what.join(" and ")}`);
}

/** Attachments remember their configuration: it may be gone, or broken by now. */
function networkToRestore(request: RunRequest): NetworkList | string {
  try {
    return load(request);
  } catch (error) {
    const { network, cacheDirectory } = request;
    if (network === "-" || network.includes("/") || listEntries(cacheDirectory, network).length === 0) throw error;
    return network;
  }
}

/** A table for people, JSON for programs. */
function list(request: RunRequest, around: Surroundings): void {
  const { network, cacheDirectory, json } = request;
  const name = network === "-" || network.includes("/") ? load(request).name : network || undefined;
  const attachments = listAttachments(cacheDirectory, around, name, log);
  print(
    json ? `${printJson(attachments.map(document), 4)}\n` : formatTable(
      ["NETWORK", "CONTAINER", "INTERFACE", "STATE", "ADDRESSES", "NAMESPACE", "REASON"],
      attachments.map(row),
    ),
  );
}

function row({ network, containerId, ifname, state, netns = "", reason = "", result }: KnownAttachment): string[] {
  const addresses = (result?.ips ?? []).map(({ address }) => address);
  return [network, containerId, ifname, state, addresses.join(","), netns, reason];
}

/** The result in the newest form, whatever version the network has. */
function document({ result, ...rest }: KnownAttachment): object {
  return { ...rest, ...(result && { result: formatResult(result, LATEST) }) };
}

/** One document: what each plugin would read, in the order of the calls. */
function derive(runtime: RuntimeOptions, request: RunRequest): void {
  const { command, containerId, cacheDirectory } = request;
  const network = command === "DEL" || command === "CHECK" ? networkOf(request) : load(request);
  const valid = typeof network === "string" ? [] : meantBy(cacheDirectory, network.name, request.valid);
  const parameters = containerId === "" && command !== "ADD" ? undefined : recallParameters(network, request);
  const requests = deriveRequests(runtime, network, { verb: command, ...(parameters && { parameters }), valid });
  print(`${printJson(requests.map(({ type, request }) => ({ type, request: parseJson(request) })), 4)}\n`);
}

function log(message: string): void {
  say(`cni: ${message}`);
}

function load({ network, confDirectory }: RunRequest): NetworkList {
  return loadNetwork(network, { directory: confDirectory, log });
}

/** What is likely to be a mistake is said first: it may be why the answer is no. */
function runStatus(runtime: RuntimeOptions, list: NetworkList): void {
  sayMisspelt(list);
  status(runtime, list);
}

function sayMisspelt(list: NetworkList): void {
  for (const each of findMisspelt(list, (type) => findPlugin(type)?.config)) log(each);
}

function runAdd(runtime: RuntimeOptions, list: NetworkList, request: RunRequest, around: Surroundings): void {
  const { containerId, ifname, netns = "" } = request;
  const result = attachOrSay(runtime, list, { containerId, ifname, netns, ...wishes(list, request) }, around);
  try {
    stopIfAsked();
    print(`${printResult(result, list.cniVersion)}\n`);
  } catch (error) {
    // Whoever called this knows nothing of the attachment, so that nobody would ever remove it.
    stopListening();
    del(runtime, list, { containerId, ifname });
    throw error;
  }
}

/** Only where it fails, because to look would take a twentieth of a success. */
function attachOrSay(runtime: RuntimeOptions, list: NetworkList, parameters: AddParameters, around: Surroundings) {
  try {
    return attach(runtime, list, parameters, around);
  } catch (error) {
    sayMisspelt(list);
    throw error;
  }
}

/** For an attachment that is remembered the name is enough: its configuration may be gone, or broken by now. */
function networkOf(request: RunRequest): NetworkList | string {
  try {
    return load(request);
  } catch (error) {
    const { network, containerId, ifname, cacheDirectory } = request;
    if (network === "-" || network.includes("/") || !isRemembered(cacheDirectory, { network, containerId, ifname })) {
      throw error;
    }
    const { message, details } = CniError.from(error);
    log(details ? `${message} (${details})` : message);
    log(`Using the configuration that ${describe({ network, containerId, ifname })} was attached with`);
    return network;
  }
}

function isRemembered(directory: string, key: { network: string; containerId: string; ifname: string }): boolean {
  try {
    return !!findEntry(directory, key)?.config;
  } catch {
    return false;
  }
}

/** What is not given is as it was for add. */
function recallParameters(network: NetworkList | string, request: RunRequest): RecallParameters {
  const { containerId, ifname, netns } = request;
  return { containerId, ifname, ...(netns !== undefined && { netns }), ...argumentsFor(network, request) };
}

function argumentsFor(
  network: NetworkList | string,
  request: RunRequest,
): Pick<RecallParameters, "args" | "capabilityArgs"> {
  const { verb, command, args, capabilityArgs, publish, ips, mac } = request;
  const asGiven = { ...(args && { args }), ...(capabilityArgs && { capabilityArgs }) };
  const anew = publish.length > 0 || ips.length > 0 || mac !== undefined;
  if (!anew || typeof network === "string") return asGiven;
  try {
    return wishes(network, request);
  } catch (error) {
    // No plugin of now did it, and what an earlier one did is remembered.
    if (verb !== "del" && !(verb === "derive" && command === "DEL")) throw error;
    log(`${CniError.from(error).message}; going on without it`);
    return asGiven;
  }
}

/**
 * Options of the command line in the way that the network's plugins understand: as capability if one declares it, else as CNI_ARGS.
 *
 * @throws {CniError} code 7 if no plugin of the network would hear of it
 */
export function wishes(list: NetworkList, request: RunRequest): Pick<CacheEntry, "args" | "capabilityArgs"> {
  const declared = new Set(list.plugins.flatMap((plugin) => plugin.capabilities));
  const capabilityArgs: Record<string, unknown> = { ...request.capabilityArgs };
  const args = [...request.args ?? []];
  const { publish, ips, mac } = request;
  if (publish.length > 0) {
    if (!declared.has("portMappings")) throw unheard(list, "portMappings", "--publish");
    capabilityArgs.portMappings = [...listOf(capabilityArgs, "portMappings"), ...publish];
  }
  if (declared.has("ips") && ips.length > 0) capabilityArgs.ips = [...listOf(capabilityArgs, "ips"), ...ips];
  else if (ips.length > 1) throw unheard(list, "ips", "more than one --ip");
  else if (ips[0]) args.push(["IP", ips[0]]);
  if (declared.has("mac") && mac) capabilityArgs.mac = mac;
  else if (mac) args.push(["MAC", mac]);
  // Plugins refuse what they do not know, and every plugin of the network gets the same arguments.
  const added = args.length > (request.args ?? []).length;
  if (added && !args.some(([key]) => key === "IgnoreUnknown")) args.unshift(["IgnoreUnknown", "1"]);
  return { args, capabilityArgs };
}

function listOf(args: JsonObject, name: string): readonly unknown[] {
  const value = args[name];
  return Array.isArray(value) ? value : [];
}

function unheard({ name }: NetworkList, capability: string, option: string): CniError {
  return new CniError(
    Code.InvalidConfig,
    `Cannot use ${option} with network "${name}": no plugin of it has capability "${capability}"`,
    {
      details: `add "capabilities": {"${capability}": true} to the plugin that is to do it`,
    },
  );
}
