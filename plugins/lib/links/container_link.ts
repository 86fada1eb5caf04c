/**
 * Links that a plugin creates under a name that others may have, and of a kind that the kernel may lack.
 *
 * @module
 */
import type { Netns } from "../../../ffi/netns.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import * as link from "../../../ffi/route/link.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { isAnothers, type Told } from "./ownership.ts";
import { removeIfPresent } from "./interface.ts";

/**
 * Adds an interface inside the container's namespace; it goes again if the ADD fails.
 *
 * @throws {CniError} if the container has an interface of that name, or the kernel no links of that kind
 * @throws {NetlinkError}
 */
export function addLink(
  netns: Netns,
  spec: link.LinkIn & { readonly name: string },
  undo: DisposableStack,
): link.Link {
  try {
    link.add(netns.route, spec);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    throw error.code === "EEXIST" ? interfaceExists(spec.name, netns) : explainKind(error, spec.info?.kind);
  }
  undo.defer(() => void removeIfPresent(netns, spec.name));
  return link.get(netns.route, spec.name);
}

/** The container has an interface of the name that a new one is to get. */
export function interfaceExists(ifname: string, netns: Netns): CniError {
  return new CniError(
    Code.InvalidEnvironment,
    `Cannot create "${ifname}" in "${netns.path}": the container has an interface of that name`,
    { details: "give another CNI_IFNAME, or run DEL for this container first" },
  );
}

/** The error in other words if the kernel does not know this kind of link; else as it is. */
export function explainKind(error: NetlinkError, kind: string | undefined): Error {
  if (error.code !== "EOPNOTSUPP" || kind === undefined) return error;
  return new CniError(Code.Internal, `Cannot create an interface of kind "${kind}": this kernel has none`, {
    details: `load what it is missing: modprobe rtnl-link-${kind}`,
    cause: error,
  });
}

/** Removes the container's interface, unless it is of another kind and so not this plugin's, or another container's. */
export function removeOwnLink(netns: Netns | undefined, call: Told, kind: string): void {
  if (!netns) return;
  const found = link.find(netns.route, call.ifname);
  if (found?.info?.kind === kind && !isAnothers(call, netns, found)) removeIfPresent(netns, call.ifname);
}
