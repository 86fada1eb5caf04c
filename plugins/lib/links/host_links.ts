/** Links of the host, listed once for a command that works on many attachments. */
import type { Netns } from "../../../ffi/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { readOnce, sharesReads } from "../protocol/shared_reads.ts";

/** All links of the host, as they were when they were first asked for. @throws {NetlinkError} */
export function listHostLinks(host: Netns): readonly link.Link[] {
  return readOnce(host.nft, "host links", () => link.list(host.route));
}

/** The host's link of this name. Where reads are shared, it may be gone since the command began. @throws {NetlinkError} */
export function findHostLink(host: Netns, name: string): link.Link | undefined {
  if (!sharesReads(host.nft)) return link.find(host.route, name);
  const byName = readOnce(
    host.nft,
    "host links by name",
    () => new Map(listHostLinks(host).map((found) => [found.name, found])),
  );
  return byName.get(name);
}
