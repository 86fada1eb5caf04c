/**
 * The command line of `cni run`: what is asked for, from options and, where there is none, from the variables of cnitool.
 *
 * @module
 */
import { containerIdOfNetns } from "../../runtime/container_id.ts";
import { type Ip, parseIp, parseMac } from "../../ffi/address.ts";
import { namedNetnsPath } from "../../ffi/named_netns.ts";
import { findStat } from "../../ffi/sys/stat.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { containerIdProblem, ifnameProblem } from "../../spec/env.ts";
import { parseJson } from "../../spec/jsonc.ts";
import { isJsonObject, type JsonObject } from "../../spec/schema.ts";
import { type OptionSpec, type ParsedOptions, parseOptions, UsageError } from "../options.ts";
import { parsePublishedPort, type PublishOption } from "../published_port.ts";
import { suggestion } from "../../spec/suggest.ts";

export type RunVerb = "add" | "check" | "del" | "gc" | "status" | "restore" | "list" | "derive";
const VERBS: readonly RunVerb[] = ["add", "check", "del", "gc", "status", "restore", "list", "derive"];

/** The commands that requests can be derived for. */
const DERIVABLE_COMMANDS = ["ADD", "CHECK", "DEL", "GC", "STATUS"] as const;

/** What `cni run` is asked to do; paths are absolute. */
export interface RunRequest {
  readonly verb: RunVerb;
  /** A name, a path, or `-`; of list and restore, empty for all. */
  readonly network: string;
  /** Path of the namespace; always there for add and check. */
  readonly netns?: string;
  readonly containerId: string;
  readonly ifname: string;
  readonly confDirectory: string;
  readonly pluginDirectories: readonly string[];
  readonly cacheDirectory: string;
  /** CNI_ARGS; absent if not given, which for check means: as before. Of del, what is remembered counts. */
  readonly args?: readonly (readonly [string, string])[];
  readonly capabilityArgs?: JsonObject;
  readonly publish: readonly PublishOption[];
  readonly ips: readonly string[];
  readonly mac?: string;
  /** For gc: what is to stay. */
  readonly valid: readonly Attachment[];
  /** For programs that are started. */
  readonly timeoutMs?: number;
  readonly json: boolean;
  /** For derive: what is asked of the plugins. */
  readonly command: (typeof DERIVABLE_COMMANDS)[number];
  /** What was given beyond; cnitool does not look at it either. */
  readonly surplus: readonly string[];
}

/** The options of `cni run`. */
export const RUN_OPTIONS: readonly OptionSpec[] = [
  { name: "conf-dir", value: "DIR", env: "NETCONFPATH", help: "where networks are found by name (/etc/cni/net.d)" },
  {
    name: "plugin-dir",
    value: "DIRS",
    env: "CNI_PATH",
    help: "other plugins, separated by ':'; none: ':' (/opt/cni/bin)",
  },
  { name: "cache-dir", value: "DIR", help: "where attachments are remembered (/var/lib/cni)" },
  { name: "ifname", short: "i", value: "NAME", env: "CNI_IFNAME", help: "interface in the container (eth0)" },
  { name: "container-id", value: "ID", env: "CNI_CONTAINERID", help: "made from the namespace's path unless given" },
  { name: "publish", short: "p", value: "PORTS", help: "[hostIP:]hostPort:containerPort[/proto], repeatable" },
  { name: "ip", value: "IP", help: "address to ask for, repeatable" },
  { name: "mac", value: "MAC", help: "hardware address to ask for" },
  { name: "args", value: "K=V;K=V", env: "CNI_ARGS", help: "arguments for all plugins" },
  { name: "cap-args", value: "JSON", env: "CAP_ARGS", help: "arguments by capability" },
  { name: "command", value: "COMMAND", help: "derive: ADD (the default), CHECK, DEL, GC or STATUS" },
  { name: "valid", value: "ID[/IFNAME]", help: "gc: an attachment that stays, by its id or its namespace's name" },
  { name: "all", help: "gc: nothing stays; restore: of every network, as without one" },
  { name: "timeout", value: "TIME", help: "for each plugin that is a program of its own: 30s, 500ms" },
  { name: "json", help: "list: print JSON; on failure, print the error object on stdout" },
  { name: "help", short: "h", help: "print this" },
];

type Environment = Readonly<Record<string, string | undefined>>;

/** What relative paths start from; `undefined` if it was removed. */
type FindWorkingDirectory = () => string | undefined;

