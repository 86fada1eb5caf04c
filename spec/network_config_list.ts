import {
  type Attachment,
  attachmentsSchema,
  capabilitiesSchema,
  formatPluginConfig,
  type PluginConfig,
  pluginTypeSchema,
  readPluginConfig,
} from "./plugin_config.ts";
import { networkNameProblem } from "./env.ts";
import { CniError, Code, ConfigError } from "./error.ts";
import { excerpt, locate, parseJson, pathSegments } from "./jsonc.ts";
import { dnsSchema, type Result, resultAsSeenIn } from "./result.ts";
import * as schema from "./schema.ts";
import { suggestion } from "./suggest.ts";
import { atLeast, type CniCommand, compareVersions, parseVersion, type Version, VERSIONS } from "./version.ts";

/** A network (SPEC §Configuration format). */
export interface NetworkConfigList {
  /** A letter or digit, then letters, digits, `_`, `.` and `-`. */
  readonly name: string;
  /** The newest listed version that this program speaks. */
  readonly cniVersion: Version;
  /** CHECK succeeds without asking a plugin. */
  readonly disableCheck: boolean;
  /** GC does nothing: for lists that share a name. */
  readonly disableGC: boolean;
  /** Plugins in files of their own are ignored. */
  readonly loadOnlyInlinedPlugins: boolean;
  /** May be empty: plugins can be in files of their own. */
  readonly plugins: readonly PluginEntry[];
  /** The text as somebody wrote it. */
  readonly text: string;
  /** The path of the file, if it came from one. */
  readonly source?: string;
}

/** An object of the list's `plugins`. */
export interface PluginEntry {
  /** Names a program, without a directory. */
  readonly type: string;
  /** The `ipam.type` of the object, if any. */
  readonly ipamType?: string;
  /** Those that the object declares with `true`. */
  readonly capabilities: readonly string[];
  /** The object as somebody wrote it. */
  readonly raw: schema.JsonObject;
}

export interface PluginRequestOptions {
  readonly command: CniCommand;
  readonly prevResult?: Result;
  /** Plugins get those that they declare. */
  readonly capabilityArgs?: schema.JsonObject;
  readonly validAttachments?: readonly Attachment[];
}

const networkNameSchema = schema.refine(
  schema.nonEmptyString,
  'a letter or digit, then letters, digits, "_", "." and "-"',
  (name) => networkNameProblem(name) === undefined,
);
export const pluginEntrySchema = schema.lazy(() =>
  schema.knownKeys({
    type: pluginTypeSchema,
    capabilities: schema.withDefault(capabilitiesSchema, {}),
    ipam: schema.optional(schema.knownKeys({ type: schema.optional(pluginTypeSchema) })),
    dns: schema.optional(dnsSchema),
    prevResult: schema.optional(schema.jsonObject),
    "cni.dev/valid-attachments": schema.optional(attachmentsSchema),
    "cni.dev/attachments": schema.optional(attachmentsSchema),
  })
);

// Far above any need: a wrong file could take minutes otherwise.
const MAX_PLUGINS = 1000;
const MAX_TEXT_LENGTH = 4 * 1024 * 1024;

// Version 0.4.0 has it as text.
const booleanOrText: schema.Schema<boolean> = {
  parse: (node, path) =>
    typeof node === "string" && /^(true|false)$/i.test(node)
      ? node.toLowerCase() === "true"
      : schema.boolean.parse(node, path),
};

/**
 * Reads a network list, or a single plugin's object as a list of one; comments and trailing commas are allowed. As in
 * libcni, the list's own keys match exactly, those of plugins in any case.
 *
 * @example
 * ```ts
 * import { parseNetworkConfigList } from "./mod.ts";
 *
 * const network = parseNetworkConfigList(`{
 *   "cniVersion": "0.4.0", "cniVersions": ["1.0.0", "1.1.0"], "name": "web",
 *   // Comments and trailing commas are fine.
 *   "plugins": [{ "type": "bridge" }, { "type": "portmap", "capabilities": { "portMappings": true } }],
 * }`);
 * console.log(network.cniVersion); // 1.1.0
 * console.log(network.plugins[1]!.capabilities); // [ "portMappings" ]
 * ```
 *
 * @param source the text's file, for errors
 * @throws {SyntaxError} naming line and column
 * @throws {ConfigError} naming network, path, line and column
 * @throws {CniError} code 1 if no version of the list is known
 */
