import { type Netns, NetnsError, openNetns } from "../ffi/netns/netns.ts";
import type { Netlink } from "../ffi/netlink/socket.ts";
import * as link from "../ffi/route/link.ts";
import { listCacheEntries } from "../runtime/cache.ts";
import { parseCachedResult } from "../runtime/cached_result.ts";
import type { Interface } from "../spec/result.ts";

/** Gives both ends of the interfaces of a network's containers an MTU. Connections go on: TCP sends smaller segments. */
export function setPodMtu(host: Netns, network: string, mtu: number, cacheDirectories: readonly string[]): void {
  const entries = cacheDirectories.flatMap((directory) => listCacheEntries(directory, network));
  for (const entry of entries) {
    const { interfaces = [] } = parseCachedResult(entry) ?? {};
    for (const { name, sandbox } of interfaces) {
      if (sandbox) setInContainer(sandbox, name, mtu);
      else setLinkMtu(host.route, name, mtu);
    }
  }
}

function setInContainer(path: string, name: Interface["name"], mtu: number): void {
  try {
    using netns = openNetns(path);
    setLinkMtu(netns.route, name, mtu);
  } catch (error) {
    // Its namespace went while the others got the MTU.
    if (!(error instanceof NetnsError)) throw error;
  }
}

function setLinkMtu(nl: Netlink, name: string, mtu: number): void {
  const found = link.find(nl, name);
  if (found && found.mtu !== mtu) link.set(nl, found.index, { mtu });
}
