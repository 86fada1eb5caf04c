/**
 * Attachments by the names that people give them: `--valid` of GC may name a container or a network namespace.
 *
 * @module
 */
import { namedNetnsPath } from "../ffi/named_netns.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import { containerIdOfNetns } from "./container_id.ts";
import { hasCacheFile, listCacheEntries } from "./cache.ts";
import { netnsGoneReason } from "./netns_gone.ts";
import { attachedSince } from "./gc.ts";
import { attachmentKey } from "./resolve_attachment.ts";
import type { RuntimeContext } from "./context.ts";

/**
 * The attachments that are meant: all whose container has the name as its id, and all in the namespace of that name; where there is none,
 * what was named.
 *
 * @throws {SystemError}
 */
export function resolveAttachmentNames(
  cacheDirectory: string,
  network: string,
  names: readonly Attachment[],
): Attachment[] {
  if (names.length === 0) return [];
  const byNetns = Map.groupBy(listCacheEntries(cacheDirectory, network), ({ netns }) => netns);
  return names.flatMap((attachment) => {
    const { containerId: name, ifname } = attachment;
    const path = namedNetnsPath(name);
    const paths = [path, `/var${path}`];
    // Files that cannot be understood are known by their names alone: those of the ids that were made from the paths.
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
 * The attachments that are to stay, of which those are named in the log that nothing is known of.
 *
 * @param snapshotTime when the list was made, in nanoseconds since 1970; who was attached since cannot be on it
 * @throws {CniError} code 4 if nothing is known of any, and one that may live would be detached: that is not what was meant
 */
export function resolveValidAttachments(
  { cacheDirectory, hostContext, log }: RuntimeContext,
  { name, disableGC }: NetworkConfigList,
  names: readonly Attachment[],
  snapshotTime: bigint,
): Attachment[] {
  const resolved = resolveAttachmentNames(cacheDirectory, name, names);
  const unknown = resolved.filter((attachment) => !hasCacheFile(cacheDirectory, attachmentKey(name, attachment)));
  for (const { containerId, ifname } of unknown) {
    log(`No attachment "${containerId}/${ifname}" to network "${name}" is remembered`);
  }
  if (disableGC || unknown.length < resolved.length || resolved.length === 0) return resolved;
  const isAttachedSince = attachedSince(cacheDirectory, snapshotTime);
  const stillAlive = listCacheEntries(cacheDirectory, name).filter((entry) =>
    !isAttachedSince(entry) && netnsGoneReason(entry, hostContext) === undefined
  );
  if (stillAlive.length === 0) return resolved;
  throw new CniError(
    Code.InvalidEnvironment,
    `Cannot clean up network "${name}": --valid names no attachment that is remembered, and ${stillAlive.length} that may live would be detached`,
    { details: `see their ids with "cni run list ${name}"; if none of them is to stay: --all` },
  );
}
