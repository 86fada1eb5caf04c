/**
 * Thousands of attachments may be stale, and the kernel takes milliseconds for each link or rule. So built-in plugins
 * get batches, in DEL's order; programs get single calls. Entries go last: after a kill, the next GC finds them.
 */
import { SystemError } from "../ffi/sys/error.ts";
import { findStat } from "../ffi/sys/stat.ts";
import { modifiedSince, nowCeil } from "../ffi/sys/mtime.ts";
import { delegateWasNotRun } from "../plugins/lib/protocol/delegate.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { containerIdProblem, ifnameProblem } from "../spec/env.ts";
import { CniError } from "../spec/error.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import { atLeast, introducedIn } from "../spec/version.ts";
import * as cache from "./cache.ts";
import { callDelBatch, callPlugin, isBuiltin, type PluginCallOptions } from "./call_plugin.ts";
import { lockNode } from "./lock.ts";
import {
  attachmentKey,
  describeAttachment,
  findCachedResult,
  resolveAttachment,
  type ResolvedAttachment,
} from "./resolve_attachment.ts";
import type { RuntimeContext } from "./context.ts";
import { countSteps, type Progress } from "./progress.ts";

/** A kill loses at most one batch of progress. */
const BATCH_SIZE = 512;

/** Does GC (SPEC §GC), see {@linkcode Runtime.gc}. The last two parameters are those of {@linkcode GcOptions}. */
export function gcNetworkList(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  valid: readonly Attachment[],
  snapshotTime = nowCeil(),
  progress: Progress = () => {},
): Attachment[] {
  if (list.disableGC) {
    runtime.log(`Nothing is removed from network "${list.name}": it has disableGC`);
    return [];
  }
  using _ = lockNode(runtime.cacheDirectory, { inherited: true, onDirectory: runtime.log });
  const failures: unknown[] = [];
  const allValid = [...valid];
  const removed: Attachment[] = [];
  collectFailure(failures, () => {
    const isAttachedSince = attachedSinceFilter(runtime.cacheDirectory, snapshotTime);
    const batches = batchesOf(findGarbage(runtime, list, allValid, isAttachedSince, failures));
    const reportPlugin = countSteps(batches.reduce((sum, [first]) => sum + first!.list.plugins.length, 0), progress);
    for (const batch of batches) removed.push(...delBatch(runtime, batch, failures, reportPlugin));
  });
  for (const plugin of list.plugins) {
    collectFailure(failures, () => gcPlugin(runtime, list, plugin, allValid, snapshotTime));
  }
  if (failures.length === 1) throw failures[0];
  if (failures.length > 1) throw CniError.from(new AggregateError(failures, `Cannot clean up network "${list.name}"`));
  return removed;
}

/** In versions without GC, only built-in plugins are called. */
function gcPlugin(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  plugin: PluginEntry,
  validAttachments: readonly Attachment[],
  snapshotTime: bigint,
): void {
  const options = { command: "GC", validAttachments, snapshotTime } as const;
  if (atLeast(list.cniVersion, introducedIn.GC)) return void callPlugin(runtime, list, plugin, options);
  // Versions without GC need a plugin only for DEL, so a missing one is no failure.
  if (!isBuiltin(runtime, list, plugin)) return;
  try {
    callPlugin({ ...runtime, pluginDirectories: [] }, { ...list, cniVersion: introducedIn.GC }, plugin, options);
  } catch (error) {
    if (!delegateWasNotRun(error)) throw error;
  }
}

function collectFailure(failures: unknown[], step: () => void): boolean {
  try {
    step();
    return true;
  } catch (error) {
    failures.push(error);
    return false;
  }
}

/** Whether an attachment is younger than the list, as while GC waited for its lock. */
export function attachedSinceFilter(
  cacheDirectory: string,
  snapshotTime: bigint,
): (entry: cache.CacheEntry) => boolean {
  const isWrittenSince = modifiedSince(snapshotTime);
  return (entry) => isWrittenSince(findStat(cache.cachePath(cacheDirectory, entry))?.mtime ?? 0n);
}

