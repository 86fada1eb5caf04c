/**
 * What is attached, as far as it is remembered.
 *
 * @module
 */
import { parseResult, type Result } from "../spec/result.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import type { JsonObject } from "../spec/schema.ts";
import { LATEST } from "../spec/version.ts";
import { type Args, type AttachmentKey, type CacheEntry, listCacheEntries } from "./cache.ts";
import { holdNetns } from "./held_netns.ts";
import { describeMissingParts, findMissingParts, linkFinder, type MissingParts } from "./missing_parts.ts";
import { netnsGoneReason } from "./netns_gone.ts";

/** An attachment of which something is remembered. */
export interface NetworkAttachment extends AttachmentKey {
  /**
   * `incomplete` if an interface or an address is missing; `unfinished` while its ADD runs, or if that was killed; `gone` if it cannot live
   * any more. Rules are not looked at: {@linkcode Runtime.restore} and {@linkcode Runtime.check} do.
   */
  readonly state: "attached" | "incomplete" | "unfinished" | "gone";
  /** Why it is incomplete, or cannot live any more: its namespace is gone, or of an earlier boot. */
  readonly reason?: string;
  /** What makes it incomplete. */
  readonly missing?: MissingParts;
  /** Path of the container's network namespace. */
  readonly netns?: string;
  /** CNI_ARGS of its ADD. */
  readonly args: Args;
  /** What its ADD was given by capability. */
  readonly capabilityArgs: JsonObject;
  /** Of its ADD; absent while that has not ended, or if it cannot be read. */
  readonly result?: Result;
}

/**
 * The attachments to a network, or all of them, by network, container and interface.
 *
 * @param log told of what is remembered and cannot be understood
 * @throws {SystemError}
 */
export function listAttachments(
  directory: string,
  context: HostContext,
  network?: string,
  log?: (message: string) => void,
): NetworkAttachment[] {
  const isOnHost = linkFinder(context.host);
  return listCacheEntries(directory, network, log).map((entry) => {
    const { network, containerId, ifname, netns, args, capabilityArgs } = entry;
    const result = parseCachedResult(entry);
    using heldContext = holdNetns(context);
    const goneReason = netnsGoneReason(entry, heldContext);
    const missing = goneReason === undefined && result && netns
      ? findMissingParts(result, netns, heldContext, isOnHost)
      : undefined;
    const reason = goneReason ?? (missing && describeMissingParts(missing));
    return {
      network,
      containerId,
      ifname,
      state: goneReason !== undefined
        ? "gone"
        : entry.result === undefined
        ? "unfinished"
        : missing
        ? "incomplete"
        : "attached",
      ...(reason !== undefined && { reason }),
      ...(missing && { missing }),
      ...(netns && { netns }),
      args,
      capabilityArgs,
      ...(result && { result }),
    };
  });
}

function parseCachedResult({ result }: CacheEntry): Result | undefined {
  try {
    return result === undefined ? undefined : parseResult(result, LATEST);
  } catch {
    return undefined;
  }
}
