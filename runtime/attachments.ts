import type { Result } from "../spec/result.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import type { JsonObject } from "../spec/schema.ts";
import { type Args, type AttachmentKey, type CacheEntry, listCacheEntries } from "./cache.ts";
import { parseCachedResult } from "./cached_result.ts";
import { holdNetns } from "./held_netns.ts";
import { describeMissingParts, findMissingParts, linkFinder, type MissingParts } from "./missing_parts.ts";
import { netnsGoneReason } from "./netns_gone.ts";

/** An attachment in the cache, as it is now. */
export interface NetworkAttachment extends AttachmentKey {
  /**
   * `incomplete`: an interface or address is missing. `unfinished`: its ADD runs or was killed. `gone`: it is stale.
   * For rules, see {@linkcode Runtime.restore} and {@linkcode Runtime.check}.
   */
  readonly state: "attached" | "incomplete" | "unfinished" | "gone";
  /** Says why it is incomplete or gone. */
  readonly reason?: string;
  /** Says what makes it incomplete. */
  readonly missing?: MissingParts;
  /** The path of the container's namespace. */
  readonly netns?: string;
  /** CNI_ARGS of the ADD that made it. */
  readonly args: Args;
  /** The ADD's arguments by capability. */
  readonly capabilityArgs: JsonObject;
  /** What its ADD made; absent if unfinished or unreadable. */
  readonly result?: Result;
}

/** @param log told of damaged files */
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
      state: stateOf(entry, goneReason, missing),
      ...(reason !== undefined && { reason }),
      ...(missing && { missing }),
      ...(netns && { netns }),
      args,
      capabilityArgs,
      ...(result && { result }),
    };
  });
}

function stateOf(
  { result }: CacheEntry,
  goneReason: string | undefined,
  missing: MissingParts | undefined,
): NetworkAttachment["state"] {
  if (goneReason !== undefined) return "gone";
  if (result === undefined) return "unfinished";
  return missing ? "incomplete" : "attached";
}
