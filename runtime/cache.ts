/**
 * The cache of attachments, one file each, in libcni's layout and format: either reads the other's.
 *
 * Two attachments can share a file name: network `a-b` with container `c`, and `a` with `b-c`. So a file counts only if
 * it names the attachment. libcni ignores our keys `bootId` and `netnsCookie`, which no attachment outlives.
 */
import { type FileTimes, findBootId } from "../ffi/sys/boot.ts";
import { findEntryNames, inDirectory } from "../ffi/sys/directory.ts";
import { SystemError } from "../ffi/sys/error.ts";
import { findText, NOT_A_FILE_CODES } from "../ffi/sys/file.ts";
import { createFile, removeWithTemporary, replaceFile } from "../ffi/sys/atomic_file.ts";
import { findStat, findSymlinkTarget } from "../ffi/sys/stat.ts";
import { CniError, Code } from "../spec/error.ts";
import { parseJson, stringifyJson } from "../spec/jsonc.ts";
import * as schema from "../spec/schema.ts";
import { sortedByBytes } from "./sort_by_bytes.ts";

export const DEFAULT_CACHE_DIRECTORY = "/var/lib/cni";

/** The text makes no sense, as after a power cut. Directories and other formats have other errors. */
export class DamagedEntryError extends CniError {}

/** Tells an attachment from all others. */
export interface AttachmentKey {
  /** The name of its network. */
  readonly network: string;
  /** The value of the variable CNI_CONTAINERID. */
  readonly containerId: string;
  /** The value of the variable CNI_IFNAME. */
  readonly ifname: string;
}

/** CNI_ARGS in the order given. */
export type Args = readonly (readonly [key: string, value: string])[];

export interface EntryOrigin {
  /** Absent if another program wrote it. */
  readonly boot?: string;
  /** Absent if boot and cookie say enough. */
  readonly times?: FileTimes;
}

export interface CacheEntry extends AttachmentKey {
  /** The ADD's; empty in files with a result only. */
  readonly config: string;
  readonly netns?: string;
  /** Unique in a boot; absent if the kernel or the writing program has none. */
  readonly netnsCookie?: string;
  readonly args: Args;
  readonly capabilityArgs: schema.JsonObject;
  /** The final result's document; absent until the ADD has ended. */
  readonly result?: unknown;
  /** Only entries that were read have it. */
  readonly written?: EntryOrigin;
  /** Inode, size and change time of the file before it was read. Only listed entries have it. */
  readonly fileState?: string | undefined;
}

const CACHE_KIND = "cniCacheV1";
const MAX_NAME_BYTES = 255;

/** Plugins get it in their environment, where a NUL ends a text. */
const environmentText = schema.refine(schema.string, "text without NUL", (text) => !text.includes("\0"));
const entrySchema = schema.lazy(() =>
  schema.knownKeys({
    containerId: schema.string,
    ifName: schema.string,
    networkName: schema.string,
    config: schema.withDefault(schema.string, ""),
    netns: schema.withDefault(environmentText, ""),
    cniArgs: schema.withDefault(schema.array(schema.array(environmentText)), []),
    capabilityArgs: schema.withDefault(schema.jsonObject, {}),
    result: schema.optional(schema.anything),
    bootId: schema.optional(schema.anything),
    netnsCookie: schema.optional(schema.anything),
  })
);

/** @throws {CniError} code 4 if a part is missing or leads out of the directory, or if all are too long */
export function cachePath(directory: string, { network, containerId, ifname }: AttachmentKey): string {
  const parts = { "network name": network, "container id": containerId, "interface name": ifname };
  for (const [partName, part] of Object.entries(parts)) {
    if (part === "" || /[/\0]/.test(part)) {
      const reason = part === "" ? "it is missing" : "it must be usable in a file name";
      throw new CniError(Code.InvalidEnvironment, `Cannot use ${partName} ${JSON.stringify(part)}: ${reason}`);
    }
  }
  const name = `${network}-${containerId}-${ifname}`;
  const length = new TextEncoder().encode(name).length;
  if (length <= MAX_NAME_BYTES) return `${directory}/results/${name}`;
  throw new CniError(
    Code.InvalidEnvironment,
    `Cannot remember attachment ${schema.excerpt(name)}: network name, container id and interface name have ${
      length - 2
    } bytes ` +
      `together, and ${MAX_NAME_BYTES - 2} fit into a file name`,
  );
}

