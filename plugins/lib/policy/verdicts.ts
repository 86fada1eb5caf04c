/** The elements that lead from a pod's address to its policies. */
import { familyOf, type Ip, ipBytes } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { ifnameField } from "../../../ffi/nft/statements.ts";
import { type Transaction, transaction } from "../../../ffi/nft/transaction.ts";
import { NFT_JUMP } from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import {
  CLOSED_CHAIN,
  directionMap,
  ISOLATED_PORTS,
  policyBridgeTable,
  policyTable,
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
  if (verdicts.length === 0) return;
  const places = verdicts.flatMap((verdict) =>
    DIRECTIONS.map((direction) => ({ verdict, chain: verdict[direction], map: mapOfAddress(direction, verdict.ip) }))
  );
  const elements = nft.getAll(
    nl,
    places.map(({ map, verdict }) => nft.elementQuery(policyTable, map, ipBytes(verdict.ip))),
  );
  for (const [i, { verdict, chain, map }] of places.entries()) {
    const present = elements[i];
    if (present?.data?.verdict?.chain === chain && present?.comment === (chain && verdict.comment)) continue;
    if (present) tx.deleteElements(policyTable, map, [present]);
    if (chain !== undefined) tx.addElements(policyTable, map, [verdictElement(chain, verdict)]);
  }
  changeIsolatedPorts(nl, tx, verdicts);
}

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

/** Says again that a bridge's port is isolated, if its addresses lead to policies. @returns whether it was missing */
export function restoreIsolation(nl: Netlink, ips: readonly Ip[], port: string): boolean {
  const queries = ips.flatMap((ip) =>
    DIRECTIONS.map((direction) => nft.elementQuery(policyTable, mapOfAddress(direction, ip), ipBytes(ip)))
  );
  const chain = nft.getAll(nl, queries).find((element) => element)?.data?.verdict?.chain;
  if (chain === undefined) return false;
  const tx = transaction(nl);
  const isMissing = changeIsolatedPorts(nl, tx, [{ ip: ips[0]!, ingress: chain, comment: "", port }]);
  tx.commit();
  return isMissing;
}
