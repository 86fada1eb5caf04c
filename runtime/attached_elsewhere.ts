import type { Netns } from "../ffi/netns/netns.ts";
import * as link from "../ffi/route/link.ts";
import type { Interface, Result } from "../spec/result.ts";

/** Links of these kinds have the same names in many network namespaces. */
const SHARED_KINDS: readonly (string | undefined)[] = ["bridge", "vlan"];

/**
 * Tells whether an attachment's ends are in another network namespace than the host's: its ports are none of this one.
 *
 * Network namespaces may share a cache. Results without interfaces tell nothing. The host's links are read once.
 */
export function elsewhereTest(
  host: Netns,
  listLinks: () => readonly link.Link[] = () => link.list(host.route),
): (result: Result) => boolean {
  let known: ReadonlyMap<string | undefined, link.Link> | undefined;
  // Links are renamed.
  const findLink = ({ name, mac }: Interface) => {
    known ??= new Map(listLinks().flatMap((found) => [[found.mac, found], [found.name, found]]));
    return known.get(name) ?? (mac === undefined ? undefined : known.get(mac.toLowerCase()));
  };
  return ({ interfaces = [] }) => {
    const links = interfaces.filter(isHostLink).map(findLink);
    return links.includes(undefined) && links.every((found) => !found || SHARED_KINDS.includes(found.info?.kind));
  };
}

function isHostLink({ name, sandbox, socketPath, pciID }: Interface): boolean {
  return name !== "" && !sandbox && !socketPath && !pciID;
}
