/**
 * The request a plugin reads from stdin: what every plugin's configuration has in common (SPEC §Network configuration).
 *
 * @module
 */
import { networkNameProblem } from "./env.ts";
import { CniError, Code, ConfigError } from "./error.ts";
import { parseJson, pathSegments } from "./jsonc.ts";
import { type Dns, dnsSchema, formatResult, parseResult, type Result } from "./result.ts";
import * as schema from "./schema.ts";
import { atLeast, type CniCommand, introducedIn, LATEST, parseVersion, type Version, VERSIONS } from "./version.ts";

/** What the specification defines of a request. */
export interface PluginConfig {
  /** Of the network. */
  readonly name: string;
  /** The version to answer in. */
  readonly cniVersion: Version;
  /** Of the plugin; empty when the request does not say. */
  readonly type: string;
  /** `ipam.type`; absent for no address management. */
  readonly ipamType?: string;
  /** Resolver settings to hand on in the result. */
  readonly dns?: Dns;
  /** In the current form, whatever it came in. Never present for GC and STATUS. */
  readonly prevResult?: Result;
  /** What the runtime provides for declared capabilities; empty if nothing. */
  readonly runtimeConfig: schema.JsonObject;
  /** `args.cni`, optional hints; empty if there are none. */
  readonly args: schema.JsonObject;
  /** Capabilities that the plugin declares; of use to the runtime only. */
  readonly capabilities: Readonly<Record<string, boolean>>;
  /** What to keep; for GC only, and only if the runtime says so. */
  readonly validAttachments?: readonly Attachment[];
  /** The whole document as it came, for the plugin's own keys; for DEL without those of the specification that cannot be used. */
  readonly raw: schema.JsonObject;
  /** The text of the document, for what is lost in reading it: a key that is there twice. Absent where there was none. */
  readonly text?: string;
}

/** One interface of one container. */
export interface Attachment {
  /** CNI_CONTAINERID: the runtime's name for the container. */
  readonly containerId: string;
  /** CNI_IFNAME: the interface inside the container. */
  readonly ifname: string;
}

/** A file name in CNI_PATH, never a way to another directory. */
export const pluginTypeSchema: schema.Schema<string> = schema.refine(
  schema.nonEmptyString,
  "the name of a plugin, without a directory",
  (type) => !type.includes("/") && !type.includes("\\") && !type.includes("\0") && type !== "." && type !== "..",
);

/** Capabilities that a plugin declares. */
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

/** Attachments as GC names them. */
export const attachmentsSchema: schema.Schema<readonly { readonly containerID: string; readonly ifname: string }[]> =
  schema
    .lazy(() => schema.array(schema.knownKeys({ containerID: schema.string, ifname: schema.string })));

/** How a configuration is read. */
export interface ReadOptions {
  /** Its `prevResult`, where the caller has it already. */
  readonly prevResult?: Result | undefined;
  /** Told of what was left out. */
  warn?(problem: string): void;
}

/**
 * Reads the text of a configuration, see {@linkcode readPluginConfig}.
 *
 * @throws SyntaxError for text that is not JSON
 */
export function parsePluginConfig(text: string, command: CniCommand, options: ReadOptions = {}): PluginConfig {
  return { ...readPluginConfig(parseObject(text), command, options), text };
}

/**
 * Reads a configuration for a command, and makes sure that its version has that command. For DEL, what cannot be used is as good as
 * absent, see {@linkcode parseUsableKeys}.
 *
 * @throws ConfigError naming network and path
 * @throws CniError with code 1 for the version, 6 for `prevResult`, 7 for the network name
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

/** A configuration as a program reads it from stdin: as it came, if it came as text. @throws CniError if its version cannot say `prevResult` */
export function formatPluginConfig(config: PluginConfig, command: CniCommand): string {
  if (config.text !== undefined) return config.text;
  const { raw: { cniVersion, name, ...rest }, cniVersion: version, prevResult } = config;
  const isSent = prevResult && (command !== "DEL" || atLeast(version, "0.4.0"));
  return JSON.stringify({ cniVersion, name, ...isSent && { prevResult: formatResult(prevResult, version) }, ...rest });
}

/**
 * What `shape` reads from an object without the keys that it cannot use. They are as good as absent: ADD refused them, so that nothing was
 * set up by them, and a container must not stay attached for ever because of them.
 *
 * @param warn told of each key that is left out, and why
 * @returns the value, and the object that it was read from
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
  const name = readKey(raw, "name") ?? "";
  if (typeof name !== "string") {
    throw new CniError(Code.DecodeFailure, "Cannot use configuration: name must be a string");
  }
  if (name === "") throw new CniError(Code.InvalidConfig, "missing network name");
  if (!networkNameProblem(name)) return name;
  throw new CniError(Code.InvalidConfig, "invalid characters found in network name", {
    details: name.length > 80 ? schema.excerpt(name) : name,
  });
}

/** Decides by number whether the version has the verb, and by exact name whether it is one we print. */
function parseConfigVersion(raw: schema.JsonObject, command: CniCommand): Version {
  const text = readKey(raw, "cniVersion") ?? "";
  if (typeof text !== "string") {
    throw new CniError(Code.DecodeFailure, "Cannot use configuration: cniVersion must be a string");
  }
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
    `config is ${schema.excerpt(text)}, plugin supports [${supported}]`,
  );
}

function incompatibleVersionError(message: string, details?: string): CniError {
  return new CniError(Code.IncompatibleVersion, message, { details });
}

/** A result of any version is taken, and one without a version as the configuration's. */
function parsePrevResult(raw: schema.JsonObject, command: CniCommand, cniVersion: Version): Result | undefined {
  const node = readKey(raw, "prevResult") ?? undefined;
  if (node === undefined || introducedIn[command] === "1.1.0") return undefined;
  try {
    return parseResult(node, cniVersion, "prevResult");
  } catch (error) {
    // What cannot be read must not keep a container from being removed; DEL manages without.
    if (command === "DEL" && error instanceof CniError) return undefined;
    throw error;
  }
}

/**
 * Two keys, because the specification's text renamed it after 1.1.0 was tagged. libcni writes `null` for a list that its caller left
 * empty; a request without either key, such as cnitool's, says nothing of what lives.
 */
function parseAttachments(raw: schema.JsonObject): readonly Attachment[] | undefined {
  const keys = ["cni.dev/valid-attachments", "cni.dev/attachments"].map((key) => schema.findKey(raw, key))
    .filter((key) => key !== undefined);
  if (keys.length === 0) return undefined;
  const key = keys.find((candidate) => raw[candidate] !== null);
  const list = key === undefined ? [] : attachmentsSchema.parse(raw[key], schema.memberPath("", key));
  return list.map(({ containerID, ifname }) => ({ containerId: containerID, ifname }));
}

/** Optional by nature: what does not have the conventional shape is nothing to us (CONVENTIONS.md). */
function parseArgsCni(raw: schema.JsonObject): schema.JsonObject {
  const args = readKey(raw, "args");
  const cni = schema.isJsonObject(args) ? readKey(args, "cni") : undefined;
  return schema.isJsonObject(cni) ? cni : {};
}

function readKey(node: schema.JsonObject, key: string): unknown {
  const foundKey = schema.findKey(node, key);
  return foundKey === undefined ? undefined : node[foundKey];
}
