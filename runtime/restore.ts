import { getGenerationId } from "../ffi/nft/objects.ts";
import { repairTable, TABLES } from "../plugins/lib/ruleset/repair.ts";
import { describeTable, isOfEarlierRelease } from "../plugins/lib/ruleset/table.ts";
import { type SharedReads, shareReads } from "../plugins/lib/protocol/shared_reads.ts";
import { listHostLinks } from "../plugins/lib/links/host_links.ts";
import type { HostContext, PluginLocation } from "../plugins/lib/protocol/context.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import { type Interface, parseResult, type Result } from "../spec/result.ts";
import { elsewhereTest } from "./attached_elsewhere.ts";
import * as cache from "./cache.ts";
import { callPlugin, describeFailure, locatePlugin, MissingPluginError } from "./call_plugin.ts";
import { describeMissingParts, findMissingParts, linkFinder, type MissingParts } from "./missing_parts.ts";
import { netnsGoneReason } from "./netns_gone.ts";
import { lockContainer } from "./lock.ts";
import { describeAttachment, resolveAttachment, type ResolvedAttachment } from "./resolve_attachment.ts";
import type { RuntimeContext } from "./context.ts";
import { countSteps, type Progress } from "./progress.ts";
import { holdNetns } from "./held_netns.ts";

/** What was found and put back. */
export interface RestoreReport {
  /** Static rules that were missing: `chain "forward" of table "inet cni"`. */
  readonly tables: readonly string[];
  /** Has an outcome for each attachment in the cache. */
  readonly attachments: readonly RestoredAttachment[];
  /** Other failures, such as a damaged file. */
  readonly problems: readonly string[];
}

/** What became of one attachment. */
export interface RestoredAttachment extends cache.AttachmentKey {
  /**
   * `incomplete`: an interface or address is missing, which only an ADD makes. `skipped`: its container or its host is
   * not
   * here.
   */
  readonly state: "whole" | "restored" | "incomplete" | "skipped" | "failed";
  /** Says why it is incomplete, skipped or failed. */
  readonly reason?: string;
  /** Says what makes it incomplete. */
  readonly missing?: MissingParts;
  /** Empty if no plugin was called. */
  readonly plugins: readonly RestoredPlugin[];
}

/** What one plugin put back. */
export interface RestoredPlugin {
  /** The name that the configuration has. */
  readonly type: string;
  /** A list of words: `host port 8080/tcp`. */
  readonly restored: readonly string[];
  /** Says why it was not called: only built-in plugins can restore. */
  readonly skipped?: string;
  /** The message of its failure. */
  readonly failed?: string;
}

export interface RestoreOptions {
  readonly progress?: Progress | undefined;
  /** How long to wait for another command for the same container. */
  readonly maxWaitMs?: number;
  isWanted?(entry: cache.CacheEntry): boolean;
  /** Asked before each attachment. If true, the rest is left out. */
  isStopped?(): boolean;
  /** Asked under the container's lock. @returns why the attachment must stay as it is, if it must */
  findSkipReason?(entry: cache.CacheEntry, prevResult: Result): string | undefined;
}

/** Links, addresses and kernel parameters are only compared, see {@linkcode Runtime.restore}. */
export function restoreAttachments(
  runtime: RuntimeContext,
  network?: NetworkConfigList | string,
  options: RestoreOptions = {},
): RestoreReport {
  const problems: string[] = [];
  const name = typeof network === "object" ? network.name : network;
  const entries = cache.listCacheEntries(runtime.cacheDirectory, name, (problem) => void problems.push(problem))
    .filter((entry) => options.isWanted?.(entry) ?? true).sort(compareByInterface);
  const tables = TABLES.flatMap((table) => {
    try {
      const { nft: nl } = runtime.hostContext.host;
      const isUpgrade = isOfEarlierRelease(nl, table);
      const repaired = repairTable(nl, table);
      if (isUpgrade) runtime.log(`Upgraded ${describeTable(table)}, which had the rules of an earlier release`);
      return repaired;
    } catch (error) {
      problems.push(describeFailure(error));
      return [];
    }
  });
  for (const message of tables) runtime.log(`Restored ${message}`);
  for (const message of problems) runtime.log(message);
  const loggedPlugins = new Set<string>();
  const { host } = runtime.hostContext;
  using sharedReads = shareReads(host.nft, getGenerationId);
  const isOnHost = linkFinder(host, () => listHostLinks(host));
  const isElsewhere = elsewhereTest(host, () => listHostLinks(host));
  const context = { ...runtime, hostContext: locateOnce(runtime.hostContext) };
  const reportAttachment = countSteps(entries.length, options.progress ?? (() => {}));
  const attachments = entries.flatMap((listed) => {
    if (options.isStopped?.()) return [];
    const restored = restoreAttachment(context, network ?? listed.network, listed, {
      ...options,
      isOnHost,
      isElsewhere,
      sharedReads,
    });
    if (restored) logRestored(runtime, restored, loggedPlugins);
    reportAttachment();
    return restored ?? [];
  });
  return { tables, attachments, problems };
}

function locateOnce(context: HostContext): HostContext {
  const found = new Map<string, { readonly directories: readonly string[]; readonly location: PluginLocation }>();
  return {
    ...context,
    locate(type, directories) {
      const known = found.get(type);
      if (known?.directories === directories) return known.location;
      const location = context.locate(type, directories);
      found.set(type, { directories, location });
      return location;
    },
  };
}

