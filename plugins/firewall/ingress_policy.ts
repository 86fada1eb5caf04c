/** Elements for the containers' addresses and for who may call them. */
import { familyOf, type Ip, ipBytes, ipFromBytes } from "../../ffi/address.ts";
import { ifnameField } from "../../ffi/nft/statements.ts";
import { findChain, listElements } from "../../ffi/nft/objects.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { bridgeTable } from "../lib/ruleset/bridge_table.ts";
import {
  type ApplyOptions,
  checkElements,
  ensureElements,
  removeElements,
  removeElementsOf,
  restoreElements,
} from "../lib/ruleset/elements.ts";
import type { WantedElement } from "../lib/ruleset/wanted_elements.ts";
import type { Owner } from "../lib/model/owner.ts";
import { forwardSetName } from "../lib/ruleset/forward_mark.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import type { TableDefinition } from "../lib/ruleset/table.ts";
import {
  bridgeIngressChain,
  type BridgeIngressPolicy,
  openIngressChain,
  stricterIngressChain,
} from "../lib/ruleset/inet_shared_chains.ts";
import type { RemovalFilter } from "./forward_removal.ts";

const FAMILIES = [4, 6] as const;
const ingressMapName = (family: 4 | 6) => `ingress${family}`;
const ISOLATED_SET = "isolated";

export interface Endpoint {
  readonly owner: Owner;
  readonly addresses: readonly Ip[];
}

export interface IngressRestriction {
  readonly policy: BridgeIngressPolicy;
  readonly bridge: string;
  /** The container's links on the host. */
  readonly ports: readonly string[];
}

function addressElements(addresses: readonly Ip[], restriction: IngressRestriction | undefined): WantedElement[] {
  const chain = restriction ? bridgeIngressChain(restriction.policy, restriction.bridge) : openIngressChain();
  return addresses.flatMap((address): WantedElement[] => [{
    set: ingressMapName(familyOf(address)),
    key: ipBytes(address),
    chain,
    // Of several firewall plugins in a list, the strictest applies.
    alternativeChain: (name) => stricterIngressChain(restriction?.policy ?? "open", name),
    title: `calls to ${address}`,
  }, {
    set: forwardSetName(familyOf(address)),
    key: ipBytes(address),
    title: `packets of ${address} past other firewalls`,
  }]);
}

/** Without br_netfilter, packets between a bridge's ports pass no other rules. */
function isolatedPortElements(restriction: IngressRestriction | undefined): WantedElement[] {
  if (restriction?.policy !== "isolated") return [];
  return restriction.ports.map((name) => ({
    set: ISOLATED_SET,
    key: ifnameField(name),
    title: `isolation of "${name}"`,
  }));
}

export function addIngressElements(
  nl: Netlink,
  { owner, addresses }: Endpoint,
  restriction: IngressRestriction | undefined,
  options: ApplyOptions,
): void {
  ensureElements(nl, inetTable, owner, addressElements(addresses, restriction), options);
  ensureElements(nl, bridgeTable, owner, isolatedPortElements(restriction), options);
}

/** @returns what was missing, as text @throws {ElementInUseError} */
export function restoreIngressElements(
  nl: Netlink,
  { owner, addresses }: Endpoint,
  restriction: IngressRestriction | undefined,
): string[] {
  return [
    ...restoreElements(nl, inetTable, owner, addressElements(addresses, restriction)),
    ...restoreElements(nl, bridgeTable, owner, isolatedPortElements(restriction)),
  ];
}

export function checkIngressElements(
  nl: Netlink,
  { owner, addresses }: Endpoint,
  restriction: IngressRestriction | undefined,
): void {
  checkElements(nl, inetTable, owner, addressElements(addresses, restriction));
  checkElements(nl, bridgeTable, owner, isolatedPortElements(restriction));
}

export interface RemovedAddress {
  readonly address: Ip;
  readonly owner: Owner;
  /** The chain that decided who may call it; the last removal deletes it. */
  readonly chain: string | undefined;
}

export function removeIngressElements(
  nl: Netlink,
  which: Owner | Pick<RemovalFilter, "commented" | "isOwned">,
): RemovedAddress[] {
  const remove = (table: TableDefinition, purpose: string) =>
    "isOwned" in which
      ? removeElements(nl, table, purpose, which.commented, which.isOwned)
      : removeElementsOf(nl, table, purpose, which);
  const removed = remove(inetTable, "ingress");
  remove(bridgeTable, "isolation");
  const removedAddresses = removed.map((element): RemovedAddress => ({
    address: ipFromBytes(element.key),
    owner: element.owner!,
    chain: element.data?.verdict?.chain,
  }));
  // An address's first element names its chain.
  return [...new Map(removedAddresses.toReversed().map((removed) => [removed.address, removed])).values()];
}

function listAddresses(nl: Netlink): Ip[] {
  return FAMILIES.flatMap((family) => listElements(nl, inetTable, ingressMapName(family))).map(({ key }) =>
    ipFromBytes(key)
  );
}

export function unownedAddresses(nl: Netlink, addresses: readonly Ip[]): Ip[] {
  const owned = new Set(listAddresses(nl));
  return addresses.filter((address) => !owned.has(address));
}

/**
 * Whether no container has the plugin.
 *
 * @param removed just before; if one of their chains still exists, others use it and no listing is needed
 */
export function isUnused(nl: Netlink, removed: readonly RemovedAddress[]): boolean {
  const chains = new Set(removed.flatMap(({ chain }) => chain ?? []));
  return ![...chains].some((chain) => findChain(nl, inetTable, chain)) && listAddresses(nl).length === 0;
}
