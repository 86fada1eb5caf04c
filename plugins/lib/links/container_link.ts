import type { Netns } from "../../../ffi/netns/netns.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import * as link from "../../../ffi/route/link.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";
import { CniError, Code } from "../../../spec/error.ts";
import { ownedByOther, type OwnershipEvidence } from "./ownership.ts";

/**
 * Adds an interface inside the container; a failed ADD removes it.
 *
 * @throws {CniError} if the name is taken, or the kernel lacks that kind
 */
export function addContainerLink(
  netns: Netns,
  spec: link.LinkIn & { readonly name: string },
  undo: DisposableStack,
): link.Link {
  try {
    link.add(netns.route, spec);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    throw error.code === "EEXIST"
      ? interfaceExistsError(spec.name, netns)
      : explainUnsupportedKind(error, spec.info?.kind);
  }
  undo.defer(() => void removeLinkIfPresent(netns, spec.name));
  return link.get(netns.route, spec.name);
}

export function interfaceExistsError(ifname: string, netns: Netns): CniError {
  return new CniError(
    Code.InvalidEnvironment,
    `Cannot create "${ifname}" in "${netns.path}": the container has an interface of that name`,
    { details: "give another CNI_IFNAME (cni run: --ifname), or run DEL for this container first" },
  );
}

/** Returns other errors as they are. */
export function explainUnsupportedKind(error: NetlinkError, kind: string | undefined): Error {
  if (error.code !== "EOPNOTSUPP" || kind === undefined) return error;
  return new CniError(Code.Internal, `Cannot create an interface of kind "${kind}": this kernel has none`, {
    details: `load the missing module: modprobe rtnl-link-${kind}`,
    cause: error,
  });
}

/** Keeps an interface of another kind or another container's. */
export function removeContainerLink(netns: Netns | undefined, call: OwnershipEvidence, kind: string): void {
  if (!netns) return;
  const containerLink = link.find(netns.route, call.ifname);
  if (containerLink?.info?.kind === kind && !ownedByOther(call, netns, containerLink)) {
    removeLinkIfPresent(netns, call.ifname);
  }
}

/** Links that get another name in the container have such a name first. */
export function randomVethName(): string {
  return `veth${crypto.getRandomValues(new Uint8Array(4)).toHex()}`;
}

/** @returns true if it existed */
export function removeLinkIfPresent(netns: Netns, ifname: string): boolean {
  const remove = () => {
    link.remove(netns.route, ifname);
    return true;
  };
  return ignoreErrors(["ENODEV"], remove) ?? false;
}
