/**
 * The request a plugin reads from stdin: what every plugin's configuration has in common (SPEC §Network configuration).
 *
 * @module
 */
import { networkNameProblem } from "./env.ts";
import { CniError, Code, ConfigError } from "./error.ts";
import { parseJson, segmentsOf } from "./jsonc.ts";
import { type Dns, dns, parseResult, type Result } from "./result.ts";
import * as schema from "./schema.ts";
import { atLeast, LATEST, parseVersion, since, type Verb, type Version, VERSIONS } from "./version.ts";

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
}

/** One interface of one container. */
export interface Attachment {
  /** CNI_CONTAINERID: the runtime's name for the container. */
  readonly containerId: string;
  /** CNI_IFNAME: the interface inside the container. */
  readonly ifname: string;
}

/** A file name in CNI_PATH, never a way to another directory. */
export const pluginType: schema.Schema<string> = schema.satisfying(
  schema.nonEmptyString,
  "the name of a plugin, without a directory",
  (type) => !type.includes("/") && !type.includes("\\") && !type.includes("\0") && type !== "." && type !== "..",
);
/** Capabilities that a plugin declares. */
export const capabilities = schema.lazy(() => schema.record(schema.withDefault(schema.boolean, false)));

const common = schema.lazy(() =>
  schema.struct({
    type: schema.withDefault(schema.string, ""),
    ipam: schema.optional(schema.struct({ type: schema.optional(pluginType) })),
    dns: schema.optional(dns),
    runtimeConfig: schema.withDefault(schema.jsonObject, {}),
    capabilities: schema.withDefault(capabilities, {}),
  })
);
/** Attachments as GC names them. */
export const attachments: schema.Schema<readonly { readonly containerID: string; readonly ifname: string }[]> = schema
  .lazy(() => schema.array(schema.struct({ containerID: schema.string, ifname: schema.string })));

/**
 * Reads a request for `verb` and makes sure that its version has that verb. For DEL, what cannot be used is as good as absent, see
 * {@linkcode parseUsable}.
 *
 * @param known its `prevResult`, if the caller has read that already
 * @param tell told of what was left out
 * @throws SyntaxError for text that is not JSON
 * @throws ConfigError naming network and path
 * @throws CniError with code 1 for the version, 6 for `prevResult`, 7 for the network name
 */
export function parsePluginConfig(
  text: string,
  verb: Verb,
  known?: Result,
  tell: (problem: string) => void = () => {},
): PluginConfig {
  const document = parseRequest(text);
  const name = parseName(document);
  const cniVersion = parseConfigVersion(document, verb);
  try {
    const { value: { ipam, ...rest }, used: raw } = verb === "DEL"
      ? parseUsable(common, document, tell)
      : { value: common.parse(document), used: document };
    const prevResult = known ?? parsePrevResult(raw, verb, cniVersion);
    const validAttachments = verb === "GC" ? parseAttachments(raw) : undefined;
    return {
      name,
      cniVersion,
      ...rest,
      ...(ipam?.type && { ipamType: ipam.type }),
      ...(prevResult && { prevResult }),
      ...(validAttachments && { validAttachments }),
      args: hints(raw),
      raw,
    };
  } catch (error) {
    throw error instanceof ConfigError ? error.at({ network: name }) : error;
  }
}

/**
 * What `shape` reads from an object without the keys that it cannot use. They are as good as absent: ADD refused them, so that nothing was
 * set up by them, and a container must not stay attached for ever because of them.
 *
 * @param tell told of each key that is left out, and why
 * @returns the value, and the object that it was read from
 * @throws {ConfigError} if it is not about a key that is there
 */
export function parseUsable<T>(
  shape: schema.Schema<T>,
  node: schema.JsonObject,
  tell: (problem: string) => void,
): { readonly value: T; readonly used: schema.JsonObject } {
  for (let used = node;;) {
    try {
      return { value: shape.parse(used), used };
    } catch (error) {
      const [key = ""] = error instanceof ConfigError ? segmentsOf(error.path) : [];
      if (!Object.hasOwn(used, key)) throw error;
      tell(`${CniError.from(error).message}; going on without it`);
      const { [key]: _, ...others } = used;
      used = others;
    }
  }
}

function parseRequest(text: string): schema.JsonObject {
  const node = parseJson(text, "the request on stdin") ?? {};
  if (schema.isJsonObject(node)) return node;
  throw new CniError(Code.DecodeFailure, "Cannot use the request on stdin: it must be an object");
}

function parseName(raw: schema.JsonObject): string {
  const name = valueOf(raw, "name") ?? "";
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
function parseConfigVersion(raw: schema.JsonObject, verb: Verb): Version {
  const text = valueOf(raw, "cniVersion") ?? "";
  if (typeof text !== "string") {
    throw new CniError(Code.DecodeFailure, "Cannot use configuration: cniVersion must be a string");
  }
  if (since[verb] !== VERSIONS[0]) {
    if (!atLeast(text, since[verb])) throw incompatible(`config version does not allow ${verb}`);
    if (!atLeast(LATEST, text)) throw incompatible(`plugin version does not allow ${verb}`);
  }
  const version = parseVersion(text);
  if (version) return version;
  const supported = VERSIONS.map((each) => `"${each}"`).join(" ");
  throw incompatible("incompatible CNI versions", `config is ${schema.excerpt(text)}, plugin supports [${supported}]`);
}

function incompatible(message: string, details?: string): CniError {
  return new CniError(Code.IncompatibleVersion, message, { details });
}

/** A result of any version is taken, and one without a version as the configuration's. */
function parsePrevResult(raw: schema.JsonObject, verb: Verb, cniVersion: Version): Result | undefined {
  const node = valueOf(raw, "prevResult") ?? undefined;
  if (node === undefined || since[verb] === "1.1.0") return undefined;
  try {
    return parseResult(node, cniVersion, "prevResult");
  } catch (error) {
    // What cannot be read must not keep a container from being removed; DEL manages without.
    if (verb === "DEL" && error instanceof CniError) return undefined;
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
  const key = keys.find((each) => raw[each] !== null);
  const list = key === undefined ? [] : attachments.parse(raw[key], schema.join("", key));
  return list.map(({ containerID, ifname }) => ({ containerId: containerID, ifname }));
}

/** Optional by nature: what does not have the conventional shape is nothing to us (CONVENTIONS.md). */
function hints(raw: schema.JsonObject): schema.JsonObject {
  const args = valueOf(raw, "args");
  const cni = schema.isJsonObject(args) ? valueOf(args, "cni") : undefined;
  return schema.isJsonObject(cni) ? cni : {};
}

function valueOf(node: schema.JsonObject, key: string): unknown {
  const spelling = schema.findKey(node, key);
  return spelling === undefined ? undefined : node[spelling];
}
