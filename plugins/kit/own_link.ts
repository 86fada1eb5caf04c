/**
 * Links that a plugin creates under a name that others may have, and of a kind that the kernel may lack.
 *
 * @module
 */
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import * as link from "../../ffi/route/link.ts";
import { CniError, Code } from "../spec/error.ts";
import { removeIfPresent } from "./interface.ts";

/**
 * Adds the container's interface inside its namespace.
 *
 * @throws {CniError} if the container has an interface of that name, or the kernel no links of that kind
 * @throws {NetlinkError}
 */
export function addLink(netns: Netns, spec: link.LinkIn & { readonly name: string }): link.Link {
  try {
    link.add(netns.route, spec);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    throw error.code === "EEXIST" ? interfaceExists(spec.name, netns) : explainKind(error, spec.info?.kind);
  }
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

/** Removes a link unless it is of another kind, and so not this plugin's. @returns true if it was there */
export function removeOfKind(netns: Netns | undefined, ifname: string, kind: string): boolean {
  const found = netns && link.find(netns.route, ifname);
  return found?.info?.kind === kind && removeIfPresent(netns, ifname);
}
