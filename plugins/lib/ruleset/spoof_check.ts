/** Protection against forged hardware addresses (`macspoofchk`): from a container's port only frames with its own address enter the bridge. */
import { type Mac, macBytes, macFromBytes } from "../../../ffi/address.ts";
import { concatenation, ifnameField } from "../../../ffi/nft/statements.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { Netns } from "../../../ffi/netns.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import * as link from "../../../ffi/route/link.ts";
import { bridgeTable } from "./bridge_table.ts";
import { checkElements, ensureElements, removeElements, removeElementsOf, restoreElements } from "./elements.ts";
import type { WantedElement } from "./wanted_elements.ts";
import { isOneOfOwners, isStaleIn, logRemoval, type Owner, ownerPrefix, sameOwner } from "../protocol/owner.ts";
import { requireTable } from "./table.ts";
import { cleanUp } from "../protocol/plugin.ts";
import {
  gcReferenceSpoofChecks,
  ownersWithReferenceSpoofCheck,
  removeReferenceSpoofCheck,
} from "../compat/spoof_check.ts";

const PURPOSE = "spoof-check";

function spoofCheckElements(hostIfname: string, mac: Mac): WantedElement[] {
  const name = ifnameField(hostIfname);
  const title = `the hardware address of "${hostIfname}"`;
  return [
    { set: "guarded", key: name, title },
    { set: "allowed", key: concatenation(name, macBytes(mac)), title },
  ];
}

/** Drops what comes from the port `hostIfname` of a bridge with another source address than `mac`. @throws {NetlinkError} */
export function addSpoofCheck(nl: Netlink, owner: Owner, hostIfname: string, mac: Mac): void {
  ensureElements(nl, bridgeTable, owner, spoofCheckElements(hostIfname, mac));
}

/** Puts back what {@linkcode addSpoofCheck} made and is missing; another address is not allowed any more. @returns what that was, in words @throws {ElementInUseError} @throws {NetlinkError} */
export function restoreSpoofCheck(nl: Netlink, owner: Owner, hostIfname: string, mac: Mac): string[] {
  const restored = restoreElements(nl, bridgeTable, owner, spoofCheckElements(hostIfname, mac));
  if (restored.length === 0) return restored;
  // Whoever changed the elements did not change the record of them.
  removeElements(nl, bridgeTable, PURPOSE, ownerPrefix(owner.network), (candidate) => sameOwner(candidate, owner));
  addSpoofCheck(nl, owner, hostIfname, mac);
  return restored;
}

/**
 * Has the check of an attachment, if it has one, allow another address in place of the one that it allows.
 *
 * @returns what takes that back
 * @throws {NetlinkError}
 */
export function moveSpoofCheck(nl: Netlink, owner: Owner, mac: Mac): () => void {
  if (!hasSpoofChecks(nl)) return () => {};
  const moved = removeElementsOf(nl, bridgeTable, PURPOSE, owner).filter(({ set }) => set === "allowed")
    .map(({ key }) => parseAllowedKey(key));
  for (const { hostIfname } of moved) addSpoofCheck(nl, owner, hostIfname, mac);
  return () => moved.forEach((before) => void moveSpoofCheck(nl, owner, before.mac));
}

/** What a key of the set `allowed` was made of: a name of 16 bytes with what fills it up, and an address. */
function parseAllowedKey(key: Uint8Array): { readonly hostIfname: string; readonly mac: Mac } {
  return {
    hostIfname: new TextDecoder().decode(key.subarray(0, 16)).replace(/\0+$/, ""),
    mac: macFromBytes(key.subarray(16, 22)),
  };
}

/** Makes sure that {@linkcode addSpoofCheck} could do its work, without changing anything. @throws {CniError} code 50 */
export function requireSpoofCheck(nl: Netlink): void {
  requireTable(nl, bridgeTable);
}

/** Ends the check for an attachment, whatever its port was called, the reference plugin's included. @throws {NetlinkError} */
export function removeSpoofCheck(nl: Netlink, owner: Owner): void {
  cleanUp(
    () => void removeElementsOf(nl, bridgeTable, PURPOSE, owner),
    () => removeReferenceSpoofCheck(nl, owner),
  );
}

/** Whether any attachment has a check of this program, or had one since the machine was started: one question. @throws {NetlinkError} */
export function hasSpoofChecks(nl: Netlink): boolean {
  return nft.findTable(nl, bridgeTable) !== undefined;
}

/**
 * Ends the check for many attachments of a network.
 *
 * @returns those for which the reference plugin has set up something, which is still there
 * @throws {NetlinkError}
 */
export function removeSpoofCheckBatch(nl: Netlink, network: string, owners: readonly Owner[]): ReadonlySet<Owner> {
  removeElements(nl, bridgeTable, PURPOSE, ownerPrefix(network), isOneOfOwners(owners));
  return ownersWithReferenceSpoofCheck(nl, owners);
}

/** @throws {CniError} if what {@linkcode addSpoofCheck} made is not there any more */
export function checkSpoofCheck(nl: Netlink, owner: Owner, hostIfname: string, mac: Mac): void {
  checkElements(nl, bridgeTable, owner, spoofCheckElements(hostIfname, mac));
}

/**
 * Ends the check for all attachments of a network that are not among the valid ones, and those of the reference plugin for ports that are
 * no more.
 *
 * @throws {NetlinkError}
 */
export function gcSpoofChecks(
  { nft, route }: Pick<Netns, "nft" | "route">,
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
  log: (message: string) => void,
): void {
  cleanUp(
    () => {
      const isStale = isStaleIn(network, validAttachments, logRemoval(log, "address checks"));
      removeElements(nft, bridgeTable, PURPOSE, ownerPrefix(network), isStale);
    },
    () => gcReferenceSpoofChecks(nft, (name) => link.find(route, name) !== undefined),
  );
}
