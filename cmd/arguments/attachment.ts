import { parseIp, parseMac } from "../../ffi/address.ts";
import type { Args } from "../../runtime/cache.ts";
import { containerIdOfNetns } from "../../runtime/container_id.ts";
import { CniError, Code } from "../../spec/error.ts";
import { parseJson } from "../../spec/jsonc.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { isJsonObject, type JsonObject } from "../../spec/schema.ts";
import type { ArgumentSpec } from "../command.ts";
import type { CliContext } from "../../program/start.ts";
import { type OptionSpec, type ParsedOptions, parseOrUsageError } from "../options.ts";
import { UsageError } from "../../program/usage_error.ts";
import { netnsPath } from "./path.ts";
import { log } from "./runtime.ts";
import { parsePublishedPort, type PublishOption } from "./published_port.ts";

export const NETNS_ARGUMENT: ArgumentSpec = {
  name: "NETNS",
  help: 'a network namespace: a name under /run/netns, or a path (with a "/")',
};

export const OR_CONTAINER = "Or a container, by name, id or begin of the id";

/** cnitool requires it for every command. */
export const IGNORED_NETNS_ARGUMENT: ArgumentSpec = {
  name: "NETNS",
  help: "ignored; for scripts that were written for cnitool",
  optional: true,
};

export const IFNAME_OPTION: OptionSpec = {
  name: "ifname",
  short: "i",
  value: "IFNAME",
  env: "CNI_IFNAME",
  help: "interface in the container (eth0)",
};

export const ATTACHMENT_OPTIONS: readonly OptionSpec[] = [
  IFNAME_OPTION,
  {
    name: "container-id",
    value: "ID",
    env: "CNI_CONTAINERID",
    help: "id of the container (made from the namespace's path)",
  },
  { name: "publish", short: "p", value: "PORTS", help: "[hostIP:]hostPort:containerPort[/proto], repeatable" },
  { name: "ip", value: "IP", help: "address to request, repeatable" },
  { name: "mac", value: "MAC", help: "hardware address to request" },
  { name: "args", value: "K=V;K=V", env: "CNI_ARGS", help: "arguments for all plugins" },
  { name: "cap-args", value: "JSON", env: "CAP_ARGS", help: "arguments by capability" },
];

export interface AttachmentRequest {
  /** Empty without an id and a namespace. */
  readonly containerId: string;
  readonly ifname: string;
  readonly netns?: string;
  /** CNI_ARGS; if absent, those of the ADD. */
  readonly args?: Args;
  readonly capabilityArgs?: JsonObject;
  readonly publish: readonly PublishOption[];
  readonly ips: readonly string[];
  readonly mac?: string;
}

export function parseAttachment(
  options: ParsedOptions,
  netnsWord: string | undefined,
  context: CliContext,
): AttachmentRequest {
  const netns = netnsWord ? netnsPath(netnsWord, context) : undefined;
  const args = options.find("args");
  const capArgs = options.find("cap-args");
  const mac = options.find("mac");
  return {
    containerId: options.find("container-id") ?? (netns === undefined ? "" : containerIdOfNetns(netns)),
    ifname: parseIfname(options),
    ...(netns !== undefined && { netns }),
    ...(args !== undefined && { args: parseArgsOption(args) }),
    ...(capArgs !== undefined && { capabilityArgs: parseCapabilityArgs(capArgs) }),
    publish: options.list("publish").map(parsePublishedPort),
    ips: options.list("ip").map(parseAddress),
    ...(mac !== undefined && { mac: parseOrUsageError("--mac", mac, parseMac, "02:00:5e:10:00:01") }),
  };
}

export function parseIfname(options: ParsedOptions): string {
  return options.find(IFNAME_OPTION.name) ?? "eth0";
}

interface RuntimeArguments {
  readonly args: Args;
  readonly capabilityArgs: JsonObject;
}

/**
 * Arguments go by capability if a plugin declares it, else into CNI_ARGS. @throws {CniError} code 7 if no plugin would
 * read one
 */
export function runtimeArguments(list: NetworkConfigList, request: AttachmentRequest): RuntimeArguments {
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
  // All plugins get the same arguments, and refuse unknown ones.
  const hasAddedArgs = args.length > (request.args ?? []).length;
  if (hasAddedArgs && !args.some(([key]) => key === "IgnoreUnknown")) args.unshift(["IgnoreUnknown", "1"]);
  return { args, capabilityArgs };
}

/** Arguments that are absent stay as for the ADD of an existing attachment. */
export function explicitRuntimeArguments(
  network: NetworkConfigList | string,
  request: AttachmentRequest,
): Partial<RuntimeArguments> {
  const { args, capabilityArgs, publish, ips, mac } = request;
  const hasOptions = publish.length > 0 || ips.length > 0 || mac !== undefined;
  if (hasOptions && typeof network === "object") return runtimeArguments(network, request);
  return { ...(args && { args }), ...(capabilityArgs && { capabilityArgs }) };
}

/** Drops options that no plugin reads now: DEL goes by the ADD. */
export function runtimeArgumentsForDel(
  network: NetworkConfigList | string,
  request: AttachmentRequest,
): Partial<RuntimeArguments> {
  try {
    return explicitRuntimeArguments(network, request);
  } catch (error) {
    log(`${CniError.from(error).message}; continuing without it`);
    const { mac: _, ...rest } = request;
    return explicitRuntimeArguments(network, { ...rest, publish: [], ips: [] });
  }
}

function arrayOf(args: JsonObject, name: string): readonly unknown[] {
  const value = args[name];
  return Array.isArray(value) ? value : [];
}

function missingCapability({ name }: NetworkConfigList, capability: string, option: string): CniError {
  return new CniError(
    Code.InvalidConfig,
    `Cannot use ${option} with network "${name}": no plugin of it has capability "${capability}"`,
    { details: `add "capabilities": {"${capability}": true} to the plugin that should do it` },
  );
}

function parseArgsOption(text: string): Args {
  return text.split(";").map((pair) => {
    const [key, value, ...rest] = pair.split("=");
    if (key && value && rest.length === 0) return [key, value] as const;
    throw new UsageError(`--args must be KEY=VALUE pairs separated by ";": got ${JSON.stringify(pair)}`);
  });
}

function parseCapabilityArgs(text: string): JsonObject {
  const node = parseOrUsageError("--cap-args", text, parseJson);
  if (isJsonObject(node)) return node;
  throw new UsageError(`--cap-args must be a JSON object such as '{"ips":["10.1.0.5"]}': got ${JSON.stringify(text)}`);
}

/** Plugins take a missing prefix length from their subnet. */
function parseAddress(text: string): string {
  const [, address, length = ""] = /^([^/]*)(\/[0-9]{1,3})?$/.exec(text) ?? [];
  if (address !== undefined) return parseOrUsageError("--ip", address, parseIp, "10.1.0.5") + length;
  throw new UsageError(`--ip must be an address such as "10.1.0.5" or "10.1.0.5/16": got ${JSON.stringify(text)}`);
}
