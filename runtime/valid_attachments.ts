/**
 * Who is to stay when garbage is collected, as people name it.
 *
 * @module
 */
import { namedNetnsPath } from "../ffi/named_netns.ts";
import { findStatus } from "../ffi/sys/stat.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkList } from "../spec/network_config_list.ts";
import { derivedContainerId } from "./container_id.ts";
import { type AttachmentKey, cachePath, listEntries } from "./cache.ts";
import { type Kernel, whyEnded } from "./stale.ts";
import { youngIn } from "./gc.ts";
import { keyOf } from "./resolve_attachment.ts";
import type { RuntimeOptions } from "./operations.ts";

/** Whether there is a file for the attachment, be it one that cannot be understood. @throws {SystemError} */
export function isKnown(cacheDirectory: string, key: AttachmentKey): boolean {
  try {
    return findStatus(cachePath(cacheDirectory, key)) !== undefined;
  } catch (error) {
    // Names that no file can have: the ADD refuses them, with all else that is wrong.
    if (error instanceof CniError) return false;
    throw error;
  }
}

/**
 * The attachments that are meant: all whose container has the name as its id, and all in the namespace of that name; where there is none,
 * what was named.
 *
 * @throws {SystemError}
 */
export function meantBy(cacheDirectory: string, network: string, named: readonly Attachment[]): Attachment[] {
  if (named.length === 0) return [];
  const byNetns = Map.groupBy(listEntries(cacheDirectory, network), ({ netns }) => netns);
  return named.flatMap((each) => {
    const { containerId: name, ifname } = each;
    const path = namedNetnsPath(name);
    const paths = [path, `/var${path}`];
    // Files that cannot be understood are known by their names alone: those of the ids that were made from the paths.
    const ids = new Set([name, ...paths.map(derivedContainerId)]);
    const meant = [...ids].map((containerId) => ({ containerId, ifname }))
      .filter((other) => isKnown(cacheDirectory, keyOf(network, other)));
    for (const entry of paths.flatMap((path) => byNetns.get(path) ?? [])) {
      const { containerId } = entry;
      if (entry.ifname === ifname && !ids.has(containerId)) meant.push({ containerId, ifname });
    }
    return meant.length > 0 ? meant : [each];
  });
}

/**
 * The attachments that are to stay, of which those are named in the log that nothing is known of.
 *
 * @param madeAt when the list was made, in nanoseconds since 1970; who was attached since cannot be on it
 * @throws {CniError} code 4 if nothing is known of any, and one that may live would be detached: that is not what was meant
 */
export function survivors(
  { cacheDirectory, log }: RuntimeOptions,
  { name, disableGC }: NetworkList,
  named: readonly Attachment[],
  kernel: Kernel,
  madeAt: bigint,
): Attachment[] {
  const meant = meantBy(cacheDirectory, name, named);
  const unknown = meant.filter((each) => !isKnown(cacheDirectory, keyOf(name, each)));
  for (const { containerId, ifname } of unknown) {
    log(`No attachment "${containerId}/${ifname}" to network "${name}" is remembered`);
  }
  if (disableGC || unknown.length < meant.length || meant.length === 0) return meant;
  const isYoung = youngIn(cacheDirectory, madeAt);
  const lost = listEntries(cacheDirectory, name).filter((entry) =>
    !isYoung(entry) && whyEnded(entry, kernel) === undefined
  );
  if (lost.length === 0) return meant;
  throw new CniError(
    Code.InvalidEnvironment,
    `Cannot clean up network "${name}": --valid names no attachment that is remembered, and ${lost.length} that may live would be detached`,
    { details: `see their ids with "cni run list ${name}"; if none of them is to stay: --all` },
  );
}
