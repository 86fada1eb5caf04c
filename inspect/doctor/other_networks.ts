/** What other networks of this host have: two may have one range, as while one takes the place of the other. @module */
import { hostPrefix, type Ip, ipOf } from "../../ffi/address.ts";
import type { Link } from "../../ffi/route/link.ts";
import { parseAlias } from "../../plugins/lib/model/owner.ts";
import { listAttachments, type NetworkAttachment } from "../../runtime/attachments.ts";
import type { Subject } from "./subject.ts";

/** Those in the cache whose containers are there. */
function listOthers({ runtime, network }: Subject): readonly NetworkAttachment[] {
  return listAttachments(runtime.cacheDirectory, runtime.hostContext, undefined, runtime.log)
    .filter((attachment) => attachment.network !== network.name && attachment.state !== "gone");
}

/** Engines have caches of their own: a route to an address by the link of an attachment tells as much. */
export function addressesOfOthers(subject: Subject): readonly Ip[] {
  const { host: { links, routes } } = subject;
  const attached = new Set(links.filter(({ alias }) => parseAlias(alias)).map(({ index }) => index));
  return [
    ...listOthers(subject).flatMap(({ result }) => (result?.ips ?? []).map(({ address }) => ipOf(address))),
    ...routes.filter(({ dst, oif }) => oif !== undefined && attached.has(oif) && dst === hostPrefix(ipOf(dst)))
      .map(({ dst }) => ipOf(dst)),
  ];
}

/** The other network, if any, whose attachments have a link of the host, such as their bridge. */
export type FindOtherNetwork = (device: Link) => string | undefined;

export function otherNetworkFinder(subject: Subject): FindOtherNetwork {
  let users: ReadonlyMap<string, string> | undefined;
  const findUsers = () =>
    users ??= new Map(
      listOthers(subject).flatMap(({ network, result }) =>
        (result?.interfaces ?? []).filter(({ sandbox }) => !sandbox).map(({ name }) => [name, network] as const)
      ),
    );
  return ({ name = "", alias }) => {
    const network = parseAlias(alias)?.network ?? findUsers().get(name);
    return network === subject.network.name ? undefined : network;
  };
}
