/**
 * Protection against forged hardware addresses (`macspoofchk`): from a container's port only frames with its own address enter the bridge.
 *
 * @module
 */
import { type Mac, macBytes } from "../../ffi/address.ts";
import { etherAddr, ifnameType, setOf } from "../../ffi/nft/datatypes.ts";
import { concatenation, drop, etherSaddr, ifnameField, iifname, inSet, rule } from "../../ffi/nft/match.ts";
import { NF_INET_PRE_ROUTING, NF_IP_PRI_RAW, NFPROTO_BRIDGE } from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { checkElements, deadOf, ensureElements, removeElements, type WantedElement } from "./owned_elements.ts";
import { type OwnTable, requireTable } from "./own_table.ts";
import { type Owner, sameOwner } from "./owner.ts";

const KEY = { family: NFPROTO_BRIDGE, table: "cni" };
const SETS = [{ set: "guarded" }, { set: "allowed" }];

/** `table bridge cni` */
const table: OwnTable = {
  ...KEY,
  create(tx) {
    tx.addTable({ family: KEY.family, name: KEY.table, comment: "Container networks; managed by cni" });
    tx.addSet({ ...KEY, name: "guarded", ...setOf([ifnameType]) });
    tx.addSet({ ...KEY, name: "allowed", ...setOf([ifnameType, etherAddr]) });
    const hook = { number: NF_INET_PRE_ROUTING, priority: NF_IP_PRI_RAW };
    tx.addChain({ ...KEY, name: "prerouting", type: "filter", hook });
  },
  sentinel: { chain: "prerouting", rules: 1 },
  rules: () => [{
    chain: "prerouting",
    expressions: rule(inSet([iifname()], "guarded"), inSet([iifname(), etherSaddr()], "allowed", true), drop()),
  }],
};

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
  ensureElements(nl, table, owner, wanted(hostIfname, mac));
}

/** Makes sure that {@linkcode addSpoofCheck} could do its work, without changing anything. @throws {CniError} code 50 */
export function requireSpoofCheck(nl: Netlink): void {
  requireTable(nl, table);
}

/** Ends the check for an attachment, whatever its port was called. @throws {NetlinkError} */
export function removeSpoofCheck(nl: Netlink, owner: Owner): void {
  removeElements(nl, table, SETS, (other) => sameOwner(other, owner));
}

/** @throws {CniError} if what {@linkcode addSpoofCheck} made is not there any more */
export function checkSpoofCheck(nl: Netlink, owner: Owner, hostIfname: string, mac: Mac): void {
  checkElements(nl, table, owner, wanted(hostIfname, mac));
}

/** Ends the check for all attachments of a network that are not among the valid ones. @throws {NetlinkError} */
export function collectSpoofChecks(nl: Netlink, network: string, valid: readonly Omit<Owner, "network">[]): void {
  removeElements(nl, table, SETS, deadOf(network, valid));
}
