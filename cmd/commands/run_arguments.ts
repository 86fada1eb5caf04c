/**
 * The command line of `cni run`: what is asked for, from options and, where there is none, from the variables of cnitool.
 *
 * @module
 */
import { derivedContainerId } from "../../runtime/container_id.ts";
import { type Ip, parseIp, parseMac } from "../../ffi/address.ts";
import { namedNetnsPath } from "../../ffi/named_netns.ts";
import { findStatus } from "../../ffi/sys/stat.ts";
import type { Attachment } from "../../spec/plugin_config.ts";
import { containerIdProblem, ifnameProblem } from "../../spec/env.ts";
import { parseJson } from "../../spec/jsonc.ts";
import { isJsonObject, type JsonObject } from "../../spec/schema.ts";
import { type Arguments, type OptionSpec, parseOptions, UsageError } from "../options.ts";
import { parsePublish, type PortMapping } from "../published_port.ts";
import { suggestion } from "../../spec/suggest.ts";

export type RunVerb = "add" | "check" | "del" | "gc" | "status" | "restore" | "list" | "derive";
const VERBS: readonly RunVerb[] = ["add", "check", "del", "gc", "status", "restore", "list", "derive"];

/** The commands that requests can be derived for. */
const DERIVED = ["ADD", "CHECK", "DEL", "GC", "STATUS"] as const;

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
  readonly publish: readonly PortMapping[];
  readonly ips: readonly string[];
  readonly mac?: string;
  /** For gc: what is to stay. */
  readonly valid: readonly Attachment[];
  /** For programs that are started. */
  readonly timeoutMs?: number;
  readonly json: boolean;
  /** For derive: what is asked of the plugins. */
  readonly command: (typeof DERIVED)[number];
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

type Variables = Readonly<Record<string, string | undefined>>;

/** What relative paths start from; `undefined` if it was removed. */
type FindDirectory = () => string | undefined;

/**
 * Reads the command line after `cni run`.
 *
 * @param cwd asked where a path is relative
 * @returns `undefined` if help is asked for
 * @throws {UsageError} naming what cannot be understood
 */
export function parseRun(argv: readonly string[], env: Variables, cwd: FindDirectory): RunRequest | undefined {
  const given = parseOptions(argv, RUN_OPTIONS, env);
  if (given.has("help")) return undefined;
  if (given.words[0] === "help") return undefined;
  const { verb, network, netnsText, surplus } = wordsOf(given);
  const netns = netnsText === undefined ? undefined : netnsPath(netnsText, cwd);
  const args = given.find("args");
  const capabilities = given.find("cap-args");
  const mac = given.find("mac");
  const timeout = given.find("timeout");
  const ifname = given.find("ifname") ?? "eth0";
  return {
    verb,
    network,
    ...(netns !== undefined && { netns }),
    containerId: containerIdOf(given, verb, netns),
    ifname,
    confDirectory: absolutePath(given.find("conf-dir") ?? "/etc/cni/net.d", cwd),
    pluginDirectories: (given.find("plugin-dir") ?? "/opt/cni/bin").split(":").filter((each) => each !== "")
      .map((each) => absolutePath(each, cwd)),
    cacheDirectory: absolutePath(given.find("cache-dir") ?? "/var/lib/cni", cwd),
    ...(args !== undefined && { args: parseArgsOption(args) }),
    ...(capabilities !== undefined && { capabilityArgs: parseCapabilityArgs(capabilities) }),
    publish: given.list("publish").map(parsePublish),
    ips: given.list("ip").map(parseAddress),
    ...(mac !== undefined && { mac: parse("--mac", mac, parseMac) }),
    valid: validOf(given, verb, ifname),
    ...(timeout !== undefined && { timeoutMs: parseTime(timeout) }),
    json: given.has("json"),
    command: parseCommand(given, verb),
    surplus,
  };
}

interface Words {
  readonly verb: RunVerb;
  readonly network: string;
  readonly netnsText: string | undefined;
  readonly surplus: readonly string[];
}

function wordsOf({ words }: Arguments): Words {
  const [verb, network = "", netnsText, ...surplus] = words;
  const known = VERBS.find((each) => each === verb);
  if (verb === undefined) throw new UsageError(`what shall be run? ${VERBS.join(", ")}`);
  if (!known) throw new UsageError(`unknown command "run ${verb}"${suggestion(verb, VERBS)}`);
  const takesAll = known === "list" || known === "restore";
  if (network === "" && !takesAll) {
    throw new UsageError(`"run ${verb}" needs a network: a name, a path, or -`);
  }
  if (takesAll) return { verb: known, network, netnsText: undefined, surplus: words.slice(2) };
  if (!netnsText && (verb === "add" || verb === "check")) {
    throw new UsageError(`"run ${verb} ${network}" needs a network namespace: a name (see "cni netns list") or a path`);
  }
  // cnitool demands one for these, and does nothing with it.
  const unused = known === "gc" || known === "status";
  return { verb: known, network, netnsText: unused ? undefined : netnsText || undefined, surplus };
}