/**
 * Reads the command line after `cni run`.
 *
 * @param cwd asked where a path is relative
 * @returns `undefined` if help is asked for
 * @throws {UsageError} naming what cannot be understood
 */
export function parseRun(argv: readonly string[], env: Environment, cwd: FindWorkingDirectory): RunRequest | undefined {
  const options = parseOptions(argv, RUN_OPTIONS, env);
  if (options.has("help")) return undefined;
  if (options.words[0] === "help") return undefined;
  const { verb, network, netnsWord, surplus } = parseWords(options);
  const netns = netnsWord === undefined ? undefined : netnsPath(netnsWord, cwd);
  const args = options.find("args");
  const capArgs = options.find("cap-args");
  const mac = options.find("mac");
  const timeout = options.find("timeout");
  const ifname = options.find("ifname") ?? "eth0";
  return {
    verb,
    network,
    ...(netns !== undefined && { netns }),
    containerId: containerIdOption(options, verb, netns),
    ifname,
    confDirectory: absolutePath(options.find("conf-dir") ?? "/etc/cni/net.d", cwd),
    pluginDirectories: (options.find("plugin-dir") ?? "/opt/cni/bin").split(":").filter((directory) => directory !== "")
      .map((directory) => absolutePath(directory, cwd)),
    cacheDirectory: absolutePath(options.find("cache-dir") ?? "/var/lib/cni", cwd),
    ...(args !== undefined && { args: parseArgsOption(args) }),
    ...(capArgs !== undefined && { capabilityArgs: parseCapabilityArgs(capArgs) }),
    publish: options.list("publish").map(parsePublishedPort),
    ips: options.list("ip").map(parseAddress),
    ...(mac !== undefined && { mac: parseOrUsageError("--mac", mac, parseMac) }),
    valid: parseValid(options, verb, ifname),
    ...(timeout !== undefined && { timeoutMs: parseTimeout(timeout) }),
    json: options.has("json"),
    command: parseCommand(options, verb),
    surplus,
  };
}

interface RunWords {
  readonly verb: RunVerb;
  readonly network: string;
  readonly netnsWord: string | undefined;
  readonly surplus: readonly string[];
}

function parseWords({ words }: ParsedOptions): RunWords {
  const [verb, network = "", netnsWord, ...surplus] = words;
  const runVerb = VERBS.find((candidate) => candidate === verb);
  if (verb === undefined) throw new UsageError(`what shall be run? ${VERBS.join(", ")}`);
  if (!runVerb) throw new UsageError(`unknown command "run ${verb}"${suggestion(verb, VERBS)}`);
  const isNetworkOptional = runVerb === "list" || runVerb === "restore";
  if (network === "" && !isNetworkOptional) {
    throw new UsageError(`"run ${verb}" needs a network: a name, a path, or -`);
  }
  if (isNetworkOptional) return { verb: runVerb, network, netnsWord: undefined, surplus: words.slice(2) };
  if (!netnsWord && (verb === "add" || verb === "check")) {
    throw new UsageError(`"run ${verb} ${network}" needs a network namespace: a name (see "cni netns list") or a path`);
  }
  // cnitool demands one for these, and does nothing with it.
  const ignoresNetns = runVerb === "gc" || runVerb === "status";
  return { verb: runVerb, network, netnsWord: ignoresNetns ? undefined : netnsWord || undefined, surplus };
}

/** What has a slash is a path. A name is one of /run/netns, or, where none is there, a file of that name, as cnitool has it. */
function netnsPath(text: string, cwd: FindWorkingDirectory): string {
  if (text.includes("/")) return absolutePath(text, cwd);
  const namedPath = parseOrUsageError("network namespace", text, namedNetnsPath);
  if (findStat(namedPath) || cwd() === undefined) return namedPath;
  const path = absolutePath(text, cwd);
  return findStat(path) ? path : namedPath;
}

function parseCommand(options: ParsedOptions, verb: RunVerb): RunRequest["command"] {
  const text = options.find("command");
  if (text === undefined) return "ADD";
  if (verb !== "derive") throw new UsageError('"--command" belongs to "run derive"');
  const command = DERIVABLE_COMMANDS.find((candidate) => candidate === text.toUpperCase());
  if (command) return command;
  throw new UsageError(`--command must be one of ${DERIVABLE_COMMANDS.join(", ")}: got ${JSON.stringify(text)}`);
}

