/**
 * Which addresses have the plugin, and who may call them: elements of the ruleset, each with its owner.
 *
 * @module
 */
import { familyOf, type Ip, ipBytes, ipFromBytes } from "../../ffi/address.ts";
import { ifnameField } from "../../ffi/nft/statements.ts";
import { listElements } from "../../ffi/nft/objects.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { bridgeRuleset } from "../lib/ruleset/bridge_table.ts";
import {
  checkElements,
  ensureElements,
  type FoundElement,
  removeElements,
  restoreElements,
  type WantedElement,
} from "../lib/ruleset/elements.ts";
import { type Owner, parseOwner } from "../lib/protocol/owner.ts";
import {
  bridgeIngressChain,
  type BridgePolicy,
  openIngressChain,
  ruleset,
  stricterIngressChain,
} from "../lib/ruleset/inet_table.ts";
import type { Leaving, Passenger } from "./forward_accept.ts";

const MAPS = ["ingress4", "ingress6"] as const;
const ISOLATED = "isolated";

/** Who may call the containers of a bridge. */
export interface Restriction {
  readonly policy: BridgePolicy;
  readonly bridge: string;
  /** The links of the host that belong to the container alone. */
  readonly ports: readonly string[];
}

function wantedAddresses(addresses: readonly Ip[], restriction: Restriction | undefined): WantedElement[] {
  const chain = restriction ? bridgeIngressChain(restriction.policy, restriction.bridge) : openIngressChain();
  return addresses.map((address) => ({
    set: mapOf(address),
    key: ipBytes(address),
    chain,
    // Of several entries of one list the strictest counts, as it does where each adds rules of its own.
    orChain: (name) => stricterIngressChain(restriction?.policy ?? "open", name),
    title: `calls to ${address}`,
  }));
}

/** What a bridge hands on from port to port passes no other rules, unless the machine is set up so. */
function wantedPorts(restriction: Restriction | undefined): WantedElement[] {
  if (restriction?.policy !== "isolated") return [];
  return restriction.ports.map((name) => ({ set: ISOLATED, key: ifnameField(name), title: `isolation of "${name}"` }));
}

/** Records a container's addresses with who may call them. @throws {NetlinkError} */
export function addIngress(nl: Netlink, { owner, addresses }: Passenger, restriction: Restriction | undefined): void {
  ensureElements(nl, ruleset, owner, wantedAddresses(addresses, restriction));
  ensureElements(nl, bridgeRuleset, owner, wantedPorts(restriction));
}

/** Puts back what {@linkcode addIngress} made and is missing. @returns what that was, in words @throws {TakenError} @throws {NetlinkError} */
export function restoreIngress(
  nl: Netlink,
  { owner, addresses }: Passenger,
  restriction: Restriction | undefined,
): string[] {
  return [
    ...restoreElements(nl, ruleset, owner, wantedAddresses(addresses, restriction)),
    ...restoreElements(nl, bridgeRuleset, owner, wantedPorts(restriction)),
  ];
}

/** @throws {CniError} if what {@linkcode addIngress} made is not there any more */
export function checkIngress(nl: Netlink, { owner, addresses }: Passenger, restriction: Restriction | undefined): void {
  checkElements(nl, ruleset, owner, wantedAddresses(addresses, restriction));
  checkElements(nl, bridgeRuleset, owner, wantedPorts(restriction));
}

/** An address that had the plugin. */
export interface Removed {
  readonly address: Ip;
  readonly owner: Owner;
}

/** What a container had, as the request tells. */
export interface Told {
  readonly addresses: readonly Ip[];
  /** Links of the host, its ports among them. */
  readonly links: readonly string[];
}

/**
 * Forgets containers.
 *
 * @param told of a single one: by this it is found at once; everything is searched only if something is not as told
 * @returns the addresses that they had
 * @throws {NetlinkError}
 */
export function removeIngress(
  nl: Netlink,
  { commented, mine }: Pick<Leaving, "commented" | "mine">,
  told: Told = { addresses: [], links: [] },
): Removed[] {
  const everywhere = MAPS.map((set) => ({ set, commented }));
  const count = told.addresses.length;
  const likely = MAPS.map((set) => ({ set, keys: told.addresses.filter((each) => mapOf(each) === set).map(ipBytes) }));
  const more = (found: readonly FoundElement[]) => count > 0 && found.length < count ? everywhere : [];
  const removed = removeElements(nl, ruleset, count > 0 ? likely : everywhere, mine, undefined, more);
  const isAsTold = count > 0 && removed.length >= count;
  removeElements(nl, bridgeRuleset, [{ set: ISOLATED, ...isAsTold ? { keys: linkKeys(told) } : { commented } }], mine);
  return removed.map((each) => ({ address: addressOf(each), owner: each.owner! }));
}

const mapOf = (address: Ip) => `ingress${familyOf(address)}`;
/** A name that is none was never added. */
const linkKeys = ({ links }: Told) => links.map(ifnameField).filter(({ length }) => length === 16);

const addressOf = ({ key }: Pick<FoundElement, "key">): Ip => ipFromBytes(key);

/** All containers that have the plugin, in one list by address. @throws {NetlinkError} */
export function listPassengers(nl: Netlink): Passenger[] {
  return MAPS.flatMap((set) => listElements(nl, ruleset, set)).flatMap(({ key, comment = "" }) => {
    const owner: Owner | undefined = parseOwner(comment);
    return owner ? [{ owner, addresses: [addressOf({ key })] }] : [];
  });
}

/** Those of the addresses that no container has. @throws {NetlinkError} */
export function unowned(nl: Netlink, addresses: readonly Ip[]): Ip[] {
  const owned = new Set(listPassengers(nl).flatMap((each) => each.addresses));
  return addresses.filter((address) => !owned.has(address));
}
