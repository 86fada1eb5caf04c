/**
 * Protection against forged hardware addresses (`macspoofchk`): from a container's port only frames with its own address enter the bridge.
 *
 * @module
 */
import { type Mac, macBytes } from "../../ffi/address.ts";
import { concatenation, ifnameField } from "../../ffi/nft/match.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { bridgeRuleset } from "./bridge_ruleset.ts";
import { checkElements, deadOf, ensureElements, removeElements, type WantedElement } from "./owned_elements.ts";
import { requireTable } from "./own_table.ts";
import { type Owner, sameOwner } from "./owner.ts";

const SETS = [{ set: "guarded" }, { set: "allowed" }];

function wanted(hostIfname: string, mac: Mac): WantedElement[] {
  const name = ifnameField(hostIfname);
  const title = `the hardware address of "${hostIfname}"`;
  return [
    { set: "guarded", key: name, title },
    { set: "allowed", key: concatenation(name, macBytes(mac)), title },
  ];
}

/** Drops what comes from the port `hostIfname` of a bridge with another source address than `mac`. @throws {NetlinkError} */
export function addSpoofCheck(nl: Netlink, owner: Owner, hostIfname: string, mac: Mac): void {
  ensureElements(nl, bridgeRuleset, owner, wanted(hostIfname, mac));
}

/** Makes sure that {@linkcode addSpoofCheck} could do its work, without changing anything. @throws {CniError} code 50 */
export function requireSpoofCheck(nl: Netlink): void {
  requireTable(nl, bridgeRuleset);
}

/** Ends the check for an attachment, whatever its port was called. @throws {NetlinkError} */
export function removeSpoofCheck(nl: Netlink, owner: Owner): void {
  removeElements(nl, bridgeRuleset, SETS, (other) => sameOwner(other, owner));
}

/** @throws {CniError} if what {@linkcode addSpoofCheck} made is not there any more */
export function checkSpoofCheck(nl: Netlink, owner: Owner, hostIfname: string, mac: Mac): void {
  checkElements(nl, bridgeRuleset, owner, wanted(hostIfname, mac));
}

/** Ends the check for all attachments of a network that are not among the valid ones. @throws {NetlinkError} */
export function collectSpoofChecks(nl: Netlink, network: string, valid: readonly Omit<Owner, "network">[]): void {
  removeElements(nl, bridgeRuleset, SETS, deadOf(network, valid));
}