/**
 * The path from the root, without `.`, `..` and doubled slashes, by its letters alone.
 *
 * @throws {UsageError} if it is relative to a directory that was removed
 */
export function absolutePath(path: string, cwd: FindWorkingDirectory): string {
  const base = path.startsWith("/") ? "" : cwd();
  if (base === undefined) {
    throw new UsageError(`"${path}" is relative to the working directory, and that was removed`);
  }
  const parts: string[] = [];
  for (const part of `${base}/${path}`.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

function containerIdOption(options: ParsedOptions, verb: RunVerb, netns: string | undefined): string {
  const id = options.find("container-id");
  if (id !== undefined) return id;
  if (netns !== undefined) return containerIdOfNetns(netns);
  if (verb !== "del") return "";
  throw new UsageError('"run del" needs a network namespace or --container-id, to know what to remove');
}

function parseArgsOption(text: string): (readonly [string, string])[] {
  return text.split(";").map((pair) => {
    const [key, value, ...rest] = pair.split("=");
    if (key && value && rest.length === 0) return [key, value] as const;
    throw new UsageError(`--args must be KEY=VALUE pairs separated by ";": got ${JSON.stringify(pair)}`);
  });
}

function parseCapabilityArgs(text: string): JsonObject {
  const node = parseOrUsageError("--cap-args", text, (value) => parseJson(value, "it"));
  if (isJsonObject(node)) return node;
  throw new UsageError(`--cap-args must be a JSON object such as '{"ips":["10.1.0.5"]}': got ${JSON.stringify(text)}`);
}

/** With or without a prefix length, which plugins take from their subnet. */
function parseAddress(text: string): string {
  const slash = text.indexOf("/");
  const ip: Ip = parseOrUsageError("--ip", slash < 0 ? text : text.slice(0, slash), parseIp);
  const length = slash < 0 ? "" : text.slice(slash);
  if (length === "" || /^\/[0-9]{1,3}$/.test(length)) return ip + length;
  throw new UsageError(`--ip must be an address such as "10.1.0.5" or "10.1.0.5/16": got ${JSON.stringify(text)}`);
}

function parseValid(options: ParsedOptions, verb: RunVerb, ifname: string): Attachment[] {
  const valid = options.list("valid");
  if (verb === "restore" && valid.length === 0) {
    if (!options.has("all") || options.words.length < 2) return [];
    throw new UsageError(`"run restore" takes a network or --all, not both: got "${options.words[1]}"`);
  }
  if (verb !== "gc" && !(verb === "derive" && options.find("command")?.toUpperCase() === "GC")) {
    if (valid.length > 0 || options.has("all")) {
      throw new UsageError('"--valid" and "--all" belong to "run gc", "--all" also to "run restore"');
    }
    return [];
  }
  if (valid.length > 0 && options.has("all") || verb === "gc" && valid.length === 0 && !options.has("all")) {
    throw new UsageError(
      '"run gc" removes every attachment that is not named: give --valid ID/IFNAME for each that stays, or --all',
    );
  }
  return valid.map((text) => {
    const slash = text.indexOf("/");
    const attachment = slash < 0
      ? { containerId: text, ifname }
      : { containerId: text.slice(0, slash), ifname: text.slice(slash + 1) };
    const [what, problem] = containerIdProblem(attachment.containerId)
      ? ["container id", containerIdProblem(attachment.containerId)]
      : ["interface name", ifnameProblem(attachment.ifname)];
    if (!problem) return attachment;
    throw new UsageError(`--valid must be ID or ID/IFNAME: got ${JSON.stringify(text)}, whose ${what} ${problem}`);
  });
}

/** Seconds unless a unit follows. */
function parseTimeout(text: string): number {
  const [, digits, unit = "s"] = /^([0-9]+(?:\.[0-9]+)?)(ms|s|m)?$/.exec(text) ?? [];
  const ms = Number(digits) * { ms: 1, s: 1000, m: 60_000 }[unit as "ms" | "s" | "m"];
  if (ms >= 1) return Math.round(ms);
  throw new UsageError(`--timeout must be a time such as "30s" or "500ms": got ${JSON.stringify(text)}`);
}

function parseOrUsageError<T>(subject: string, text: string, parseText: (text: string) => T): T {
  try {
    return parseText(text);
  } catch (error) {
    throw new UsageError(`${subject}: ${error instanceof Error ? error.message : error}`);
  }
}
