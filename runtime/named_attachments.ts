/** `--valid` of GC may name a container or a network namespace. */
import { listNamedNetns, namedNetnsPaths, nameOfNetnsPath } from "../ffi/netns/named.ts";
import { findStat } from "../ffi/sys/stat.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import { containerIdOfNetns } from "./container_id.ts";
import { suggestion } from "../spec/suggest.ts";
import { type AttachmentKey, type CacheEntry, hasCacheFile, listCacheEntries } from "./cache.ts";
import { netnsGoneReason } from "./netns_gone.ts";
import { attachedSinceFilter } from "./gc.ts";
import { attachmentKey, type RuntimeConf } from "./resolve_attachment.ts";
import type { RuntimeContext } from "./context.ts";

/** An unknown name stays as given. */
function resolveAttachmentNames(
  cacheDirectory: string,
  network: string,
  names: readonly Attachment[],
): Attachment[] {
  if (names.length === 0) return [];
  const byNetns = Map.groupBy(listCacheEntries(cacheDirectory, network), ({ netns }) => netns);
  return names.flatMap((attachment) => {
    const { containerId: name, ifname } = attachment;
    const paths = namedNetnsPaths(name);
    // A damaged file's name has the id that was made from the path.
    const ids = new Set([name, ...paths.map(containerIdOfNetns)]);
    const resolved = [...ids].map((containerId) => ({ containerId, ifname }))
      .filter((candidate) => hasCacheFile(cacheDirectory, attachmentKey(network, candidate)));
    for (const entry of paths.flatMap((path) => byNetns.get(path) ?? [])) {
      const { containerId } = entry;
      if (entry.ifname === ifname && !ids.has(containerId)) resolved.push({ containerId, ifname });
    }
    return resolved.length > 0 ? resolved : [attachment];
  });
}

/**
 * A person named an attachment that is not in the cache, maybe misspelt.
 *
 * @example
 * ```ts
 * import { loadNetwork, Runtime, UnknownAttachmentError } from "./mod.ts";
 *
 * const runtime = new Runtime({ env: process.env });
 * try {
 *   runtime.gc(loadNetwork("web"), [{ containerId: "c1", ifname: "eth0" }], { resolveNames: true });
 * } catch (error) {
 *   if (error instanceof UnknownAttachmentError) console.log(error.details); // see what is attached with "cni run list web"
 * }
 * ```
 */
export class UnknownAttachmentError extends CniError {}

interface ValidNamesOptions {
  readonly snapshotTime: bigint;
  readonly ignoreUnknown: boolean;
}

/**
 * @throws {UnknownAttachmentError} code 4 for an unknown name: the container that is meant would be detached
 * @throws {CniError} code 4 if `ignoreUnknown` leaves no known name, and a living attachment would be detached
 */
export function resolveValidAttachments(
  { cacheDirectory, hostContext, log }: RuntimeContext,
  { name }: NetworkConfigList,
  names: readonly Attachment[],
  { snapshotTime, ignoreUnknown }: ValidNamesOptions,
): Attachment[] {
  const resolved = resolveAttachmentNames(cacheDirectory, name, names);
  const unknown = resolved.filter((attachment) => !hasCacheFile(cacheDirectory, attachmentKey(name, attachment)));
  if (unknown.length === 0) return resolved;
  const entries = listCacheEntries(cacheDirectory, name);
  const messages = unknown.map((attachment) =>
    `"${attachment.containerId}/${attachment.ifname}" is not remembered${
      suggestAttachment(entries, attachment, isNamedNetns(attachment.containerId))
    }`
  );
  if (!ignoreUnknown) {
    throw new UnknownAttachmentError(
      Code.InvalidEnvironment,
      `Cannot clean up network "${name}": ${messages.join("; ")}`,
      { details: `see what is attached with "cni run list ${name}"` },
    );
  }
  for (const message of messages) log(`Cleaning up network "${name}": ${message}`);
  if (unknown.length < resolved.length) return resolved;
  const isAttachedSince = attachedSinceFilter(cacheDirectory, snapshotTime);
  const stillAlive = entries.filter((entry) =>
    !isAttachedSince(entry) && netnsGoneReason(entry, hostContext) === undefined
  );
  if (stillAlive.length === 0) return resolved;
  throw new CniError(
    Code.InvalidEnvironment,
    `Cannot clean up network "${name}": --valid names no remembered attachment, and ${stillAlive.length} that may live would be detached`,
    { details: `see their ids with "cni run list ${name}"; to keep none of them: --all` },
  );
}

function isNamedNetns(name: string): boolean {
  return listNamedNetns().includes(name);
}

/** Makes `; did you mean "web"?` for an attachment that is not in the cache. */
export function suggestRemembered(
  { cacheDirectory }: RuntimeContext,
  { network, containerId, ifname }: AttachmentKey,
  { netns = "" }: Pick<RuntimeConf, "netns">,
): string {
  const entries = listCacheEntries(cacheDirectory, network);
  const names = [containerId, netns.slice(netns.lastIndexOf("/") + 1)].filter((name) => name !== "");
  const isNetnsThere = findStat(netns) !== undefined || names.some(isNamedNetns);
  const hints = names.map((name) => suggestAttachment(entries, { containerId: name, ifname }, isNetnsThere));
  return hints.find((hint) => hint !== "") ?? "";
}

/** Returns nothing if none is similar. @param isNetnsThere its namespace exists: no other container was meant */
function suggestAttachment(
  entries: readonly CacheEntry[],
  { containerId: name, ifname }: Attachment,
  isNetnsThere: boolean,
): string {
  const sameContainer = entries.filter((entry) => attachmentNames(entry).includes(name));
  if (sameContainer.length === 0) return isNetnsThere ? "" : suggestion(name, entries.flatMap(attachmentNames));
  const ifnames = sameContainer.map((entry) => entry.ifname);
  // The name may be the namespace's, and the container's id another.
  const correction = ifnames.includes(ifname) ? "" : suggestion(ifname, ifnames);
  return correction || `; "${name}" has ${ifnames.map((each) => JSON.stringify(each)).join(", ")} there`;
}

function attachmentNames({ containerId, netns = "" }: CacheEntry): string[] {
  const name = nameOfNetnsPath(netns);
  return name === undefined ? [containerId] : [containerId, name];
}
