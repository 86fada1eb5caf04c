/**
 * Putting back the rules of attachments that somebody took away: `nft flush ruleset`, a firewall that was loaded anew, a restart.
 *
 * What is remembered says what there is to be. Links, addresses and kernel parameters are not touched: those that are missing are named.
 *
 * @module
 */
import { repairTable, TABLES } from "../plugins/lib/ruleset/repair.ts";
import { type SharedReads, shareReads } from "../plugins/lib/protocol/shared_reads.ts";
import { listHostLinks } from "../plugins/lib/links/host_links.ts";
import type { HostContext, PluginLocation } from "../plugins/lib/protocol/context.ts";
import { CniError } from "../spec/error.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import { type Interface, parseResult, type Result } from "../spec/result.ts";
import * as cache from "./cache.ts";
import { callPlugin, locatePlugin, MissingPluginError } from "./call_plugin.ts";
import { describeMissingParts, findMissingParts, linkFinder, type MissingParts } from "./missing_parts.ts";
import { netnsGoneReason } from "./netns_gone.ts";
import { lockContainer } from "./lock.ts";
import { describeAttachment, resolveAttachment, type ResolvedAttachment } from "./resolve_attachment.ts";
import type { RuntimeContext } from "./context.ts";
import { holdNetns } from "./held_netns.ts";

/** What was found and put back. */
export interface RestoreReport {
  /** What was missing of the rules that all attachments have in common: `chain "forward" of table "inet cni"`. */
  readonly tables: readonly string[];
  /** Those that are remembered, also where nothing was missing. */
  readonly attachments: readonly RestoredAttachment[];
  /** What went wrong besides the attachments that failed, such as a file that cannot be understood. */
  readonly problems: readonly string[];
}

/** One attachment of which something is remembered. */
export interface RestoredAttachment extends cache.AttachmentKey {
  /**
   * `whole` if nothing was missing; `incomplete` if an interface or an address is, which is not put back here; `skipped` if there is nothing to
   * have rules for.
   */
  readonly state: "whole" | "restored" | "incomplete" | "skipped" | "failed";
  /** Why it is incomplete or was skipped, or why no plugin could be asked. */
  readonly reason?: string;
  /** What makes it incomplete. */
  readonly missing?: MissingParts;
  /** What became of each plugin's rules; empty if none was asked. */
  readonly plugins: readonly RestoredPlugin[];
}

/** One plugin of an attachment's network, in the order of the list. */
export interface RestoredPlugin {
  /** As in the configuration. */
  readonly type: string;
  /** What it put back, in words: `host port 8080/tcp`. */
  readonly restored: readonly string[];
  /** Why it was not asked: only those of this program can be. */
  readonly skipped?: string;
  /** What it failed with. */
  readonly failed?: string;
}

/**
 * Puts back what is missing of the rules of a network's attachments, or of all; what is whole is not touched.
 *
 * @param network its configuration, for attachments that do not remember one, or its name
 * @returns also what failed, which keeps nothing else from being put back
 * @throws {SystemError} if what is remembered cannot be read
 */
export function restoreAttachments(
  runtime: RuntimeContext,
  network?: NetworkConfigList | string,
): RestoreReport {
  const problems: string[] = [];
  const name = typeof network === "object" ? network.name : network;
  const entries = cache.listCacheEntries(runtime.cacheDirectory, name, (problem) => void problems.push(problem)).sort(
    compareByInterface,
  );
  const tables = TABLES.flatMap((table) => {
    try {
      return repairTable(runtime.hostContext.host.nft, table);
    } catch (error) {
      problems.push(formatError(error));
      return [];
    }
  });
  for (const message of tables) runtime.log(`Restored ${message}`);
  for (const message of problems) runtime.log(message);
  const loggedPlugins = new Set<string>();
  const { host } = runtime.hostContext;
  using sharedReads = shareReads(host.nft);
  const isOnHost = linkFinder(host, () => listHostLinks(host));
  const context = { ...runtime, hostContext: locateOnce(runtime.hostContext) };
  const attachments = entries.flatMap((listed) => {
    const restored = restoreAttachment(context, network ?? listed.network, listed, isOnHost, sharedReads);
    if (restored) logRestored(runtime, restored, loggedPlugins);
    return restored ?? [];
  });
  return { tables, attachments, problems };
}