/** @param valid gets those that are too young to be in it, and those that unreadable files may stand for */
function findGarbage(
  runtime: RuntimeContext,
  list: NetworkConfigList,
  valid: Attachment[],
  isAttachedSince: (entry: cache.CacheEntry) => boolean,
  failures: unknown[],
): ResolvedAttachment[] {
  const validTexts = new Set(valid.map(attachmentText));
  const garbage: ResolvedAttachment[] = [];
  const notValid = cache.listCacheEntries(runtime.cacheDirectory, list.name, (message, error, name = "") => {
    // A later GC may read it; a damaged file stays damaged.
    if (error instanceof SystemError) {
      valid.push(...possibleAttachments(name, list.name));
      return void failures.push(error);
    }
    const isDamaged = error instanceof cache.DamagedEntryError &&
      findStat(`${runtime.cacheDirectory}/results/${name}`)?.isFile;
    const attachment = isDamaged ? attachmentOfFileName(name, list.name) : undefined;
    if (!attachment) {
      const possible = possibleAttachments(name, list.name);
      valid.push(...possible);
      const kept = possible.length > 0 ? "its addresses and rules stay; " : "";
      return runtime.log(`${message}; ${kept}remove that file if its container is gone`);
    }
    const key = attachmentKey(list.name, attachment);
    if (validTexts.has(attachmentText(attachment))) {
      return runtime.log(`${message}; ${describeAttachment(key)} is to stay`);
    }
    runtime.log(`${message}; removing what may be left of ${describeAttachment(key)}`);
    garbage.push({ list, entry: { ...key, config: list.text, netns: "", args: [], capabilityArgs: {} } });
  }).filter((cached) => !validTexts.has(attachmentText(cached)));
  for (const entry of notValid) {
    const { containerId, ifname } = entry;
    if (isAttachedSince(entry)) {
      valid.push({ containerId, ifname });
      continue;
    }
    collectFailure(
      failures,
      () => void garbage.push(resolveAttachment(runtime, list, { containerId, ifname }, "remove", entry)),
    );
  }
  return garbage;
}

function attachmentText({ containerId, ifname }: Attachment): string {
  return `${containerId}/${ifname}`;
}

/** What a file name may stand for: ids and interfaces may have dashes. */
function possibleAttachments(name: string, network: string): Attachment[] {
  const parts = name.slice(network.length + 1).split("-");
  return parts.slice(1).map((_, i) => ({
    containerId: parts.slice(0, i + 1).join("-"),
    ifname: parts.slice(i + 1).join("-"),
  })).filter(isPossible);
}

const isPossible = ({ containerId, ifname }: Attachment): boolean =>
  containerIdProblem(containerId) === undefined && ifnameProblem(ifname) === undefined;

/** Returns `undefined` if ambiguous: networks, ids and interfaces may have dashes. */
function attachmentOfFileName(name: string, network: string): Attachment | undefined {
  // The second form is containerIdOfNetns()'s.
  const match = /^([^-]+|cnitool-[0-9a-f]{20})-([^-]+)$/.exec(name.slice(network.length + 1));
  const [, containerId = "", ifname = ""] = match ?? [];
  return isPossible({ containerId, ifname }) ? { containerId, ifname } : undefined;
}

/** A batch shares one configuration. */
function batchesOf(attachments: readonly ResolvedAttachment[]): ResolvedAttachment[][] {
  const byText = Map.groupBy(attachments, ({ list }) => list.text);
  return [...byText.values()].flatMap((sameConfiguration) =>
    Array.from(
      { length: Math.ceil(sameConfiguration.length / BATCH_SIZE) },
      (_, i) => sameConfiguration.slice(i * BATCH_SIZE, (i + 1) * BATCH_SIZE),
    )
  );
}

/** Where a plugin fails for an attachment, the plugins before it are not called. @returns what was removed */
function delBatch(
  runtime: RuntimeContext,
  batch: readonly ResolvedAttachment[],
  failures: unknown[],
  reportPlugin: () => void,
): Attachment[] {
  const { list } = batch[0]!;
  let calls = batch.map((call): PluginCallOptions & ResolvedAttachment => ({
    ...call,
    command: "DEL",
    parameters: call.entry,
    prevResult: findCachedResult(runtime, call),
  }));
  for (const plugin of list.plugins.toReversed()) {
    const notDone = callDelBatch(runtime, list, plugin, calls);
    calls = calls.filter((call) =>
      !notDone.has(call) || collectFailure(failures, () => callPlugin(runtime, list, plugin, call))
    );
    reportPlugin();
  }
  return calls.flatMap(({ entry }) => {
    const { containerId, ifname } = entry;
    if (!collectFailure(failures, () => cache.removeEntry(runtime.cacheDirectory, entry, runtime.log))) return [];
    runtime.log(`Removed ${describeAttachment(entry)}`);
    return { containerId, ifname };
  });
}