/** Damaged files count as well. */
export function hasCacheFile(directory: string, key: AttachmentKey): boolean {
  try {
    return findStat(cachePath(directory, key)) !== undefined;
  } catch (error) {
    // No file can have such a name, and ADD refuses it.
    if (error instanceof CniError) return false;
    throw error;
  }
}

/** Returns false if there is one. */
export function createEntry(directory: string, entry: CacheEntry): boolean {
  const path = cachePath(directory, entry);
  requireNoSymlink(directory);
  return inDirectory(`${directory}/results`, 0o700, () => createFile(path, formatEntry(entry)));
}

export function replaceEntry(directory: string, entry: CacheEntry): void {
  replaceFile(cachePath(directory, entry), formatEntry(entry));
}

/**
 * The oldest format is a bare result: then the rest is empty.
 *
 * @throws {CniError} code 6 if the file cannot be understood
 */
export function findEntry(directory: string, key: AttachmentKey): CacheEntry | undefined {
  const path = cachePath(directory, key);
  requireNoSymlink(directory);
  const text = readEntryText(path);
  if (text === undefined) return undefined;
  const entry = parseEntryText(text, path, key);
  return isSameAttachment(entry, key) ? entry : undefined;
}

export function findEntryAgain(directory: string, listed: CacheEntry): CacheEntry | undefined {
  const state = findFileState(cachePath(directory, listed));
  return state !== undefined && state === listed.fileState ? listed : findEntry(directory, listed);
}

/** Removes damaged files, but never another's. @param log gets that a directory stays in its place */
export function removeEntry(directory: string, key: AttachmentKey, log: (message: string) => void): void {
  const path = cachePath(directory, key);
  if (isSymlink(directory)) return;
  const other = findOccupant(directory, key);
  if (other === undefined || isSameAttachment(other, key)) removeWithTemporary(path, log);
}

export function findOccupant(directory: string, key: AttachmentKey): CacheEntry | undefined {
  const path = cachePath(directory, key);
  try {
    const text = readEntryText(path);
    return text === undefined ? undefined : parseEntryText(text, path, key);
  } catch (error) {
    if (error instanceof SystemError) throw error;
    return undefined;
  }
}

type DamageLog = (message: string, error?: unknown, name?: string) => void;

/** Sorted by file name. @param log gets the name of each damaged file, which is left out */
export function listCacheEntries(directory: string, network?: string, log?: DamageLog): CacheEntry[] {
  return [...findCacheEntries(directory, network, log)];
}

/** Reads one file after the other, as far as somebody asks for more. */
export function* findCacheEntries(directory: string, network?: string, log?: DamageLog): Generator<CacheEntry> {
  const prefix = network === undefined ? "" : `${network}-`;
  if (isSymlink(directory)) {
    log?.(`${symlinkError(directory).message}; continuing without it`);
    return;
  }
  const names = sortedByBytes(findEntryNames(`${directory}/results`) ?? []).filter((name) =>
    name.startsWith(prefix) && !name.startsWith(".")
  );
  for (const name of names) {
    try {
      const path = `${directory}/results/${name}`;
      // First: it must not be younger than the text.
      const fileState = findFileState(path);
      const text = readEntryText(path);
      const entry = text === undefined ? undefined : parseEntryText(text, path, undefined);
      // Only files in the present format name their attachment.
      const hasAttachmentKey = entry && entry.network !== "" && entry.ifname !== "";
      if (!hasAttachmentKey || (network !== undefined && entry.network !== network)) continue;
      // An editor may have made a copy.
      if (cachePath(directory, entry) === path) yield { ...entry, fileState };
    } catch (error) {
      log?.(`${CniError.from(error).message}; continuing without it`, error, name);
    }
  }
}

export function isSameAttachment(a: AttachmentKey, b: AttachmentKey): boolean {
  return a.network === b.network && a.containerId === b.containerId && a.ifname === b.ifname;
}

/** Writes it as libcni does: its order of keys, no empty ones, results and capability arguments sorted. */
function formatEntry(entry: CacheEntry): string {
  const { network, containerId, ifname, config, netns, netnsCookie, args, capabilityArgs, result } = entry;
  const bootId = findBootId();
  return stringifyJson({
    kind: CACHE_KIND,
    containerId,
    config: new TextEncoder().encode(config).toBase64(),
    ifName: ifname,
    networkName: network,
    ...(netns && { netns }),
    ...(args.length > 0 && { cniArgs: args }),
    ...(Object.keys(capabilityArgs).length > 0 && { capabilityArgs: sortKeys(capabilityArgs, (value) => value) }),
    ...(result !== undefined && { result: sortKeysDeep(result) }),
    // Another boot has the same cookies.
    ...(bootId !== undefined && { bootId, ...(netnsCookie !== undefined && { netnsCookie }) }),
  });
}