export function parseNetworkConfigList(text: string, source?: string): NetworkConfigList {
  return parseLocated(text, source, (node) => {
    const list = schema.jsonObject.parse(node);
    return {
      name: listReaders.name(list),
      cniVersion: listReaders.cniVersion(list),
      disableCheck: listReaders.disableCheck(list),
      disableGC: listReaders.disableGC(list),
      loadOnlyInlinedPlugins: listReaders.loadOnlyInlinedPlugins(list),
      plugins: isSinglePluginDocument(list) ? [parseEntry(list, "")] : parseEntries(list),
      text,
      ...(source !== undefined && { source }),
    };
  });
}

export function isSinglePluginDocument(document: schema.JsonObject): boolean {
  return !Object.hasOwn(document, "plugins") && Object.hasOwn(document, "type");
}

const readFlag = (key: string) => (list: schema.JsonObject): boolean =>
  !isSinglePluginDocument(list) && parseMember(list, key, booleanOrText, false);

/** Each of the list's own keys but `plugins`. All throw {@linkcode ConfigError}, `cniVersion` also {@linkcode CniError}. */
export const listReaders = {
  name: (list: schema.JsonObject): string => networkNameSchema.parse(ownValue(list, "name"), "name"),
  cniVersion: chooseVersion,
  disableCheck: readFlag("disableCheck"),
  disableGC: readFlag("disableGC"),
  loadOnlyInlinedPlugins: readFlag("loadOnlyInlinedPlugins"),
};

export function parsePluginEntry(text: string, source?: string): PluginEntry {
  return parseLocated(text, source, (node) => parseEntry(node, ""));
}

/**
 * Unknown keys pass unchanged, numbers included.
 *
 * @param warn gets what a DEL continues without
 * @throws {CniError} if the list's version cannot express `prevResult`
 */
export function derivePluginConfig(
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: PluginRequestOptions,
  warn?: (problem: string) => void,
): PluginConfig {
  const { command, prevResult } = options;
  // A newer result may have no form in 0.2; DEL must work all the same.
  const isSeen = takesPrevResult(command) && (command !== "DEL" || atLeast(list.cniVersion, "0.3.0"));
  const seenPrevResult = prevResult && isSeen ? resultAsSeenIn(list.cniVersion, prevResult) : undefined;
  // Plugins of this process answer STATUS in every version.
  return readPluginConfig(deriveDocument(list, plugin, options), command === "STATUS" ? "ADD" : command, {
    prevResult: seenPrevResult,
    ...warn && { warn },
  });
}

/** A program checks its configuration itself. */
export function deriveProgramConfig(
  list: NetworkConfigList,
  plugin: PluginEntry,
  options: PluginRequestOptions,
): PluginConfig {
  const { command, prevResult } = options;
  return {
    name: list.name,
    cniVersion: list.cniVersion,
    type: plugin.type,
    ...prevResult && takesPrevResult(command) && { prevResult },
    runtimeConfig: {},
    args: {},
    capabilities: {},
    raw: deriveDocument(list, plugin, options),
  };
}

const takesPrevResult = (command: CniCommand): boolean => command === "ADD" || command === "DEL" || command === "CHECK";

function deriveDocument(
  list: NetworkConfigList,
  plugin: PluginEntry,
  { command, capabilityArgs = {}, validAttachments = [] }: PluginRequestOptions,
): schema.JsonObject {
  const derivedKeys: Record<string, unknown> = { cniVersion: list.cniVersion, name: list.name };
  // A prevResult in the file would tell the first plugin that another ran before it (SPEC §ADD).
  const removedKeys = ["cniversion", "name", "prevresult"];
  if (takesPrevResult(command)) {
    removedKeys.push("capabilities"); // for the runtime only (SPEC §Deriving, DRV-08)
    const provided = plugin.capabilities.filter((name) => (ownValue(capabilityArgs, name) ?? undefined) !== undefined);
    const runtimeConfig = Object.fromEntries(provided.map((name) => [name, capabilityArgs[name]]));
    // Otherwise a static runtimeConfig stays: people test plugins that way.
    if (provided.length > 0) derivedKeys.runtimeConfig = runtimeConfig;
  }
  if (command === "GC") {
    const attachments = validAttachments.map(({ containerId, ifname }) => ({ containerID: containerId, ifname }));
    derivedKeys["cni.dev/valid-attachments"] = attachments;
    derivedKeys["cni.dev/attachments"] = attachments;
  }
  removedKeys.push(...Object.keys(derivedKeys).map((key) => key.toLowerCase()));
  const passedOn = Object.entries(plugin.raw).filter(([key]) => !removedKeys.includes(key.toLowerCase()));
  return Object.fromEntries([...Object.entries(derivedKeys), ...passedOn]);
}

export function deriveRequest(list: NetworkConfigList, plugin: PluginEntry, options: PluginRequestOptions): string {
  return formatPluginConfig(deriveProgramConfig(list, plugin, options), options.command);
}