/** The same machine, but each plugin is looked for once. */
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

/** `eth2` before `eth10`: of what two networks of a container both publish, the first keeps it, which mostly was attached first. */
function compareByInterface({ ifname: a }: cache.AttachmentKey, { ifname: b }: cache.AttachmentKey): number {
  return a.length - b.length || (a < b ? -1 : a > b ? 1 : 0);
}

/** `undefined` if it was detached meanwhile. */
function restoreAttachment(
  runtime: RuntimeContext,
  network: NetworkConfigList | string,
  listed: cache.CacheEntry,
  isOnHost: (iface: Interface) => boolean,
  sharedReads: SharedReads,
): RestoredAttachment | undefined {
  const { network: name, containerId, ifname } = listed;
  const key = { network: name, containerId, ifname };
  try {
    using _ = lockContainer(runtime.cacheDirectory, containerId);
    using hostContext = holdNetns(runtime.hostContext);
    const entry = cache.findEntryAgain(runtime.cacheDirectory, listed);
    if (!entry) return undefined;
    sharedReads.refresh();
    const reason = skipReason(entry, hostContext);
    if (reason !== undefined) return { ...key, state: "skipped", reason, plugins: [] };
    const resolved = resolveAttachment(runtime, network, key, "restore", entry);
    const prevResult = parseResult(resolved.entry.result, resolved.list.cniVersion, "result");
    const plugins = resolved.list.plugins.map((plugin) =>
      restoreWithPlugin({ ...runtime, hostContext }, resolved, plugin, prevResult)
    );
    const missing = findMissingParts(prevResult, resolved.entry.netns ?? "", hostContext, isOnHost);
    return {
      ...key,
      state: restoreState(plugins, missing),
      ...missing && { reason: describeMissingParts(missing), missing },
      plugins,
    };
  } catch (error) {
    return { ...key, state: "failed", reason: formatError(error), plugins: [] };
  }
}

/** Rules of a container that is not there would lead to whoever has its address by now. */
function skipReason(entry: cache.CacheEntry, context: HostContext): string | undefined {
  if (entry.result === undefined) return "its ADD has not ended";
  if (!entry.netns) return "it is not known in which namespace it is";
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
    return { type, restored: [], failed: formatError(error) };
  }
}

function skippedPluginReason(runtime: RuntimeContext, list: NetworkConfigList, plugin: PluginEntry): string {
  const location = locatePlugin(runtime, list, plugin);
  return "program" in location ? `"${location.program}" is called for it, which cannot be asked` : "";
}

function restoreState(
  plugins: readonly RestoredPlugin[],
  missing: MissingParts | undefined,
): RestoredAttachment["state"] {
  if (plugins.some(({ failed }) => failed !== undefined)) return "failed";
  if (missing) return "incomplete";
  return plugins.some(({ restored }) => restored.length > 0) ? "restored" : "whole";
}

/** @param loggedPlugins plugins that were named already, which are the same for every attachment of a network */
function logRestored({ log }: RuntimeContext, attachment: RestoredAttachment, loggedPlugins: Set<string>): void {
  const { state, reason, missing, plugins, network } = attachment;
  const subject = describeAttachment(attachment);
  const restored = plugins.flatMap((plugin) => plugin.restored);
  if (restored.length > 0) log(`Restored of ${subject}: ${restored.join(", ")}`);
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

function formatError(error: unknown): string {
  const { message, details } = CniError.from(error);
  return details ? `${message}; ${details}` : message;
}