/** What has a slash is a path. A name is one of /run/netns, or, where none is there, a file of that name, as cnitool has it. */
function netnsPath(text: string, cwd: FindDirectory): string {
  if (text.includes("/")) return absolutePath(text, cwd);
  const named = parse("network namespace", text, namedNetnsPath);
  if (findStatus(named) || cwd() === undefined) return named;
  const path = absolutePath(text, cwd);
  return findStatus(path) ? path : named;
}

function parseCommand(given: Arguments, verb: RunVerb): RunRequest["command"] {
  const text = given.find("command");
  if (text === undefined) return "ADD";
  if (verb !== "derive") throw new UsageError('"--command" belongs to "run derive"');
  const command = DERIVED.find((each) => each === text.toUpperCase());
  if (command) return command;
  throw new UsageError(`--command must be one of ${DERIVED.join(", ")}: got ${JSON.stringify(text)}`);
}

/**
 * The path from the root, without `.`, `..` and doubled slashes, by its letters alone.
 *
 * @throws {UsageError} if it is relative to a directory that was removed
 */
export function absolutePath(path: string, cwd: FindDirectory): string {
  const start = path.startsWith("/") ? "" : cwd();
  if (start === undefined) {
    throw new UsageError(`"${path}" is relative to the working directory, and that was removed`);
  }
  const parts: string[] = [];
  for (const part of `${start}/${path}`.split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return `/${parts.join("/")}`;
}

function containerIdOf(given: Arguments, verb: RunVerb, netns: string | undefined): string {
  const id = given.find("container-id");
  if (id !== undefined) return id;
  if (netns !== undefined) return derivedContainerId(netns);
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
  const node = parse("--cap-args", text, (value) => parseJson(value, "it"));
  if (isJsonObject(node)) return node;
  throw new UsageError(`--cap-args must be a JSON object such as '{"ips":["10.1.0.5"]}': got ${JSON.stringify(text)}`);
}

/** With or without a prefix length, which plugins take from their subnet. */
function parseAddress(text: string): string {
  const slash = text.indexOf("/");
  const ip: Ip = parse("--ip", slash < 0 ? text : text.slice(0, slash), parseIp);
  const length = slash < 0 ? "" : text.slice(slash);
  if (length === "" || /^\/[0-9]{1,3}$/.test(length)) return ip + length;
  throw new UsageError(`--ip must be an address such as "10.1.0.5" or "10.1.0.5/16": got ${JSON.stringify(text)}`);
}

function validOf(given: Arguments, verb: RunVerb, ifname: string): Attachment[] {
  const valid = given.list("valid");
  if (verb === "restore" && valid.length === 0) {
    if (!given.has("all") || given.words.length < 2) return [];
    throw new UsageError(`"run restore" takes a network or --all, not both: got "${given.words[1]}"`);
  }
  if (verb !== "gc" && !(verb === "derive" && given.find("command")?.toUpperCase() === "GC")) {
    if (valid.length > 0 || given.has("all")) {
      throw new UsageError('"--valid" and "--all" belong to "run gc", "--all" also to "run restore"');
    }
    return [];
  }
  if (valid.length > 0 && given.has("all") || verb === "gc" && valid.length === 0 && !given.has("all")) {
    throw new UsageError(
      '"run gc" removes every attachment that is not named: give --valid ID/IFNAME for each that stays, or --all',
    );
  }
  return valid.map((text) => {
    const slash = text.indexOf("/");
    const each = slash < 0
      ? { containerId: text, ifname }
      : { containerId: text.slice(0, slash), ifname: text.slice(slash + 1) };
    const [what, problem] = containerIdProblem(each.containerId)
      ? ["container id", containerIdProblem(each.containerId)]
      : ["interface name", ifnameProblem(each.ifname)];
    if (!problem) return each;
    throw new UsageError(`--valid must be ID or ID/IFNAME: got ${JSON.stringify(text)}, whose ${what} ${problem}`);
  });
}

/** Seconds unless a unit follows. */
function parseTime(text: string): number {
  const [, digits, unit = "s"] = /^([0-9]+(?:\.[0-9]+)?)(ms|s|m)?$/.exec(text) ?? [];
  const ms = Number(digits) * { ms: 1, s: 1000, m: 60_000 }[unit as "ms" | "s" | "m"];
  if (ms >= 1) return Math.round(ms);
  throw new UsageError(`--timeout must be a time such as "30s" or "500ms": got ${JSON.stringify(text)}`);
}

function parse<T>(what: string, text: string, parser: (text: string) => T): T {
  try {
    return parser(text);
  } catch (error) {
    throw new UsageError(`${what}: ${error instanceof Error ? error.message : error}`);
  }
}