/** Chooses the newest offered version that this program speaks. */
function chooseVersion(list: schema.JsonObject): Version {
  const listVersion = parseMember(list, "cniVersion", schema.string, undefined);
  const offeredVersions = parseMember(list, "cniVersions", schema.array(schema.string), []);
  if (Object.hasOwn(list, "cniVersions")) {
    offeredVersions.forEach((version, i) => requireNumericVersion(version, `cniVersions[${i}]`));
    if (listVersion !== undefined) requireNumericVersion(listVersion, "cniVersion");
  }
  const candidates = listVersion === undefined && offeredVersions.length > 0
    ? offeredVersions
    : [listVersion ?? "", ...offeredVersions];
  const known = candidates.map(parseVersion).filter((version) => version !== undefined).sort(compareVersions);
  const newest = known.at(-1);
  if (newest) return newest;
  throw new CniError(
    Code.IncompatibleVersion,
    `Cannot use network ${excerpt(list.name)}: no supported version among ${excerpt(candidates)}`,
    { details: `supported are ${VERSIONS.join(", ")}` },
  );
}

function requireNumericVersion(version: string, path: string): void {
  try {
    compareVersions(version, "0.1.0");
  } catch {
    throw new ConfigError(path, 'a version such as "1.1.0"', excerpt(version));
  }
}

function parseEntries(list: schema.JsonObject): readonly PluginEntry[] {
  return readEntryNodes(list).map((node, i) => parseEntry(node, `plugins[${i}]`));
}

export function readEntryNodes(list: schema.JsonObject): readonly unknown[] {
  if (!Object.hasOwn(list, "plugins")) {
    if (!parseMember(list, "loadOnlyInlinedPlugins", booleanOrText, false)) return [];
    throw new ConfigError("plugins", "an array, as loadOnlyInlinedPlugins is true", "nothing");
  }
  const nodes = schema.array(schema.anything).parse(list.plugins, "plugins");
  if (nodes.length === 0) throw new ConfigError("plugins", "an array with at least one plugin", "[]");
  if (nodes.length > MAX_PLUGINS) {
    throw new ConfigError("plugins", `an array of at most ${MAX_PLUGINS} plugins`, String(nodes.length));
  }
  return nodes;
}

function parseEntry(node: unknown, path: string): PluginEntry {
  const raw = schema.jsonObject.parse(node, path);
  const { type, capabilities, ipam } = pluginEntrySchema.parse(raw, path);
  const declared = Object.keys(capabilities).filter((name) => capabilities[name]);
  return { type, ...(ipam?.type && { ipamType: ipam.type }), capabilities: declared, raw };
}

export function parseConfigurationText(text: string, source?: string): unknown {
  if (text.length <= MAX_TEXT_LENGTH) return parseJson(text, source);
  throw new SyntaxError(
    `Cannot parse ${source ?? "JSON"}: it has ${text.length} characters, more than ${MAX_TEXT_LENGTH}`,
  );
}

function parseLocated<T>(text: string, source: string | undefined, parse: (node: unknown) => T): T {
  const node = parseConfigurationText(text, source);
  try {
    return parse(node);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const name = schema.isJsonObject(node) ? ownValue(node, "name") : undefined;
    const { path, expected, got } = error;
    throw new ConfigError(path, expected, got + misspeltKeyHint(node, path), {
      ...(typeof name === "string" && { network: name }),
      ...(source !== undefined && { file: source }),
      ...locate(text, error.path),
    });
  }
}

/** Makes `; Name is not read; did you mean "name"?` where a similar key is there. */
function misspeltKeyHint(node: unknown, path: string): string {
  const segments = pathSegments(path);
  const missingKey = String(segments.pop());
  const parent = segments.reduce<unknown>(
    (child, segment) => (child as schema.JsonObject | undefined)?.[segment],
    node,
  );
  if (!schema.isJsonObject(parent) || Object.hasOwn(parent, missingKey)) return "";
  const key = Object.keys(parent).find((candidate) => suggestion(candidate, [missingKey]) !== "");
  if (key === undefined) return "";
  return `; ${path.slice(0, -missingKey.length)}${key} is not read${suggestion(key, [missingKey])}`;
}

/** `null` is a wrong value, not an absent one. */
function parseMember<T, A>(
  list: schema.JsonObject,
  key: string,
  valueSchema: schema.Schema<T>,
  defaultValue: A,
): T | A {
  return Object.hasOwn(list, key) ? valueSchema.parse(list[key], key) : defaultValue;
}

function ownValue(node: schema.JsonObject, key: string): unknown {
  return Object.hasOwn(node, key) ? node[key] : undefined;
}
