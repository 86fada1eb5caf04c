import type { Attachment } from "../spec/plugin_config.ts";
import { listCacheEntries } from "./cache.ts";

/** Without a look at the machine, unlike {@linkcode Runtime.attachments}. @throws {SystemError} */
export function listRememberedAttachments(cacheDirectory: string, network?: string): Attachment[] {
  return listCacheEntries(cacheDirectory, network).map(({ containerId, ifname }) => ({ containerId, ifname }));
}
