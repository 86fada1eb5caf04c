/**
 * The options that describe attachments, and what the runtime makes of them.
 *
 * @module
 */
import { type Ip, parseIp, parseMac } from "../../ffi/address.ts";
import type { Args } from "../../runtime/cache.ts";
import { containerIdOfNetns } from "../../runtime/container_id.ts";
import { UnknownAttachmentError } from "../../runtime/runtime.ts";
import { containerIdProblem, ifnameProblem } from "../../spec/env.ts";
import { CniError, Code } from "../../spec/error.ts";
import { parseJson } from "../../spec/jsonc.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { isJsonObject, type JsonObject } from "../../spec/schema.ts";
import type { ArgumentSpec, CliContext } from "../command.ts";
import { type OptionSpec, type ParsedOptions, parseOrUsageError, UsageError } from "../options.ts";
import { netnsPath } from "./path.ts";
import { log } from "./runtime.ts";
import { parsePublishedPort, type PublishOption } from "./published_port.ts";

/** A network namespace. */
export const NETNS_ARGUMENT: ArgumentSpec = {
  name: "NETNS",
  help: 'a network namespace: a name under /run/netns, or a path (with a "/")',
};

/** A network namespace that no command needs here, and that cnitool demands. */
export const IGNORED_NETNS_ARGUMENT: ArgumentSpec = {
  name: "NETNS",
  help: "is accepted as cnitool has it, and ignored",
  optional: true,
};

/** The interface, which has a default for every command. */
export const IFNAME_OPTION: OptionSpec = {
  name: "ifname",
  short: "i",
  value: "IFNAME",
  env: "CNI_IFNAME",
  help: "interface in the container (eth0)",
};

/** The options that {@linkcode parseAttachment} reads. */
export const ATTACHMENT_OPTIONS: readonly OptionSpec[] = [
  IFNAME_OPTION,
  {
    name: "container-id",
    value: "ID",
    env: "CNI_CONTAINERID",
    help: "made from the namespace's path unless given",
  },
  { name: "publish", short: "p", value: "PORTS", help: "[hostIP:]hostPort:containerPort[/proto], repeatable" },
  { name: "ip", value: "IP", help: "address to ask for, repeatable" },
  { name: "mac", value: "MAC", help: "hardware address to ask for" },
  { name: "args", value: "K=V;K=V", env: "CNI_ARGS", help: "arguments for all plugins" },
  { name: "cap-args", value: "JSON", env: "CAP_ARGS", help: "arguments by capability" },
];

/** An attachment as the command line describes it. */
export interface AttachmentRequest {
  /** Empty if neither an id nor a namespace was given. */
  readonly containerId: string;
  readonly ifname: string;
  /** An absolute path. */
  readonly netns?: string;
  /** CNI_ARGS; absent if not given, which means: as before. */
  readonly args?: Args;
  readonly capabilityArgs?: JsonObject;
  readonly publish: readonly PublishOption[];
  readonly ips: readonly string[];
  readonly mac?: string;
}

/** Reads the options of an attachment. @param netnsWord the word for its namespace @throws {UsageError} */
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
    ...(mac !== undefined && { mac: parseOrUsageError("--mac", mac, parseMac) }),
  };
}

/** The interface that is meant. */
export function parseIfname(options: ParsedOptions): string {
  return options.find(IFNAME_OPTION.name) ?? "eth0";
}

/** What the options ask of plugins: CNI_ARGS, and arguments by capability. */
interface RuntimeArguments {
  readonly args: Args;
  readonly capabilityArgs: JsonObject;
}

/**
 * Options of the command line in the way that the network's plugins understand: as capability if one declares it, else as CNI_ARGS.
 *
 * @throws {CniError} code 7 if no plugin of the network would hear of it
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
  // Plugins refuse what they do not know, and every plugin of the network gets the same arguments.
  const hasAddedArgs = args.length > (request.args ?? []).length;
  if (hasAddedArgs && !args.some(([key]) => key === "IgnoreUnknown")) args.unshift(["IgnoreUnknown", "1"]);
  return { args, capabilityArgs };
}

/** As {@linkcode runtimeArguments}, for an attachment that is there: what is not given is as it was for its ADD. @throws {CniError} */
export function givenRuntimeArguments(
  network: NetworkConfigList | string,
  request: AttachmentRequest,
): Partial<RuntimeArguments> {
  const { args, capabilityArgs, publish, ips, mac } = request;
  const hasOptions = publish.length > 0 || ips.length > 0 || mac !== undefined;
  if (hasOptions && typeof network === "object") return runtimeArguments(network, request);
  return { ...(args && { args }), ...(capabilityArgs && { capabilityArgs }) };
}

