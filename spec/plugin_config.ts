import { networkNameProblem } from "./env.ts";
import { CniError, Code, ConfigError } from "./error.ts";
import { excerpt, memberPath, parseJson, pathSegments } from "./jsonc.ts";
import { type Dns, dnsSchema, formatResult, parseResult, type Result } from "./result.ts";
import * as schema from "./schema.ts";
import { atLeast, type CniCommand, introducedIn, LATEST, parseVersion, type Version, VERSIONS } from "./version.ts";

/** The keys that the specification defines for all plugins (SPEC §Network configuration). */
export interface PluginConfig {
  /** The name of the network, not the plugin. */
  readonly name: string;
  /** The version that the answer must have. */
  readonly cniVersion: Version;
  /** The plugin's name; empty if absent. */
  readonly type: string;
  /** The `ipam.type` of the object, if any. */
  readonly ipamType?: string;
  /** The result may take these settings. */
  readonly dns?: Dns;
  /** Absent for GC and STATUS calls. */
  readonly prevResult?: Result;
  /** Arguments from the runtime, for declared capabilities. */
  readonly runtimeConfig: schema.JsonObject;
  /** Optional hints, which are in `args.cni`. */
  readonly args: schema.JsonObject;
  /** Only the runtime reads what is declared here. */
  readonly capabilities: Readonly<Record<string, boolean>>;
  /** What GC must keep; absent if the runtime does not say. */
  readonly validAttachments?: readonly Attachment[];
  /** The whole document, with the plugin's own keys; for DEL without unusable standard keys. */
  readonly raw: schema.JsonObject;
  /** The document's text, if given: `raw` loses duplicate keys. */
  readonly text?: string;
}

/** One interface of one container. */
export interface Attachment {
  /** The value of the variable CNI_CONTAINERID. */
  readonly containerId: string;
  /** The value of the variable CNI_IFNAME. */
  readonly ifname: string;
}

export const pluginTypeSchema: schema.Schema<string> = schema.refine(
  schema.nonEmptyString,
  "the name of a plugin, without a directory",
  (type) => !type.includes("/") && !type.includes("\\") && !type.includes("\0") && type !== "." && type !== "..",
);

export const capabilitiesSchema = schema.lazy(() => schema.record(schema.withDefault(schema.boolean, false)));

const standardKeys = schema.lazy(() =>
  schema.knownKeys({
    type: schema.withDefault(schema.string, ""),
    ipam: schema.optional(schema.knownKeys({ type: schema.optional(pluginTypeSchema) })),
    dns: schema.optional(dnsSchema),
    runtimeConfig: schema.withDefault(schema.jsonObject, {}),
    capabilities: schema.withDefault(capabilitiesSchema, {}),
  })
);

export const attachmentsSchema = schema.lazy(() =>
  schema.array(schema.knownKeys({ containerID: schema.string, ifname: schema.string }))
);

interface ReadOptions {
  readonly prevResult?: Result | undefined;
  warn?(problem: string): void;
}

export function parsePluginConfig(text: string, command: CniCommand, options: ReadOptions = {}): PluginConfig {
  return { ...readPluginConfig(parseObject(text), command, options), text };
}

/**
 * Reads a configuration for a command, which its version must have. DEL uses {@linkcode parseUsableKeys}.
 *
 * @throws {ConfigError} naming network and path
 * @throws {CniError} code 1 for the version, 6 for `prevResult`, 7 for the network name
 */
export function readPluginConfig(
  document: schema.JsonObject,
  command: CniCommand,
  { prevResult: givenPrevResult, warn = () => {} }: ReadOptions = {},
): PluginConfig {
  const name = parseName(document);
  const cniVersion = parseConfigVersion(document, command);
  try {
    const { value: { ipam, ...rest }, used: raw } = command === "DEL"
      ? parseUsableKeys(standardKeys, document, warn)
      : { value: standardKeys.parse(document), used: document };
    const prevResult = givenPrevResult ?? parsePrevResult(raw, command, cniVersion);
    const validAttachments = command === "GC" ? parseAttachments(raw) : undefined;
    return {
      name,
      cniVersion,
      ...rest,
      ...(ipam?.type && { ipamType: ipam.type }),
      ...(prevResult && { prevResult }),
      ...(validAttachments && { validAttachments }),
      args: parseArgsCni(raw),
      raw,
    };
  } catch (error) {
    throw error instanceof ConfigError ? error.withLocation({ network: name }) : error;
  }
}

