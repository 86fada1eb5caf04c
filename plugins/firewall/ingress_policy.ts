/**
 * Which addresses have the plugin, and who may call them: elements of the ruleset, each with its owner.
 *
 * @module
 */
import { familyOf, type Ip, ipBytes, ipFromBytes } from "../../ffi/address.ts";
import { ifnameField } from "../../ffi/nft/statements.ts";
import { listElements } from "../../ffi/nft/objects.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import type { FoundElement } from "../lib/ruleset/element_lookup.ts";
import { bridgeTable } from "../lib/ruleset/bridge_table.ts";
import { checkElements, ensureElements, removeElements, restoreElements } from "../lib/ruleset/elements.ts";
import type { WantedElement } from "../lib/ruleset/wanted_elements.ts";
import { type Owner, parseOwner } from "../lib/protocol/owner.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import {
  bridgeIngressChain,
  type BridgeIngressPolicy,
  openIngressChain,
  stricterIngressChain,
} from "../lib/ruleset/inet_shared_chains.ts";
import { ifnameProblem } from "../../spec/env.ts";
import type { Endpoint, RemovalFilter } from "./forward_accept.ts";

const INGRESS_MAPS = ["ingress4", "ingress6"] as const;
const ISOLATED_SET = "isolated";

/** Who may call the containers of a bridge. */
export interface IngressRestriction {
  readonly policy: BridgeIngressPolicy;
  readonly bridge: string;
  /** The links of the host that belong to the container alone. */
  readonly ports: readonly string[];
}

function addressElements(addresses: readonly Ip[], restriction: IngressRestriction | undefined): WantedElement[] {
  const chain = restriction ? bridgeIngressChain(restriction.policy, restriction.bridge) : openIngressChain();
  return addresses.map((address) => ({
    set: ingressMapOf(address),
    key: ipBytes(address),
    chain,
    // Of several entries of one list the strictest counts, as it does where each adds rules of its own.
    alternativeChain: (name) => stricterIngressChain(restriction?.policy ?? "open", name),
    title: `calls to ${address}`,
  }));
}

/** What a bridge hands on from port to port passes no other rules, unless the machine is set up so. */
function isolatedPortElements(restriction: IngressRestriction | undefined): WantedElement[] {
  if (restriction?.policy !== "isolated") return [];
  return restriction.ports.map((name) => ({
    set: ISOLATED_SET,
    key: ifnameField(name),
    title: `isolation of "${name}"`,
  }));
}

/** Records a container's addresses with who may call them. @throws {NetlinkError} */
export function addIngressElements(
  nl: Netlink,
  { owner, addresses }: Endpoint,
  restriction: IngressRestriction | undefined,
): void {
  ensureElements(nl, inetTable, owner, addressElements(addresses, restriction));
  ensureElements(nl, bridgeTable, owner, isolatedPortElements(restriction));
}

/** Puts back what {@linkcode addIngressElements} made and is missing. @returns what that was, in words @throws {ElementInUseError} @throws {NetlinkError} */
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

/** @throws {CniError} if what {@linkcode addIngressElements} made is not there any more */
export function checkIngressElements(
  nl: Netlink,
  { owner, addresses }: Endpoint,
  restriction: IngressRestriction | undefined,
): void {
  checkElements(nl, inetTable, owner, addressElements(addresses, restriction));
  checkElements(nl, bridgeTable, owner, isolatedPortElements(restriction));
}

/** An address that had the plugin. */
export interface RemovedAddress {
  readonly address: Ip;
  readonly owner: Owner;
}

/** What a container had, as the request tells. */
export interface ReportedAttachment {
  readonly addresses: readonly Ip[];
  /** Links of the host, its ports among them. */
  readonly links: readonly string[];
}

/**
 * Forgets containers.
 *
 * @param reported of a single one: by this it is found at once; everything is searched only if something is not as told
 * @returns the addresses that they had
 * @throws {NetlinkError}
 */
export function removeIngressElements(
  nl: Netlink,
  { commented, isOwned }: Pick<RemovalFilter, "commented" | "isOwned">,
  reported: ReportedAttachment = { addresses: [], links: [] },
): RemovedAddress[] {
  const everywhere = INGRESS_MAPS.map((set) => ({ set, commented }));
  const count = reported.addresses.length;
  const byKey = INGRESS_MAPS.map((set) => ({
    set,
    keys: reported.addresses.filter((element) => ingressMapOf(element) === set).map(ipBytes),
  }));
  const moreSelectors = (found: readonly FoundElement[]) => count > 0 && found.length < count ? everywhere : [];
  const removed = removeElements(nl, inetTable, count > 0 ? byKey : everywhere, isOwned, undefined, moreSelectors);
  const isAsReported = count > 0 && removed.length >= count;
  removeElements(nl, bridgeTable, [{
    set: ISOLATED_SET,
    ...isAsReported ? { keys: isolatedKeys(reported) } : { commented },
  }], isOwned);
  return removed.map((element) => ({ address: elementAddress(element), owner: element.owner! }));
}

const ingressMapOf = (address: Ip) => `ingress${familyOf(address)}`;

/** A name that is none was never added. */
const isolatedKeys = ({ links }: ReportedAttachment) =>
  links.filter((name) => ifnameProblem(name) === undefined).map(ifnameField);

const elementAddress = ({ key }: Pick<FoundElement, "key">): Ip => ipFromBytes(key);

/** All containers that have the plugin, in one list by address. @throws {NetlinkError} */
export function listEndpoints(nl: Netlink): Endpoint[] {
  return INGRESS_MAPS.flatMap((set) => listElements(nl, inetTable, set)).flatMap(({ key, comment = "" }) => {
    const owner: Owner | undefined = parseOwner(comment);
    return owner ? [{ owner, addresses: [elementAddress({ key })] }] : [];
  });
}

/** Those of the addresses that no container has. @throws {NetlinkError} */
export function unownedAddresses(nl: Netlink, addresses: readonly Ip[]): Ip[] {
  const owned = new Set(listEndpoints(nl).flatMap((endpoint) => endpoint.addresses));
  return addresses.filter((address) => !owned.has(address));
}
