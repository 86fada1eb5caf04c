import type { Attachment } from "../../spec/plugin_config.ts";
import { type Args, listCacheEntries } from "../../runtime/cache.ts";

export interface RememberedAttachment extends Attachment {
  readonly args: Args;
}

/** Does not look at the machine, unlike {@linkcode Runtime.attachments}. */
export function listRememberedAttachments(cacheDirectory: string, network?: string): RememberedAttachment[] {
  return listCacheEntries(cacheDirectory, network).map(({ containerId, ifname, args }) => ({
    containerId,
    ifname,
    args,
  }));
}
