/** Protection against forged MAC addresses (`macspoofchk`). */
import { type Mac, macBytes, macFromBytes } from "../../../ffi/address.ts";
import { concatenation, ifnameField } from "../../../ffi/nft/statements.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import * as link from "../../../ffi/route/link.ts";
import { bridgeTable } from "../ruleset/bridge_table.ts";
import {
  type ApplyOptions,
  checkElements,
  ensureElements,
  removeElements,
  removeElementsOf,
  restoreElements,
} from "../ruleset/elements.ts";
import type { WantedElement } from "../ruleset/wanted_elements.ts";
import { isOneOfOwners, logRemoval, type Owner, ownerPrefix, sameOwner, staleOwnerFilter } from "../model/owner.ts";
import { runAllSteps } from "../protocol/plugin.ts";
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

/** Drops frames from port `hostIfname` whose source is not `mac`. */
export function addSpoofCheck(
  nl: Netlink,
  owner: Owner,
  hostIfname: string,
  mac: Mac,
  options: ApplyOptions = {},
): void {
  ensureElements(nl, bridgeTable, owner, spoofCheckElements(hostIfname, mac), options);
}

/** No other address stays allowed. @returns what was missing, as text @throws {ElementInUseError} */
export function restoreSpoofCheck(nl: Netlink, owner: Owner, hostIfname: string, mac: Mac): string[] {
  const restored = restoreElements(nl, bridgeTable, owner, spoofCheckElements(hostIfname, mac));
  if (restored.length === 0) return restored;
  // The record may not lead to changed elements, so search.
  removeElements(nl, bridgeTable, PURPOSE, ownerPrefix(owner.network), (candidate) => sameOwner(candidate, owner));
  addSpoofCheck(nl, owner, hostIfname, mac);
  return restored;
}

/** Replaces the allowed address, if the attachment has a check. @returns undoes that */
export function moveSpoofCheck(nl: Netlink, owner: Owner, mac: Mac): () => void {
  if (!hasSpoofChecks(nl)) return () => {};
  const moved = removeElementsOf(nl, bridgeTable, PURPOSE, owner).filter(({ set }) => set === "allowed")
    .map(({ key }) => parseAllowedKey(key));
  for (const { hostIfname } of moved) addSpoofCheck(nl, owner, hostIfname, mac);
  return () => moved.forEach((before) => void moveSpoofCheck(nl, owner, before.mac));
}

function parseAllowedKey(key: Uint8Array): { readonly hostIfname: string; readonly mac: Mac } {
  return {
    hostIfname: new TextDecoder().decode(key.subarray(0, 16)).replace(/\0+$/, ""),
    mac: macFromBytes(key.subarray(16, 22)),
  };
}

/** Also removes the reference plugin's. */
export function removeSpoofCheck(nl: Netlink, owner: Owner): void {
  runAllSteps(
    () => void removeElementsOf(nl, bridgeTable, PURPOSE, owner),
    () => removeReferenceSpoofCheck(nl, owner),
  );
}

/** Whether this program has added a check since boot. */
export function hasSpoofChecks(nl: Netlink): boolean {
  return nft.findTable(nl, bridgeTable) !== undefined;
}

/** @returns owners with a check of the reference plugin, which stays */
export function removeSpoofCheckBatch(nl: Netlink, network: string, owners: readonly Owner[]): ReadonlySet<Owner> {
  removeElements(nl, bridgeTable, PURPOSE, ownerPrefix(network), isOneOfOwners(owners));
  return ownersWithReferenceSpoofCheck(nl, owners);
}

export function checkSpoofCheck(nl: Netlink, owner: Owner, hostIfname: string, mac: Mac): void {
  checkElements(nl, bridgeTable, owner, spoofCheckElements(hostIfname, mac));
}

/** Also removes the reference plugin's if the port is gone. */
export function gcSpoofChecks(
  { nft, route }: Pick<Netns, "nft" | "route">,
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
  log: (message: string) => void,
): void {
  runAllSteps(
    () => {
      const isStale = staleOwnerFilter(network, validAttachments, logRemoval(log, "address checks"));
      removeElements(nft, bridgeTable, PURPOSE, ownerPrefix(network), isStale);
    },
    () => gcReferenceSpoofChecks(nft, (name) => link.find(route, name) !== undefined),
  );
}