/** As {@linkcode givenRuntimeArguments}, without options that no plugin of now hears of: what an earlier one did is remembered. */
export function runtimeArgumentsForDel(
  network: NetworkConfigList | string,
  request: AttachmentRequest,
): Partial<RuntimeArguments> {
  try {
    return givenRuntimeArguments(network, request);
  } catch (error) {
    log(`${CniError.from(error).message}; continuing without it`);
    const { mac: _, ...rest } = request;
    return givenRuntimeArguments(network, { ...rest, publish: [], ips: [] });
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
    { details: `add "capabilities": {"${capability}": true} to the plugin that is to do it` },
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
  const node = parseCapabilityJson(text);
  if (isJsonObject(node)) return node;
  throw new UsageError(`--cap-args must be a JSON object such as '{"ips":["10.1.0.5"]}': got ${JSON.stringify(text)}`);
}

function parseCapabilityJson(text: string): unknown {
  try {
    return parseJson(text, "--cap-args");
  } catch (error) {
    throw error instanceof SyntaxError ? new UsageError(error.message) : error;
  }
}

/** With or without a prefix length, which plugins take from their subnet. */
function parseAddress(text: string): string {
  const slash = text.indexOf("/");
  const ip: Ip = parseOrUsageError("--ip", slash < 0 ? text : text.slice(0, slash), parseIp);
  const length = slash < 0 ? "" : text.slice(slash);
  if (length === "" || /^\/[0-9]{1,3}$/.test(length)) return ip + length;
  throw new UsageError(`--ip must be an address such as "10.1.0.5" or "10.1.0.5/16": got ${JSON.stringify(text)}`);
}

/** The option that {@linkcode parseValid} reads. */
export const VALID_OPTION: OptionSpec = {
  name: "valid",
  value: "ID[/IFNAME]",
  help: "an attachment that stays, by its id or its namespace's name, repeatable",
};

/** Says that there are none. */
export const ALL_OPTION: OptionSpec = { name: "all", help: "nothing stays" };

/** Says that a name may be of what is not remembered: an engine attached it, or it is detached. */
export const IGNORE_UNKNOWN_OPTION: OptionSpec = {
  name: "ignore-unknown",
  help: "clean up although a --valid is not remembered; it stays valid",
};

/** The attachments that are named; without an interface that of `--ifname`. @throws {UsageError} */
export function parseValid(options: ParsedOptions): Attachment[] {
  const valid = options.list(VALID_OPTION.name);
  if (valid.length > 0 && options.has(ALL_OPTION.name)) {
    throw new UsageError("--all lets nothing stay, and --valid names what stays: leave out one of the two");
  }
  return valid.map((text) => parseAttachmentName(text, parseIfname(options)));
}

/** What `call` returns. @throws {UsageError} if it finds that a name of `--valid` is misspelt */
export function refuseUnknownNames<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    if (!(error instanceof UnknownAttachmentError)) throw error;
    throw new UsageError(
      `${error.message} (with --${IGNORE_UNKNOWN_OPTION.name} the others are cleaned up, and such a name stays valid)`,
    );
  }
}

function parseAttachmentName(text: string, ifname: string): Attachment {
  const slash = text.indexOf("/");
  const attachment = slash < 0
    ? { containerId: text, ifname }
    : { containerId: text.slice(0, slash), ifname: text.slice(slash + 1) };
  const [what, problem] = containerIdProblem(attachment.containerId)
    ? ["container id", containerIdProblem(attachment.containerId)]
    : ["interface name", ifnameProblem(attachment.ifname)];
  if (!problem) return attachment;
  throw new UsageError(`--valid must be ID or ID/IFNAME: got ${JSON.stringify(text)}, whose ${what} ${problem}`);
}
