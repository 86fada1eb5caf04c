import type { Attachment } from "../../spec/plugin_config.ts";
import { type Args, listCacheEntries } from "../../runtime/cache.ts";

/** An attachment with what names its container. */
export interface RememberedAttachment extends Attachment {
  /** CNI_ARGS of its ADD. */
  readonly args: Args;
}

/** Without a look at the machine, unlike {@linkcode Runtime.attachments}. @throws {SystemError} */
export function listRememberedAttachments(cacheDirectory: string, network?: string): RememberedAttachment[] {
  return listCacheEntries(cacheDirectory, network).map(({ containerId, ifname, args }) => ({
    containerId,
    ifname,
    args,
  }));
}
