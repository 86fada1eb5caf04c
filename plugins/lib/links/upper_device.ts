/** Finds who else uses a link, in every namespace of this machine. Slow: for error messages only. @module */
import type { Cidr } from "../../../ffi/address.ts";
import { type Netns, NetnsError, openNetns } from "../../../ffi/netns/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { findNsid } from "../../../ffi/route/nsid.ts";
import { findEntryNames } from "../../../ffi/sys/directory.ts";
import { ignoreSystemErrors, SystemError } from "../../../ffi/sys/error.ts";
import { readText } from "../../../ffi/sys/file.ts";
import { findSymlinkTarget } from "../../../ffi/sys/stat.ts";
import { describeOwner, parseAlias } from "../model/owner.ts";

export interface UpperDevice {
  readonly link: link.Link;
  /** Its namespace; absent if the lower device is in the same one. */
  readonly netnsPath?: string;
  readonly addresses: readonly Cidr[];
}

export function listUpperDevices(netns: Netns, lowerIndex: number): UpperDevice[] {
  const inContainers = netnsPaths(netns.identity).flatMap((path) => upperDevicesAt(path, netns, lowerIndex));
  return [...upperDevicesIn(netns, lowerIndex, undefined), ...inContainers];
}

export function describeUpperDevice({ link: { alias, name, info }, netnsPath }: UpperDevice): string {
  const owner = parseAlias(alias);
  const description = owner ? describeOwner(owner) : `${info?.kind ?? "link"} "${name}"`;
  return netnsPath === undefined ? description : `${description} in "${netnsPath}"`;
}

/** @param nsid of the lower device's namespace as `netns` numbers it, if it is another one */
function upperDevicesIn(netns: Netns, lowerIndex: number, nsid: number | undefined): UpperDevice[] {
  return link.list(netns.route)
    .filter(({ linkIndex, linkNetnsId, info }) =>
      linkIndex === lowerIndex && linkNetnsId === nsid && info?.kind !== "veth"
    )
    .map((device) => ({
      link: device,
      addresses: address.list(netns.route, { index: device.index }).map((entry) => entry.address),
    }));
}

function upperDevicesAt(path: string, lowerNetns: Netns, lowerIndex: number): UpperDevice[] {
  try {
    using netns = openNetns(path);
    const nsid = netns.identity === lowerNetns.identity ? undefined : findNsid(netns.route, lowerNetns.fd);
    if (nsid === undefined) return [];
    return upperDevicesIn(netns, lowerIndex, nsid).map((device) => ({ ...device, netnsPath: path }));
  } catch (error) {
    // It may be gone, or not be ours to enter.
    if (error instanceof NetnsError || error instanceof SystemError) return [];
    throw error;
  }
}

/** Each network namespace with a mount or a process, once. */
function netnsPaths(excludedIdentity: string): string[] {
  const paths = new Map<string, string>();
  const add = (inode: string, path: string) => {
    if (!paths.has(inode) && !excludedIdentity.endsWith(`:${inode}`)) paths.set(inode, path);
  };
  // 36 35 0:4 net:[4026532288] /run/netns/web rw shared:1 - nsfs nsfs rw; see proc_pid_mountinfo(5)
  for (const [, inode, path] of readText("/proc/self/mountinfo").matchAll(/ net:\[(\d+)\] (\S+) /g)) {
    add(inode!, path!.replaceAll(/\\(\d{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))));
  }
  for (const name of findEntryNames("/proc") ?? []) {
    if (!/^\d+$/.test(name)) continue;
    const inode = findNetnsInode(`/proc/${name}/ns/net`);
    if (inode) add(inode, `/proc/${name}/ns/net`);
  }
  return [...paths.values()];
}

function findNetnsInode(path: string): string | undefined {
  return /^net:\[(\d+)\]$/.exec(ignoreSystemErrors(() => findSymlinkTarget(path)) ?? "")?.[1];
}
