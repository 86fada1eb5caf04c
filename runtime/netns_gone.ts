/**
 * Attachments that ended without a DEL: the machine restarted, or the namespace is gone.
 *
 * Container ids come back and clocks jump: only entries without a boot id are judged by time.
 */
import { type FileTimes, findBootId, modifiedBeforeBoot } from "../ffi/sys/boot.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { processAge } from "../ffi/sys/process_age.ts";
import { fstat } from "../ffi/sys/stat.ts";
import { type Netns, NetnsError, openNetns } from "../ffi/netns/netns.ts";
import { hasNetnsCookie } from "../ffi/netns/record.ts";
import * as link from "../ffi/route/link.ts";
import type { HostContext } from "../plugins/lib/protocol/context.ts";
import type { Interface } from "../spec/result.ts";
import type { CacheEntry } from "./cache.ts";
import { parseCachedResult } from "./cached_result.ts";

// Links of these kinds belong to one container; bridges and VLANs are shared.
const CONTAINER_LINK_KINDS = ["veth", "ifb", "tun"];

/**
 * Returns `undefined` if an attachment may live.
 *
 * The cookie tells whether the path leads to the same namespace. Without a cookie, a namespace is another one if it is
 * younger than the entry and has none of the ADD's interfaces. Names and hardware addresses are compared. While a host
 * end is there, the container may live elsewhere. Without a result, only the cookie counts. Callers ask again under the
 * container's lock, so that no running ADD is hit.
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
    return isNetnsReplaced(entry, netns, context.host) ? `namespace "${path}" is another one now` : undefined;
  } catch (error) {
    if (!(error instanceof NetnsError)) throw error;
    if (error.absent) return `namespace "${path}" is gone`;
    // It may be a namespace that cannot be opened or entered.
    return error.cause === undefined ? `"${path}" is no network namespace any more` : undefined;
  }
}

/** Made again after the clock was set. */
let bootTest: { readonly clockOffset: number; readonly isBeforeBoot: (times: FileTimes) => boolean } | undefined;

function isOfEarlierBoot({ written: { boot: recordedBoot, times } = {} }: CacheEntry): boolean {
  if (recordedBoot === undefined) return times !== undefined && isBeforeBoot(times);
  const boot = findBootId();
  return boot !== undefined && recordedBoot !== boot;
}

function isBeforeBoot(times: FileTimes): boolean {
  const clockOffset = Math.round((Date.now() - performance.now()) / 1000);
  if (bootTest?.clockOffset !== clockOffset) bootTest = { clockOffset, isBeforeBoot: modifiedBeforeBoot() };
  return bootTest.isBeforeBoot(times);
}

/** Returns `undefined` if nothing tells. */
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
  const interfaces = parseCachedResult(entry)?.interfaces ?? [];
  const containerInterfaces = interfaces.filter(({ sandbox }) => sandbox);
  if (containerInterfaces.length === 0) return false;
  if (isOwnNetns === undefined) {
    if (isOlderThanEntry(netns, entry) || hasAnyInterface(containerInterfaces, netns, entry)) return false;
  }
  return !hasHostInterface(host, interfaces.filter(({ sandbox }) => !sandbox));
}

/** A namespace that was there when the entry was written is the container's, whatever it has lost. */
function isOlderThanEntry(netns: Netns, { written }: CacheEntry): boolean {
  const { times } = written ?? {};
  if (!times) return false;
  const since = knownSince(netns);
  return since <= times.mtime || since <= times.ctime;
}

/** The time is in nanoseconds since 1970. */
function knownSince({ path, fd }: Netns): bigint {
  const pid = /^\/proc\/(\d+)\/ns\/net$/.exec(path)?.[1];
  // The kernel makes the inode when it is first asked for, and keeps it only for a mount or an open file.
  if (pid === undefined) return fstat(fd).ctime;
  return BigInt(Date.now()) * 1_000_000n - (ignoreSystemErrors(() => processAge(Number(pid))) ?? 0n);
}

function hasAnyInterface(containerInterfaces: readonly Interface[], netns: Netns, { ifname }: CacheEntry): boolean {
  return link.list(netns.route).some((candidate) =>
    candidate.name === ifname || containerInterfaces.some((iface) => isSameLink(iface, candidate))
  );
}

/** The container may have moved its interface; the host end stays. */
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
