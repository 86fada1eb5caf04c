/**
 * Finding the configuration of a network: by name in a directory, by path, or on standard input.
 *
 * @see SPEC.md §1 Network configuration format
 * @module
 */
import { SystemError, withPurpose } from "../ffi/sys/error.ts";
import { findEntryNames } from "../ffi/sys/directory.ts";
import { readAll, readFile } from "../ffi/sys/file.ts";
import { withSignalsUnblocked } from "../ffi/sys/signals.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { CniError, Code, ConfigError } from "../spec/error.ts";
import { parseJson, stringifyJson } from "../spec/jsonc.ts";
import {
  type NetworkConfigList,
  parseNetworkConfigList,
  parsePluginEntry,
  type PluginEntry,
} from "../spec/network_config_list.ts";
import { isJsonObject, type JsonObject } from "../spec/schema.ts";
import { describeUnknownKey } from "../spec/unknown_keys.ts";
import { suggestion } from "../spec/suggest.ts";
import { DEFAULT_NETWORK, DEFAULT_NETWORK_NAME } from "./default_network.ts";
import { describeDuplicateKeys } from "./duplicate_keys.ts";
import { findUnknownListKeys } from "./unknown_keys.ts";
import { sortedByBytes } from "./sort_by_bytes.ts";

/** Where to look, and whom to tell. */
export interface LoadOptions {
  /** Where configurations are looked up by name: `/etc/cni/net.d`, unless told. */
  readonly directory?: string;
  /** Gives the text for the network `-`: standard input, unless told. */
  readonly readStdin?: () => string;
  /** Told of each file that cannot be used, and of names and keys that are there twice; nobody is, unless told. */
  readonly log?: (message: string) => void;
  /** Whether `log` is told of what is there twice: it is, unless told. */
  readonly logDuplicates?: boolean;
}
type Log = NonNullable<LoadOptions["log"]>;

/**
 * The network that `network` stands for: `-` for the text on standard input, a path if it has a `/`, else a name.
 *
 * @example
 * ```ts
 * import { loadNetwork } from "./mod.ts";
 *
 * const network = loadNetwork("web", { directory: "/etc/cni/net.d", log: console.error });
 * console.log(network.plugins.map(({ type }) => type)); // [ "bridge", "portmap" ]
 * console.log(loadNetwork("/etc/cni/net.d/web.conflist").name); // web
 * console.log(loadNetwork("default").source); // the built-in default network
 * ```
 *
 * @throws {CniError} code 7 if there is none of that name, naming those that are there, and for `default` also if it may be what stands in a
 *   file that cannot be understood
 * @throws {SystemError} if the file cannot be read
 * @throws {ConfigError} if it cannot be used, and {SyntaxError} if it is no JSON
 */
export function loadNetwork(network: string, options: LoadOptions = {}): NetworkConfigList {
  const { directory = "/etc/cni/net.d", readStdin = readConfigurationFromStdin, log, logDuplicates = true } = options;
  const duplicateLog = logDuplicates ? log : undefined;
  if (network === "-") {
    const list = requirePlugins(parseNetworkConfigList(readStdin(), "standard input"));
    warnOfDuplicateKeys(list, duplicateLog);
    return list;
  }
  if (network.includes("/")) return loadFromFile(network, duplicateLog);
  const { list, names, problems, possibleMatches } = searchDirectory(directory, network, duplicateLog);
  if (!list && network !== DEFAULT_NETWORK_NAME) throw networkNotFound(network, directory, names, problems);
  if (!list && possibleMatches.length > 0) throw defaultNetworkUnreadable(network, directory, possibleMatches);
  for (const problem of problems) log?.(problem);
  return list ?? parseNetworkConfigList(DEFAULT_NETWORK, "the built-in default network");
}

/** Reads the network in one file, with the plugins that stand in files of their own beside it. */
function loadFromFile(path: string, log?: Log): NetworkConfigList {
  return complete(parseNetworkConfigList(readConfiguration(path, true), path), path, log);
}

