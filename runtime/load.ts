import { SystemError, withPurpose } from "../ffi/sys/error.ts";
import { findEntryNames } from "../ffi/sys/directory.ts";
import { readAll, readFile } from "../ffi/sys/file.ts";
import { withSignalsUnblocked } from "../ffi/sys/signals.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { CniError, Code, ConfigError } from "../spec/error.ts";
import { parseJson, stringifyJson } from "../spec/jsonc.ts";
import {
  isSinglePluginDocument,
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

/** Says where to look, and whom to tell. */
export interface LoadOptions {
  /** Where to look for names; default: `/etc/cni/net.d`. */
  readonly directory?: string;
  /** Reads the network `-`; default: standard input. */
  readonly readStdin?: () => string;
  /** Told of unusable files, and of duplicate names and keys. */
  readonly log?: (message: string) => void;
  /** Whether to log duplicates; default: true. */
  readonly logDuplicates?: boolean;
}
type Log = NonNullable<LoadOptions["log"]>;

/**
 * Loads a network (SPEC §1): `-` for standard input, a path if it has a `/`, else a name.
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
 * @throws {CniError} code 7 without such a network; for `default` also if an unreadable file may configure it
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

function loadFromFile(path: string, log?: Log): NetworkConfigList {
  return complete(parseNetworkConfigList(readConfiguration(path, true), path), path, log);
}

/** Waits for no pipe, otherwise as {@linkcode loadNetwork}. */
export function loadListedNetwork(path: string, log?: Log): NetworkConfigList {
  return complete(parseNetworkConfigList(readConfiguration(path), path), path, log);
}

function complete(list: NetworkConfigList, path: string, log?: Log): NetworkConfigList {
  warnOfDuplicateKeys(list, log);
  return requirePlugins(withPluginDirectory(list, path, log));
}

export function readConfigurationFromStdin(): string {
  return decodeUtf8Configuration(
    withPurpose("read standard input", () => withSignalsUnblocked(() => readAll(0))),
    "standard input",
  );
}

/** @param wait for a pipe's writer, as of `<(…)`; a pipe in a directory must not block the search */
export function readConfiguration(path: string, wait = false): string {
  return decodeUtf8Configuration(wait ? withSignalsUnblocked(() => readFile(path)) : readFile(path, false), path);
}

/** @throws {SyntaxError} if it is not UTF-8: a replaced byte would change a value unseen */
export function decodeUtf8Configuration(bytes: Uint8Array, source: string): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new SyntaxError(`Cannot parse ${source}: it is not UTF-8`);
  }
}

export function listNetworkNames(directory: string): string[] {
  return [...new Set(searchDirectory(directory, undefined).names)];
}

interface SearchResult {
  readonly list: NetworkConfigList | undefined;
  readonly names: readonly string[];
  readonly problems: readonly string[];
  /** Files that name no network may configure any. */
  readonly possibleMatches: readonly string[];
}

function searchDirectory(directory: string, name: string | undefined, log?: Log): SearchResult {
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
      // Replaced since the directory was listed.
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

/** People edit the wrong file. */
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

/** Lists first, then by bytes as in libcni: `10-a` before `9-b`. */
export function listConfFiles(directory: string): string[] {
  const names = sortedByBytes(findEntryNames(directory) ?? []);
  const lists = names.filter((name) => name.endsWith(".conflist"));
  const singleFiles = names.filter((name) => isConfFileName(name) && !name.endsWith(".conflist"));
  return [...lists, ...singleFiles].map((name) => `${directory.replace(/\/+$/, "")}/${name}`);
}

export function isConfFileName(name: string): boolean {
  return /\.(conflist|conf|json|jsonc)$/.test(name);
}

/** Adds the plugins of `DIR/NAME/*.conf` (SPEC §Network configuration format, loadOnlyInlinedPlugins). */
function withPluginDirectory(list: NetworkConfigList, path: string, log?: Log): NetworkConfigList {
  const document = parseJson(list.text) as JsonObject;
  if (list.loadOnlyInlinedPlugins || isSinglePluginDocument(document)) return list;
  const files = findPluginFiles(path, list.name);
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
  // The cache keeps this text; DEL must find all plugins in it.
  const mergedDocument = { ...document, loadOnlyInlinedPlugins: true, plugins: plugins.map(({ raw }) => raw) };
  // No file holds this text: a position in it would mislead.
  const { source: _, ...rest } = list;
  return { ...rest, plugins, text: stringifyJson(mergedDocument) };
}

export function findPluginFiles(path: string, network: string): string[] {
  const slash = path.lastIndexOf("/");
  const directory = `${slash < 0 ? "." : path.slice(0, slash)}/${network}`;
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

function tryParseJson(text: string): unknown {
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

function hasName(document: unknown, name: string | undefined): boolean {
  return isJsonObject(document) && Object.hasOwn(document, "name") && document.name === name;
}

/** Older guides for loopback have a plugin without a name. */
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
  const builtIn = names.includes(DEFAULT_NETWORK_NAME) ? [] : [`"${DEFAULT_NETWORK_NAME}" is built in`];
  return new CniError(Code.InvalidConfig, `Cannot find network ${JSON.stringify(name)} in "${directory}"${hint}`, {
    details: [describeNetworksIn(directory, names), ...builtIn, ...problems].join("; "),
  });
}

function describeNetworksIn(directory: string, names: readonly string[]): string {
  if (names.length > 0) {
    return `the networks there are ${[...new Set(names)].map((name) => JSON.stringify(name)).join(", ")}`;
  }
  return findStat(directory) ? "there is no configuration of another network either" : "the directory does not exist";
}

/** The built-in network has other addresses than the administrator's. */
function defaultNetworkUnreadable(name: string, directory: string, possibleMatches: readonly string[]): CniError {
  return new CniError(
    Code.InvalidConfig,
    `Cannot use the built-in network "${name}": "${directory}" may configure it in a file that cannot be understood`,
    { details: possibleMatches.join("; ") },
  );
}
