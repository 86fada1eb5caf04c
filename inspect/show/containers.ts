import { type Netns, NetnsError, openNetns } from "../../ffi/netns/netns.ts";
import type { Link } from "../../ffi/route/link.ts";
import { findNsid } from "../../ffi/route/nsid.ts";
import { parseAlias, sameOwner } from "../../plugins/lib/model/owner.ts";
import type { NetworkAttachment } from "../../runtime/attachments.ts";
import { listNamespaceLinks, type NamespaceLinks } from "./links.ts";
import type { ContainerInterface } from "./node_tree.ts";

export interface ContainerSide {
  readonly interfaces: readonly ContainerInterface[];
  readonly hostEnd?: Link;
  readonly lowerDevice?: Link;
}

/** @param hostLinks as the host's namespace lists them */
export function findContainerSide(
  attachment: NetworkAttachment,
  host: Netns,
  hostLinks: ReadonlyMap<number, Link>,
): ContainerSide {
  const { netns: path, state } = attachment;
  // Another namespace may have come to the path of a stale attachment.
  if (path === undefined || state === "gone") return { interfaces: [], ...hostEndByAlias(attachment, hostLinks) };
  try {
    using netns = openNetns(path, host);
    const container = listNamespaceLinks(netns.route);
    const links = findInterfaces(attachment, container);
    const interfaces = links.map((found) => showInterface(found, container));
    return { interfaces, ...links.map((found) => findHostSide(found, netns, host, hostLinks)).find(isFound) };
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    return { interfaces: [], ...hostEndByAlias(attachment, hostLinks) };
  }
}

type HostSide = Omit<ContainerSide, "interfaces">;

/** The interface of the attachment first. Containers rename interfaces, which keep their hardware address. */
function findInterfaces({ ifname, result }: NetworkAttachment, { links }: NamespaceLinks): Link[] {
  const wanted = (result?.interfaces ?? []).filter(({ sandbox }) => sandbox);
  const all = [...links.values()].filter(({ name }) => name !== "lo");
  const names = new Set([ifname, ...wanted.map(({ name }) => name)]);
  const macs = new Set(wanted.filter(({ name }) => !all.some((link) => link.name === name)).map(({ mac }) => mac));
  return all.filter(({ name = "", mac }) => names.has(name) || (mac !== undefined && macs.has(mac)))
    .sort((a, b) => Number(b.name === ifname) - Number(a.name === ifname));
}

function showInterface(found: Link, container: NamespaceLinks): ContainerInterface {
  const master = found.master === undefined ? undefined : container.links.get(found.master)?.name;
  return {
    ...container.show(found),
    ...master !== undefined && { master },
    routes: container.routesOf(found.index),
  };
}

function findHostSide(
  { linkIndex, linkNetnsId, info }: Link,
  netns: Netns,
  host: Netns,
  hostLinks: ReadonlyMap<number, Link>,
): HostSide {
  if (linkIndex === undefined || linkNetnsId === undefined) return {};
  if (findNsid(netns.route, host.fd) !== linkNetnsId) return {};
  const found = hostLinks.get(linkIndex);
  if (!found) return {};
  return info?.kind === "veth" ? { hostEnd: found } : { lowerDevice: found };
}

const isFound = ({ hostEnd, lowerDevice }: HostSide): boolean => hostEnd !== undefined || lowerDevice !== undefined;

function hostEndByAlias(attachment: NetworkAttachment, hostLinks: ReadonlyMap<number, Link>): HostSide {
  const hostEnd = [...hostLinks.values()].find(({ alias }) => sameOwner(parseAlias(alias) ?? undefined, attachment));
  return hostEnd ? { hostEnd } : {};
}