/** Keeps the text unchanged, if there is one. @throws {CniError} if the version cannot express `prevResult` */
export function formatPluginConfig(config: PluginConfig, command: CniCommand): string {
  if (config.text !== undefined) return config.text;
  const { raw: { cniVersion, name, ...rest }, cniVersion: version, prevResult } = config;
  const isSent = prevResult && (command !== "DEL" || atLeast(version, "0.4.0"));
  return JSON.stringify({ cniVersion, name, ...isSent && { prevResult: formatResult(prevResult, version) }, ...rest });
}

/**
 * Parses an object without the keys that `shape` cannot use. ADD refused them, so they set up nothing and must not stop
 * a DEL.
 *
 * @param warn gets each key that is left out, and why
 * @throws {ConfigError} if it is not about a key that is there
 */
export function parseUsableKeys<T>(
  shape: schema.Schema<T>,
  node: schema.JsonObject,
  warn: (problem: string) => void,
): { readonly value: T; readonly used: schema.JsonObject } {
  for (let used = node;;) {
    try {
      return { value: shape.parse(used), used };
    } catch (error) {
      const [key = ""] = error instanceof ConfigError ? pathSegments(error.path) : [];
      if (!Object.hasOwn(used, key)) throw error;
      warn(`${CniError.from(error).message}; continuing without it`);
      const { [key]: _, ...others } = used;
      used = others;
    }
  }
}

function parseObject(text: string): schema.JsonObject {
  const node = parseJson(text, "the request on stdin") ?? {};
  if (schema.isJsonObject(node)) return node;
  throw new CniError(Code.DecodeFailure, "Cannot use the request on stdin: it must be an object");
}

function parseName(raw: schema.JsonObject): string {
  const name = parseStringKey(raw, "name");
  if (name === "") throw new CniError(Code.InvalidConfig, "missing network name");
  if (!networkNameProblem(name)) return name;
  throw new CniError(Code.InvalidConfig, "invalid characters found in network name", {
    details: name.length > 80 ? excerpt(name) : name,
  });
}

/** Commands depend on the version number; a known version needs its exact name. */
function parseConfigVersion(raw: schema.JsonObject, command: CniCommand): Version {
  const text = parseStringKey(raw, "cniVersion");
  if (introducedIn[command] !== VERSIONS[0]) {
    if (!atLeast(text, introducedIn[command])) {
      throw incompatibleVersionError(`config version does not allow ${command}`);
    }
    if (!atLeast(LATEST, text)) throw incompatibleVersionError(`plugin version does not allow ${command}`);
  }
  const version = parseVersion(text);
  if (version) return version;
  const supported = VERSIONS.map((supportedVersion) => `"${supportedVersion}"`).join(" ");
  throw incompatibleVersionError(
    "incompatible CNI versions",
    `config is ${excerpt(text)}, plugin supports [${supported}]`,
  );
}

function parseStringKey(raw: schema.JsonObject, key: string): string {
  const value = schema.findValue(raw, key) ?? "";
  if (typeof value === "string") return value;
  throw new CniError(Code.DecodeFailure, `Cannot use configuration: ${key} must be a string`);
}

function incompatibleVersionError(message: string, details?: string): CniError {
  return new CniError(Code.IncompatibleVersion, message, { details });
}

function parsePrevResult(raw: schema.JsonObject, command: CniCommand, cniVersion: Version): Result | undefined {
  const node = schema.findValue(raw, "prevResult") ?? undefined;
  if (node === undefined || introducedIn[command] === "1.1.0") return undefined;
  try {
    return parseResult(node, cniVersion, "prevResult");
  } catch (error) {
    // DEL works without it, and must not fail.
    if (command === "DEL" && error instanceof CniError) return undefined;
    throw error;
  }
}

/**
 * The key was renamed after 1.1.0. libcni writes `null` for an empty list. cnitool writes neither key: what lives is
 * unknown.
 */
function parseAttachments(raw: schema.JsonObject): readonly Attachment[] | undefined {
  const keys = ["cni.dev/valid-attachments", "cni.dev/attachments"].map((key) => schema.findKey(raw, key))
    .filter((key) => key !== undefined);
  if (keys.length === 0) return undefined;
  const key = keys.find((candidate) => raw[candidate] !== null);
  const list = key === undefined ? [] : attachmentsSchema.parse(raw[key], memberPath("", key));
  return list.map(({ containerID, ifname }) => ({ containerId: containerID, ifname }));
}

/** Another shape than that of CONVENTIONS.md counts as absent: these are hints. */
function parseArgsCni(raw: schema.JsonObject): schema.JsonObject {
  const args = schema.findValue(raw, "args");
  const cni = schema.isJsonObject(args) ? schema.findValue(args, "cni") : undefined;
  return schema.isJsonObject(cni) ? cni : {};
}
