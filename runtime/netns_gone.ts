/**
 * Attachments that ended without a DEL: the machine was restarted, or the container's namespace is gone.
 *
 * What may live is never touched. Nothing here goes by a container's id, since that is what comes back, nor by time, since clocks jump, but
 * for what was written before this boot and does not say so.
 *
 * @module
 */
import { findBootId, modifiedBeforeBoot } from "../ffi/sys/boot.ts";
import { type Netns, NetnsError, openNetns } from "../ffi/netns.ts";
import { hasNetnsCookie } from "../ffi/netns_record.ts";
import * as link from "../ffi/route/link.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import { type Interface, parseResult } from "../spec/result.ts";
import { LATEST } from "../spec/version.ts";
import type { CacheEntry } from "./cache.ts";

/** Links of these kinds belong to one container; a bridge or a VLAN on the host is shared, and says nothing. */
const CONTAINER_LINK_KINDS = ["veth", "ifb", "tun"];

/**
 * Why an attachment cannot live any more; `undefined` if it may.
 *
 * A namespace of the same name can be another one: its cookie tells. Where none is remembered, it is if none of the interfaces that the ADD
 * made is there, by name or by hardware address. The container may live elsewhere all the same, as long as the host's end of one of them is
 * there. Without a result the cookie is all there is to go by; an ADD that still runs is not hit, because whoever removes what is left asks
 * once more with the container's lock held.
 */
export function netnsGoneReason(
  entry: CacheEntry,
  context: Pick<HostContext, "host" | "openNetns">,
): string | undefined {
  if (isOfEarlierBoot(entry)) return "it was attached before the last start of the machine";
  const { netns: path } = entry;
  if (!path) return undefined;
  try {
    using netns = context.openNetns(path);
    return isNetnsReplaced(entry, netns, context.host) ? `namespace "${path}" is another one by now` : undefined;
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    if (error.absent) return `namespace "${path}" is gone`;
    // What could not be opened, or entered, may well be a namespace.
    return error.cause === undefined ? `"${path}" is no namespace any more` : undefined;
  }
}

let isBeforeBoot: ReturnType<typeof modifiedBeforeBoot> | undefined;

/** Whether an entry is certainly of an earlier boot. Then its namespace is gone, and what is at that path is somebody else's. */
function isOfEarlierBoot({ written }: CacheEntry): boolean {
  if (!written) return false;
  if (!("boot" in written)) return (isBeforeBoot ??= modifiedBeforeBoot())(written);
  const boot = findBootId();
  return boot !== undefined && written.boot !== boot;
}

/**
 * Whether the attachment's namespace is at `path`; `undefined` if that cannot be told.
 *
 * @throws {SystemError} if the namespace cannot be looked into
 */
export function isNetnsOf(
  entry: CacheEntry,
  path: string,
  open: HostContext["openNetns"] = openNetns,
): boolean | undefined {
  if (isOfEarlierBoot(entry)) return false;
  if (path === "" || entry.netnsCookie === undefined) return undefined;
  try {
    using netns = open(path);
    return hasNetnsCookie(netns, entry.netnsCookie);
  } catch (error) {
    if (error instanceof NetnsError) return undefined;
    throw error;
  }
}

function isNetnsReplaced(entry: CacheEntry, netns: Netns, host: Netns): boolean {
  const isOwnNetns = hasNetnsCookie(netns, entry.netnsCookie);
  if (isOwnNetns) return false;
  if (entry.result === undefined) return isOwnNetns === false;
  const interfaces = resultInterfaces(entry);
  const containerInterfaces = interfaces.filter(({ sandbox }) => sandbox);
  if (containerInterfaces.length === 0) return false;
  if (isOwnNetns === undefined && hasAnyInterface(containerInterfaces, netns, entry)) return false;
  return !hasHostInterface(host, interfaces.filter(({ sandbox }) => !sandbox));
}

function hasAnyInterface(containerInterfaces: readonly Interface[], netns: Netns, { ifname }: CacheEntry): boolean {
  return link.list(netns.route).some((candidate) =>
    candidate.name === ifname || containerInterfaces.some((iface) => isSameLink(iface, candidate))
  );
}

/** The container may have given its interface away; then the other end is still there. */
function hasHostInterface(host: Netns, interfaces: readonly Interface[]): boolean {
  const links = link.list(host.route);
  return interfaces.some((iface) => {
    const byName = links.find(({ name }) => name === iface.name);
    if (byName) return CONTAINER_LINK_KINDS.includes(byName.info?.kind ?? "");
    return links.some((candidate) =>
      CONTAINER_LINK_KINDS.includes(candidate.info?.kind ?? "") && isSameLink(iface, candidate)
    );
  });
}

function isSameLink(iface: Interface, { name, mac }: link.Link): boolean {
  // Loopback has the same name and address everywhere.
  if (iface.name === "lo") return false;
  return iface.name === name || (iface.mac !== undefined && iface.mac.toLowerCase() === mac);
}

function resultInterfaces({ result }: CacheEntry): readonly Interface[] {
  try {
    return (result === undefined ? undefined : parseResult(result, LATEST).interfaces) ?? [];
  } catch {
    return [];
  }
}