/** `eth2` before `eth10`: if two networks publish a port, the first attached keeps it. */
function compareByInterface({ ifname: a }: cache.AttachmentKey, { ifname: b }: cache.AttachmentKey): number {
  return a.length - b.length || Number(a > b) - Number(a < b);
}

interface AttachmentOptions extends RestoreOptions {
  isOnHost(iface: Interface): boolean;
  isElsewhere(result: Result): boolean;
  readonly sharedReads: SharedReads;
}

/** Returns `undefined` if detached meanwhile. */
function restoreAttachment(
  runtime: RuntimeContext,
  network: NetworkConfigList | string,
  listed: cache.CacheEntry,
  { isOnHost, isElsewhere, sharedReads, findSkipReason, maxWaitMs }: AttachmentOptions,
): RestoredAttachment | undefined {
  const { network: name, containerId, ifname } = listed;
  const key = { network: name, containerId, ifname };
  try {
    using _ = lockContainer(runtime.cacheDirectory, containerId, {
      ...maxWaitMs !== undefined && { maxWaitMs },
      onDirectory: runtime.log,
    });
    using hostContext = holdNetns(runtime.hostContext);
    const entry = cache.findEntryAgain(runtime.cacheDirectory, listed);
    if (!entry) return undefined;
    sharedReads.refresh();
    const skipped = (reason: string) => ({ ...key, state: "skipped" as const, reason, plugins: [] });
    const reason = skipReason(entry, hostContext);
    if (reason !== undefined) return skipped(reason);
    const resolved = resolveAttachment(runtime, network, key, "restore", entry);
    const prevResult = parseResult(resolved.entry.result, resolved.list.cniVersion, "result");
    const callersReason = findSkipReason?.(entry, prevResult);
    if (callersReason !== undefined) return skipped(callersReason);
    const missing = findMissingParts(prevResult, resolved.entry.netns ?? "", hostContext, isOnHost);
    if (missing && isElsewhere(prevResult) && hasContainerLink(prevResult, missing)) {
      return skipped("its interfaces on the host are in another network namespace");
    }
    const plugins = resolved.list.plugins.map((plugin) =>
      restoreWithPlugin({ ...runtime, hostContext }, resolved, plugin, prevResult)
    );
    return {
      ...key,
      state: restoreState(plugins, missing),
      ...missing && { reason: describeMissingParts(missing), missing },
      plugins,
    };
  } catch (error) {
    return { ...key, state: "failed", reason: describeFailure(error), plugins: [] };
  }
}

/** Without both ends of a veth pair, the attachment is incomplete. */
function hasContainerLink({ interfaces = [] }: Result, { links }: MissingParts): boolean {
  return interfaces.some(({ name, sandbox }) => sandbox && !links.includes(name));
}

/** Rules of a dead container would lead to the next owner of its address. */
function skipReason(entry: cache.CacheEntry, context: HostContext): string | undefined {
  if (entry.result === undefined) return "its ADD has not ended";
  if (!entry.netns) return "its namespace is not known";
  return netnsGoneReason(entry, context);
}

function restoreWithPlugin(
  runtime: RuntimeContext,
  { list, entry }: ResolvedAttachment,
  plugin: PluginEntry,
  prevResult: Result,
): RestoredPlugin {
  const { type } = plugin;
  try {
    const { restored } = callPlugin(runtime, list, plugin, { command: "RESTORE", parameters: entry, prevResult });
    return restored ? { type, restored } : { type, restored: [], skipped: skippedPluginReason(runtime, list, plugin) };
  } catch (error) {
    if (error instanceof MissingPluginError) {
      return { type, restored: [], skipped: "it is not built into this program" };
    }
    return { type, restored: [], failed: describeFailure(error) };
  }
}

function skippedPluginReason(runtime: RuntimeContext, list: NetworkConfigList, plugin: PluginEntry): string {
  const location = locatePlugin(runtime, list, plugin);
  return "program" in location ? `"${location.program}" is called for it, and has no such command` : "";
}

function restoreState(
  plugins: readonly RestoredPlugin[],
  missing: MissingParts | undefined,
): RestoredAttachment["state"] {
  if (plugins.some(({ failed }) => failed !== undefined)) return "failed";
  if (missing) return "incomplete";
  return plugins.some(({ restored }) => restored.length > 0) ? "restored" : "whole";
}

/** @param loggedPlugins networks and plugins that were named already */
function logRestored({ log }: RuntimeContext, attachment: RestoredAttachment, loggedPlugins: Set<string>): void {
  const { state, reason, missing, plugins, network } = attachment;
  const subject = describeAttachment(attachment);
  const restored = plugins.flatMap((plugin) => plugin.restored);
  if (restored.length > 0) log(`Restored for ${subject}: ${restored.join(", ")}`);
  if (state === "skipped") log(`Skipping ${subject}: ${reason}`);
  else if (missing) log(`Only a DEL and an ADD complete ${subject}: ${reason}`);
  else if (reason !== undefined) log(`Cannot restore ${subject}: ${reason}`);
  for (const { type, skipped, failed } of plugins) {
    if (failed !== undefined) log(`Cannot restore ${subject}: ${failed}`);
    if (skipped === undefined || loggedPlugins.has(`${network} ${type}`)) continue;
    loggedPlugins.add(`${network} ${type}`);
    log(`Skipping plugin "${type}" of network "${network}": ${skipped}`);
  }
}
