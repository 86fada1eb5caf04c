import { nowCeil } from "../ffi/sys/mtime.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { deriveRequest, type NetworkConfigList } from "../spec/network_config_list.ts";
import { atLeast, type CniCommand, introducedIn } from "../spec/version.ts";
import { findCachedResult, resolveAttachment, type RuntimeConf } from "./resolve_attachment.ts";
import type { RuntimeContext } from "./context.ts";
import { requireVersion } from "./check.ts";
import { resolveValidAttachments } from "./named_attachments.ts";

/** What one plugin would be asked. */
export interface DerivedRequest {
  /** The name of the plugin. */
  readonly type: string;
  /** A JSON document for its standard input. */
  readonly request: string;
}

/** Says what requests to derive. */
export interface DeriveOptions {
  /** The command that is not called. */
  readonly verb: Exclude<CniCommand, "VERSION">;
  /** DEL and CHECK read its cache entry, and have no prevResult without it. */
  readonly parameters?: RuntimeConf;
  /** What GC is to keep. */
  readonly valid?: readonly Attachment[];
  /** The same as {@linkcode GcOptions.resolveNames}. */
  readonly resolveNames?: boolean;
  /** The same as {@linkcode GcOptions.ignoreUnknown}. */
  readonly ignoreUnknown?: boolean;
}

/**
 * Requests in the order of calls, without a call (SPEC §Deriving plugin execution configuration). Logs why there are
 * none.
 *
 * For ADD, only the first is complete: later plugins also get the previous result.
 *
 * @throws {CniError} as the command before it calls a plugin
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
