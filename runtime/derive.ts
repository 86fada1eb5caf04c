/**
 * What plugins would be sent, without calling one.
 *
 * @see SPEC.md §Deriving plugin execution configuration
 */
import { nowCeil } from "../ffi/sys/mtime.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { deriveRequest, type NetworkConfigList } from "../spec/network_config_list.ts";
import { atLeast, type CniCommand, introducedIn } from "../spec/version.ts";
import { findCachedResult, resolveAttachment, type RuntimeConf } from "./resolve_attachment.ts";
import type { RuntimeContext } from "./context.ts";
import { requireVersion } from "./check.ts";
import { resolveValidAttachments } from "./named_attachments.ts";

/** The request for one plugin. */
export interface DerivedRequest {
  /** The plugin it is for. */
  readonly type: string;
  /** What it would read from stdin: a JSON document. */
  readonly request: string;
}

/** What to derive requests for. */
export interface DeriveOptions {
  /** The command. */
  readonly verb: Exclude<CniCommand, "VERSION">;
  /** The attachment; DEL and CHECK read its cache entry, and have no prevResult without it. */
  readonly parameters?: RuntimeConf;
  /** For GC: what is to stay. */
  readonly valid?: readonly Attachment[];
  /** As for {@linkcode GcOptions.resolveNames}. */
  readonly resolveNames?: boolean;
  /** As for {@linkcode GcOptions.ignoreUnknown}. */
  readonly ignoreUnknown?: boolean;
}

/**
 * The requests in the order of the calls. Logs why no plugin would be called.
 *
 * Of an ADD, only the first request is complete: later plugins also get the result of the one before.
 *
 * @throws {CniError} as the command itself, if it would not call a plugin
 */
export function deriveRequests(
  store: RuntimeContext,
  network: NetworkConfigList | string,
  { verb, parameters, valid = [], resolveNames = false, ignoreUnknown = false }: DeriveOptions,
): DerivedRequest[] {
  const isForAttachment = verb === "CHECK" || verb === "DEL";
  const attachment = isForAttachment && parameters
    ? resolveAttachment(store, network, parameters, verb === "DEL" ? "remove" : "check")
    : undefined;
  const list = attachment?.list ?? network;
  if (typeof list === "string") return [];
  const reason = notCalledReason(list, verb);
  if (reason !== undefined) {
    store.log(`Network "${list.name}" ${reason}: no plugin would be called`);
    return [];
  }
  const prevResult = attachment && findCachedResult(store, attachment);
  const capabilityArgs = attachment?.entry.capabilityArgs ?? parameters?.capabilityArgs;
  const options = {
    command: verb,
    ...(prevResult && { prevResult }),
    ...(capabilityArgs && { capabilityArgs }),
    validAttachments: resolveNames
      ? resolveValidAttachments(store, list, valid, { snapshotTime: nowCeil(), ignoreUnknown })
      : valid,
  };
  const plugins = verb === "DEL" ? list.plugins.toReversed() : list.plugins;
  return plugins.map((plugin) => ({ type: plugin.type, request: deriveRequest(list, plugin, options) }));
}

function notCalledReason(list: NetworkConfigList, verb: CniCommand): string | undefined {
  if (verb === "CHECK") requireVersion(list, verb);
  if (!atLeast(list.cniVersion, introducedIn[verb])) return `has cniVersion ${list.cniVersion}, which has no ${verb}`;
  if (verb === "CHECK" && list.disableCheck) return "has disableCheck";
  if (verb === "GC" && list.disableGC) return "has disableGC";
  return undefined;
}
