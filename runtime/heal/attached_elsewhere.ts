import type { Netns } from "../../ffi/netns.ts";
import type { Link } from "../../ffi/route/link.ts";
import { listHostLinks } from "../../plugins/lib/links/host_links.ts";
import { readOnce } from "../../plugins/lib/protocol/shared_reads.ts";
import type { Interface, Result } from "../../spec/result.ts";

/** Links of these kinds have the same names in many network namespaces. */
const SHARED_KINDS: readonly (string | undefined)[] = ["bridge", "vlan"];

/**
 * Whether an attachment's ends are in another network namespace than the host's: then its ports are none of this one.
 *
 * Network namespaces may share a cache. Results without interfaces tell nothing.
 */
export function isAttachedElsewhere(host: Netns, { interfaces = [] }: Result): boolean {
  const links = interfaces.filter(isHostLink).map(linkFinder(host));
  return links.includes(undefined) && links.every((found) => !found || SHARED_KINDS.includes(found.info?.kind));
}

/** Not sockets and PCI devices. */
function isHostLink({ name, sandbox, socketPath, pciID }: Interface): boolean {
  return name !== "" && !sandbox && !socketPath && !pciID;
}

/** By name or hardware address: links are renamed. */
function linkFinder(host: Netns): (iface: Interface) => Link | undefined {
  const links = readOnce(
    host.nft,
    "host links by name or address",
    () => new Map(listHostLinks(host).flatMap((found) => [[found.mac, found], [found.name, found]])),
  );
  return ({ name, mac }) => links.get(name) ?? (mac === undefined ? undefined : links.get(mac.toLowerCase()));
}
