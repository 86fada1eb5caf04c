/** The elements that lead from a pod's address to its policies. */
import { familyOf, type Ip, ipBytes } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { concatenation, ifnameField } from "../../../ffi/nft/statements.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { NFT_JUMP } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import {
  CLOSED_CHAIN,
  directionMap,
  ISOLATED_PORTS,
  policyBridgeTable,
  policyTable,
  selfCalls,
} from "../ruleset/policy_tables.ts";
import type { PolicyDirection } from "./desired.ts";
import { retryOnConflict } from "../ruleset/retry.ts";

export const DIRECTIONS: readonly PolicyDirection[] = ["ingress", "egress"];

/** The chains of one address. Without one, no policy isolates it in that direction. */
export interface AddressVerdict {
  readonly ip: Ip;
  readonly ingress?: string | undefined;
  readonly egress?: string | undefined;
  readonly comment: string;
  /** Its link, if that is a port of a bridge. */
  readonly port?: string | undefined;
}

export function closedVerdict(ip: Ip, comment: string, port: string | undefined): AddressVerdict {
  return { ip, ingress: CLOSED_CHAIN, egress: CLOSED_CHAIN, comment, port };
}

export function verdictElement(chain: string, { ip, comment }: Pick<AddressVerdict, "ip" | "comment">): nft.Element {
  return { key: ipBytes(ip), data: { verdict: { code: NFT_JUMP, chain } }, comment };
}

/** Adds to a transaction what differs from the kernel. */
export function changeVerdicts(nl: Netlink, tx: Transaction, verdicts: readonly AddressVerdict[]): void {
  changeElements(tx, findPlaces(nl, verdicts));
  changeIsolatedPorts(nl, tx, verdicts);
}

/** An address in the map of one direction. */
interface VerdictPlace {
  readonly verdict: AddressVerdict;
  readonly direction: PolicyDirection;
  readonly map: string;
  readonly present: nft.Element | undefined;
}

function findPlaces(nl: Netlink, verdicts: readonly AddressVerdict[]): VerdictPlace[] {
  const places = verdicts.flatMap((verdict) =>
    DIRECTIONS.map((direction) => ({ verdict, direction, map: mapOfAddress(direction, verdict.ip) }))
  );
  const elements = nft.getAll(
    nl,
    places.map(({ map, verdict }) => nft.elementQuery(policyTable, map, ipBytes(verdict.ip))),
  );
  return places.map((place, i) => ({ ...place, present: elements[i] }));
}

/** Returns which lead elsewhere in the kernel: `ingress of 10.1.0.2`. */
export const listWrongVerdicts = (nl: Netlink, verdicts: readonly AddressVerdict[]): string[] =>
  findPlaces(nl, verdicts)
    .filter(({ verdict, direction, present }) => chainOf(present) !== verdict[direction])
    .map(({ verdict, direction }) => `${direction} of ${verdict.ip}`);

function changeElements(tx: Transaction, places: readonly VerdictPlace[]): void {
  for (const { verdict, direction, map, present } of places) {
    const chain = verdict[direction];
    if (chainOf(present) === chain && present?.comment === (chain && verdict.comment)) continue;
    if (present) tx.deleteElements(policyTable, map, [present]);
    if (chain !== undefined) tx.addElements(policyTable, map, [verdictElement(chain, verdict)]);
  }
}

const chainOf = (element: nft.Element | undefined): string | undefined => element?.data?.verdict?.chain;

export const mapOfAddress = (direction: PolicyDirection, ip: Ip): string => directionMap(direction, familyOf(ip));

function changeIsolatedPorts(nl: Netlink, tx: Transaction, verdicts: readonly AddressVerdict[]): boolean {
  const isolation = new Map<string, boolean>();
  for (const { port, ingress, egress } of verdicts) {
    if (port === undefined) continue;
    isolation.set(port, isolation.get(port) === true || ingress !== undefined || egress !== undefined);
  }
  const ports = [...isolation];
  const queries = ports.map(([port]) => nft.elementQuery(policyBridgeTable, ISOLATED_PORTS, ifnameField(port)));
  let isChanged = false;
  for (const [i, found] of nft.getAll(nl, queries).entries()) {
    const [port, isIsolated] = ports[i]!;
    const element = { key: ifnameField(port) };
    if (isIsolated && !found) tx.addElements(policyBridgeTable, ISOLATED_PORTS, [element]);
    if (!isIsolated && found) tx.deleteElements(policyBridgeTable, ISOLATED_PORTS, [element]);
    isChanged ||= isIsolated !== (found !== undefined);
  }
  return isChanged;
}

/** In one transaction of its own. */
export function applyVerdicts(nl: Netlink, verdicts: readonly AddressVerdict[]): void {
  retryOnConflict(() => {
    const tx = transaction(nl);
    changeVerdicts(nl, tx, verdicts);
    tx.commit();
  });
}

/**
 * As {@linkcode applyVerdicts}, for addresses that lead to this chain in both directions: the server's part may have
 * said something else meanwhile.
 *
 * @param former `undefined`: those that lead nowhere
 */
export function applyVerdictsInstead(
  nl: Netlink,
  former: string | undefined,
  verdicts: readonly AddressVerdict[],
): void {
  retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const places = findPlaces(nl, verdicts).filter(({ present }) => chainOf(present) === former);
    const unchanged = verdicts.filter((verdict) =>
      places.filter((place) => place.verdict === verdict).length === DIRECTIONS.length
    );
    const tx = transaction(nl);
    changeVerdicts(nl, tx, unchanged);
    tx.commit(generation);
  });
}

/** Removes those of a container that is detached. @returns addresses that no other container has got since */
export function releaseVerdicts(nl: Netlink, verdicts: readonly AddressVerdict[]): readonly Ip[] {
  return retryOnConflict(() => {
    const generation = nft.getGenerationId(nl);
    const selfQueries = verdicts.map(({ ip }) =>
      nft.elementQuery(policyTable, selfCalls(familyOf(ip)), concatenation(ipBytes(ip), ipBytes(ip)))
    );
    const holders = nft.getAll(nl, selfQueries);
    const released = verdicts.filter((_, i) => !holders[i]);
    const tx = transaction(nl);
    changeElements(tx, findPlaces(nl, released));
    changeIsolatedPorts(nl, tx, verdicts);
    tx.commit(generation);
    return released.map(({ ip }) => ip);
  });
}

/** Whether a bridge's port is not said to be isolated, though its addresses lead to policies. */
export function isIsolationMissing(nl: Netlink, ips: readonly Ip[], port: string): boolean {
  return prepareIsolation(nl, transaction(nl), ips, port);
}

/** Says again that a bridge's port is isolated, if its addresses lead to policies. @returns whether it was missing */
export function restoreIsolation(nl: Netlink, ips: readonly Ip[], port: string): boolean {
  const tx = transaction(nl);
  const isMissing = prepareIsolation(nl, tx, ips, port);
  tx.commit();
  return isMissing;
}

function prepareIsolation(nl: Netlink, tx: Transaction, ips: readonly Ip[], port: string): boolean {
  const queries = ips.flatMap((ip) =>
    DIRECTIONS.map((direction) => nft.elementQuery(policyTable, mapOfAddress(direction, ip), ipBytes(ip)))
  );
  const chain = chainOf(nft.getAll(nl, queries).find((element) => element));
  if (chain === undefined) return false;
  return changeIsolatedPorts(nl, tx, [{ ip: ips[0]!, ingress: chain, comment: "", port }]);
}
