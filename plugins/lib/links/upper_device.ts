/**
 * Who else uses a link: looked for in every namespace that can be found, which takes its time and is for errors only.
 *
 * @module
 */
import type { Cidr } from "../../../ffi/address.ts";
import { type Netns, NetnsError, openNetns } from "../../../ffi/netns.ts";
import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { findNsid } from "../../../ffi/route/nsid.ts";
import { findNames } from "../../../ffi/sys/directory.ts";
import { SystemError, unlessFailed } from "../../../ffi/sys/error.ts";
import { readText } from "../../../ffi/sys/file.ts";
import { findLink } from "../../../ffi/sys/stat.ts";
import { describeOwner, parseAlias } from "../protocol/owner.ts";

/** A link that stands on another one. */
export interface LinkUser {
  readonly link: link.Link;
  /** The path of its namespace; absent if that is the same as of the link it stands on. */
  readonly place?: string;
  readonly addresses: readonly Cidr[];
}

/** The links that stand on `master` of `netns`, here and in the containers. @throws {SystemError} */
export function listUsers(netns: Netns, master: number): LinkUser[] {
  const here = usersIn(netns, (each) => each.parent === master && each.parentNetns === undefined);
  return [...here, ...namespacePaths(netns.identity).flatMap((path) => usersElsewhere(path, netns, master))];
}

/** The user in the words of an error message. */
export function describeUser({ link: { alias, name, info }, place }: LinkUser): string {
  const owner = parseAlias(alias);
  const what = owner ? describeOwner(owner) : `${info?.kind ?? "link"} "${name}"`;
  return place === undefined ? what : `${what} in "${place}"`;
}

function usersIn(netns: Netns, isUser: (each: link.Link) => boolean): LinkUser[] {
  return link.list(netns.route).filter((each) => isUser(each) && each.info?.kind !== "veth").map((each) => ({
    link: each,
    addresses: address.list(netns.route, { index: each.index }).map((one) => one.address),
  }));
}

function usersElsewhere(path: string, home: Netns, master: number): LinkUser[] {
  try {
    using netns = openNetns(path);
    if (netns.identity === home.identity) return [];
    const nsid = findNsid(netns.route, home.fd);
    if (nsid === undefined) return [];
    const found = usersIn(netns, (each) => each.parent === master && each.parentNetns === nsid);
    return found.map((each) => ({ ...each, place: path }));
  } catch (error) {
    // It may have gone, or be none that one may enter.
    if (error instanceof NetnsError || error instanceof SystemError) return [];
    throw error;
  }
}

/** A path to each network namespace that has a mount or a process, each once. */
function namespacePaths(own: string): string[] {
  const paths = new Map<string, string>();
  const add = (inode: string, path: string) => {
    if (!paths.has(inode) && !own.endsWith(`:${inode}`)) paths.set(inode, path);
  };
  // 36 35 0:4 net:[4026532288] /run/netns/web rw shared:1 - nsfs nsfs rw; see proc_pid_mountinfo(5)
  for (const [, inode, path] of readText("/proc/self/mountinfo").matchAll(/ net:\[(\d+)\] (\S+) /g)) {
    add(inode!, path!.replaceAll(/\\(\d{3})/g, (_, octal) => String.fromCharCode(Number.parseInt(octal, 8))));
  }
  for (const name of findNames("/proc") ?? []) {
    if (!/^\d+$/.test(name)) continue;
    const inode = findInode(`/proc/${name}/ns/net`);
    if (inode) add(inode, `/proc/${name}/ns/net`);
  }
  return [...paths.values()];
}

function findInode(path: string): string | undefined {
  return /^net:\[(\d+)\]$/.exec(unlessFailed(() => findLink(path)) ?? "")?.[1];
}