function sortKeysDeep(node: unknown): unknown {
  if (Array.isArray(node)) return node.map(sortKeysDeep);
  return schema.isJsonObject(node) ? sortKeys(node, sortKeysDeep) : node;
}

function sortKeys(node: schema.JsonObject, convert: (value: unknown) => unknown): schema.JsonObject {
  return Object.fromEntries(sortedByBytes(Object.keys(node)).map((key) => [key, convert(node[key])]));
}

/** Administrators move the whole directory. A link inside was planted. */
function isSymlink(directory: string): boolean {
  return findSymlinkTarget(`${directory}/results`) !== undefined;
}

function requireNoSymlink(directory: string): void {
  if (isSymlink(directory)) throw symlinkError(directory);
}

function symlinkError(directory: string): CniError {
  return new CniError(
    Code.DecodeFailure,
    `Cannot use cached attachments in "${directory}/results": it is a symbolic link, which is not followed`,
  );
}

function readEntryText(path: string): string | undefined {
  try {
    return findText(path);
  } catch (error) {
    if (error instanceof SystemError && NOT_A_FILE_CODES.includes(error.code)) throw damagedError(path, error.message);
    throw error;
  }
}

/** @param key the owner of a file in the oldest format */
function parseEntryText(text: string, path: string, key: AttachmentKey | undefined): CacheEntry {
  let kind: unknown;
  try {
    const node = schema.jsonObject.parse(parseJson(text, `"${path}"`));
    kind = node.kind;
    if (kind === CACHE_KIND) return parseCacheDocument(node, path);
    if (key && kind === undefined) return { ...key, config: "", args: [], capabilityArgs: {}, result: node };
  } catch (error) {
    // An I/O error is not corruption: GC removes damaged files.
    if (error instanceof SystemError) throw error;
    const { code, message } = damagedError(path, error instanceof Error ? error.message : String(error));
    throw new DamagedEntryError(code, message);
  }
  throw damagedError(path, `its kind is ${schema.excerpt(kind)}, and this program knows "${CACHE_KIND}"`);
}

function parseCacheDocument(node: schema.JsonObject, file: string): CacheEntry {
  const { containerId, ifName, networkName, config, netns, cniArgs, capabilityArgs, result, ...bootFields } =
    entrySchema.parse(
      node,
    );
  const path = netns || sandboxOfResult(result, ifName);
  const { bootId, netnsCookie } = bootFields;
  const hasBootId = typeof bootId === "string";
  const hasCookie = hasBootId && typeof netnsCookie === "string";
  const times = hasCookie ? undefined : findTimes(file);
  return {
    network: networkName,
    containerId,
    ifname: ifName,
    config: new TextDecoder().decode(Uint8Array.fromBase64(config)),
    ...(path && { netns: path }),
    ...(hasCookie && { netnsCookie }),
    args: cniArgs.map(([key = "", value = ""]) => [key, value] as const),
    capabilityArgs,
    ...(result !== undefined && { result }),
    written: { ...(hasBootId && { boot: bootId }), ...(times && { times }) },
  };
}

function findFileState(path: string): string | undefined {
  const status = findStat(path);
  return status && `${status.identity} ${status.size} ${status.ctime}`;
}

function findTimes(path: string): FileTimes | undefined {
  const status = findStat(path);
  return status && { mtime: status.mtime, ctime: status.ctime };
}

/** Older libcni, as in podman 4, wrote the namespace only into the result. */
function sandboxOfResult(result: unknown, ifname: string): string | undefined {
  const interfaces = schema.isJsonObject(result) ? result.interfaces : undefined;
  if (!Array.isArray(interfaces)) return undefined;
  const containerInterface = interfaces.find((candidate) =>
    schema.isJsonObject(candidate) && candidate.name === ifname && candidate.sandbox
  );
  return typeof containerInterface?.sandbox === "string" && !containerInterface.sandbox.includes("\0")
    ? containerInterface.sandbox
    : undefined;
}

function damagedError(path: string, reason: string): CniError {
  return new CniError(Code.DecodeFailure, `Cannot use cached attachment "${path}": ${reason}`);
}