/** The list of a file with what belongs to it. */
function complete(list: NetworkConfigList, path: string, log?: Log): NetworkConfigList {
  warnOfDuplicateKeys(list, log);
  return requirePlugins(withPluginDirectory(list, path, log));
}

function readConfigurationFromStdin(): string {
  return decodeUtf8Configuration(
    withPurpose("read standard input", () => withSignalsUnblocked(() => readAll(0))),
    "standard input",
  );
}

/** @param wait a file that somebody names may be a pipe, as of a shell's `<(…)`; one that lies in a directory must not keep others from being found */
function readConfiguration(path: string, wait = false): string {
  return decodeUtf8Configuration(wait ? withSignalsUnblocked(() => readFile(path)) : readFile(path, false), path);
}

/** The text of a configuration. @throws {SyntaxError} if it is not UTF-8: what is replaced there would be used as something else */
export function decodeUtf8Configuration(bytes: Uint8Array, source: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new SyntaxError(`Cannot parse ${source}: it is not UTF-8`);
  }
}

interface SearchResult {
  readonly list: NetworkConfigList | undefined;
  /** Of the other networks that were come across. */
  readonly names: readonly string[];
  /** Files that cannot be used, and why. */
  readonly problems: readonly string[];
  /** Those of them that may be the configuration of any network, since they do not say of which. */
  readonly possibleMatches: readonly string[];
}

/** Reads files until one has the name. A file that cannot be used does not hide those behind it. */
function searchDirectory(directory: string, name: string, log?: Log): SearchResult {
  const names: string[] = [];
  const problems: string[] = [];
  const possibleMatches: string[] = [];
  const paths = listConfFiles(directory);
  for (const [i, path] of paths.entries()) {
    let text = "";
    let list: NetworkConfigList;
    try {
      text = readConfiguration(path);
      list = parseNetworkConfigList(text, path);
    } catch (error) {
      if (error instanceof SystemError && error.code === "EISDIR") continue;
      const document = tryParseJson(text);
      if (!isConfigurationError(error) || hasName(document, name)) throw error;
      problems.push(`Ignoring configuration file "${path}": ${formatError(error)}`);
      // It may have gone since the directory was listed, as when it is replaced.
      const isGone = error instanceof SystemError && error.code === "ENOENT";
      if (!isGone && isNameless(document)) possibleMatches.push(`"${path}": ${formatError(error)}`);
      continue;
    }
    if (list.name === name) {
      if (log) warnOfSecondFile(list, paths.slice(i + 1), log);
      return { list: complete(list, path, log), names, problems, possibleMatches };
    }
    names.push(list.name);
  }
  return { list: undefined, names, problems, possibleMatches };
}

/** Nobody would look for a mistake in the file that is not used. */
function warnOfSecondFile({ name, source }: NetworkConfigList, otherPaths: readonly string[], log: Log): void {
  const second = otherPaths.find((path) => {
    try {
      return hasName(parseJson(readConfiguration(path)), name);
    } catch {
      return false;
    }
  });
  if (second !== undefined) log(`network "${name}" is in two files: "${source}" is used, and "${second}" is not`);
}

function warnOfDuplicateKeys(
  { name, text, source = "" }: Pick<NetworkConfigList, "name" | "text" | "source">,
  log?: Log,
): void {
  if (log) { for (const problem of describeDuplicateKeys(text, source)) log(`network "${name}": ${problem}`); }
}

/** Lists come first, as in the reference; within a kind the bytes of the names decide: `10-a` before `9-b`. */
function listConfFiles(directory: string): string[] {
  const names = sortedByBytes(findEntryNames(directory) ?? []);
  const lists = names.filter((name) => name.endsWith(".conflist"));
  const singleFiles = names.filter((name) => /\.(conf|json|jsonc)$/.test(name));
  return [...lists, ...singleFiles].map((name) => `${directory.replace(/\/+$/, "")}/${name}`);
}

