import type { Netns } from "../../../ffi/netns/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { readOnce } from "../protocol/shared_reads.ts";

/** The host's links, read once per command that shares reads. */
export function listHostLinks(host: Netns): readonly link.Link[] {
  return readOnce(host.nft, "host links", () => link.list(host.route));
}

/** With shared reads, the link may be gone already. */
export function findHostLink(host: Netns, name: string): link.Link | undefined {
  if (!host.nft.sharedReads) return link.find(host.route, name);
  const byName = readOnce(
    host.nft,
    "host links by name",
    () => new Map(listHostLinks(host).map((found) => [found.name, found])),
  );
  return byName.get(name);
}