/** The list with the plugins in `DIR/NAME/*.conf` behind its own (SPEC §Network configuration format, loadOnlyInlinedPlugins). */
function withPluginDirectory(list: NetworkConfigList, path: string, log?: Log): NetworkConfigList {
  const document = parseJson(list.text) as JsonObject;
  const isSinglePlugin = !Object.hasOwn(document, "plugins") && Object.hasOwn(document, "type");
  if (list.loadOnlyInlinedPlugins || isSinglePlugin) return list;
  const slash = path.lastIndexOf("/");
  const directory = `${slash < 0 ? "." : path.slice(0, slash)}/${list.name}`;
  const files = findPluginFiles(directory);
  if (files.length === 0) return list;
  const plugins: PluginEntry[] = [
    ...list.plugins,
    ...files.map((file) => {
      const text = readConfiguration(file);
      const entry = parsePluginEntry(text, file);
      warnOfDuplicateKeys({ name: list.name, text, source: file }, log);
      return entry;
    }),
  ];
  // The text goes to the cache, and what is removed later must be all that was added.
  const mergedDocument = { ...document, loadOnlyInlinedPlugins: true, plugins: plugins.map(({ raw }) => raw) };
  // No file holds this text, so a position in it would mislead.
  const { source: _, ...rest } = list;
  return { ...rest, plugins, text: stringifyJson(mergedDocument) };
}

function findPluginFiles(directory: string): string[] {
  if (!findStat(directory)?.isDirectory) return [];
  const names = sortedByBytes(findEntryNames(directory) ?? []).filter((name) => name.endsWith(".conf"));
  return names.map((name) => `${directory}/${name}`).filter((path) => findStat(path)?.isDirectory !== true);
}

function requirePlugins(list: NetworkConfigList): NetworkConfigList {
  if (list.plugins.length > 0) return list;
  const misspeltKeys = findUnknownListKeys(parseJson(list.text) as JsonObject).filter(({ hint }) => hint)
    .map((unknownKey) => `; ${describeUnknownKey(unknownKey)}`);
  throw new ConfigError("plugins", "an array with at least one plugin", `nothing${misspeltKeys.join("")}`, {
    network: list.name,
    ...(list.source !== undefined && { file: list.source }),
  });
}

function isConfigurationError(error: unknown): error is Error {
  return [SystemError, SyntaxError, ConfigError, CniError].some((kind) => error instanceof kind);
}

/** What is in a text that cannot be used; `undefined` if it is no JSON. */
function tryParseJson(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

function hasName(document: unknown, name: string): boolean {
  return isJsonObject(document) && Object.hasOwn(document, "name") && document.name === name;
}

/** Whether it may be the configuration of any network. A plugin without a name, as older guides have it for loopback, is that of none. */
function isNameless(document: unknown): boolean {
  if (document === undefined) return true;
  return isJsonObject(document) && Object.hasOwn(document, "plugins") && !Object.hasOwn(document, "name");
}

function formatError(error: Error): string {
  const { message, details } = CniError.from(error);
  return details ? `${message} (${details})` : message;
}

function networkNotFound(
  name: string,
  directory: string,
  names: readonly string[],
  problems: readonly string[],
): CniError {
  const hint = suggestion(name, [...names, DEFAULT_NETWORK_NAME]);
  const available = names.length > 0
    ? `the networks there are ${[...new Set(names)].map((networkName) => JSON.stringify(networkName)).join(", ")}`
    : findStat(directory)
    ? "there is no configuration of another network either"
    : "the directory does not exist";
  const builtIn = names.includes(DEFAULT_NETWORK_NAME) ? [] : [`"${DEFAULT_NETWORK_NAME}" is built in`];
  return new CniError(Code.InvalidConfig, `Cannot find network ${JSON.stringify(name)} in "${directory}"${hint}`, {
    details: [available, ...builtIn, ...problems].join("; "),
  });
}

/** What was written for it would be left out: other addresses, and no firewall. */
function defaultNetworkUnreadable(name: string, directory: string, possibleMatches: readonly string[]): CniError {
  return new CniError(
    Code.InvalidConfig,
    `Cannot use the built-in network "${name}": "${directory}" may configure it in a file that cannot be understood`,
    { details: possibleMatches.join("; ") },
  );
}
