/** IP masquerading (`ipMasq`): outside its subnet, a container has the host's address. */
import { type Cidr, familyOf, ipBytes, ipOf } from "../../../ffi/address.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import {
  type ApplyOptions,
  checkElements,
  ensureElements,
  type Failover,
  isAwaited,
  removeElements,
  removeElementsOf,
  restoreElements,
} from "../ruleset/elements.ts";
import type { WantedElement } from "../ruleset/wanted_elements.ts";
import { isOneOfOwners, logRemoval, type Owner, ownerPrefix, ownerText, staleOwnerFilter } from "../model/owner.ts";
import { type DelCall, runAllSteps } from "../protocol/plugin.ts";
import { removeRulesIfSupported } from "../ruleset/nf_tables_support.ts";
import {
  gcReferenceMasquerade,
  ownersWithReferenceMasquerade,
  removeReferenceMasquerade,
} from "../compat/masquerade.ts";
import { inetTable } from "../ruleset/inet_table.ts";
import { masqueradeChain } from "../ruleset/inet_shared_chains.ts";
import type { TableDefinition } from "../ruleset/table.ts";

const PURPOSE = "masquerade";

/** Whether a living attachment shares the address without conflict. @throws {CniError} on a conflict */
export type FindHolder = (holder: Owner, address: Cidr) => boolean;

function masqueradeElements(owner: Owner, addresses: readonly Cidr[], livesElsewhere: FindHolder): WantedElement[] {
  const digest = new Bun.CryptoHasher("sha256").update(ownerText(owner)).digest();
  return addresses.map((address) => {
    const set = `masquerade${familyOf(address)}`;
    const key = ipBytes(ipOf(address));
    const chain = masqueradeChain(address);
    return {
      set,
      key,
      chain,
      title: `masquerading of ${ipOf(address)}`,
      failover: {
        set: standbySetOf(set),
        key: Uint8Array.of(...key, ...digest.subarray(0, OWNER_DIGEST_BYTES)),
        chain,
      },
      yieldsTo: (holder) => livesElsewhere(holder, address),
    };
  });
}

/** Containers in separate networks may share an address: the first one's element serves all. */
const standbySetOf = (set: string): string => set.replace("masquerade", "masquerade_standby");
const OWNER_DIGEST_BYTES = 4;

const failover: Failover = {
  selectors: (removed) =>
    [...new Set(removed.filter(isAwaited).map(({ set }) => standbySetOf(set)))].map((set) => ({ set })),
  promotions: (removed, others) =>
    removed.flatMap(({ set, key }) => {
      const from = others.find((other) =>
        standbySetOf(set) === other.set && Buffer.compare(other.key.subarray(0, key.length), key) === 0
      );
      return from?.data ? [{ from, to: [{ set, key, data: from.data }] }] : [];
    }),
};

const masqueradeFunction = <R>(
  apply: (nl: Netlink, table: TableDefinition, owner: Owner, wanted: WantedElement[], options: ApplyOptions) => R,
) =>
(
  nl: Netlink,
  owner: Owner,
  addresses: readonly Cidr[],
  livesElsewhere: FindHolder = () => false,
  options: ApplyOptions = {},
): R => apply(nl, inetTable, owner, masqueradeElements(owner, addresses, livesElsewhere), options);

/** Takes an address over from another attachment, unless that lives. @throws {CniError} what `livesElsewhere` throws */
export const addMasquerade = masqueradeFunction(ensureElements);

/** @returns what was missing, as text @throws {ElementInUseError} */
export const restoreMasquerade = masqueradeFunction(restoreElements);

export const checkMasquerade = masqueradeFunction(checkElements);

/**
 * Also removes the reference plugin's.
 *
 * @param addresses the attachment's, if known: they identify the reference's rules of this interface
 */
export function removeMasquerade(nl: Netlink, owner: Owner, addresses?: readonly Cidr[]): void {
  runAllSteps(
    () => removeMasqueradeElements(nl, owner),
    () => removeReferenceMasquerade(nl, owner, addresses),
  );
}

/** @returns owners that may have rules of the reference plugin, which stay */
export function removeMasqueradeBatch(nl: Netlink, network: string, owners: readonly Owner[]): ReadonlySet<Owner> {
  removeElements(nl, inetTable, PURPOSE, ownerPrefix(network), isOneOfOwners(owners), failover);
  return ownersWithReferenceMasquerade(nl, owners);
}

/** Runs also if the network no longer asks for it. */
export function removeMasqueradeForDel(
  { config, host, owner }: DelCall<{ readonly ipMasq: boolean }>,
  addresses: readonly Cidr[] | undefined,
): void {
  const remove = config.ipMasq ? removeMasquerade : removeMasqueradeElements;
  removeRulesIfSupported(host, config.ipMasq, (nl) => remove(nl, owner, addresses));
}

function removeMasqueradeElements(nl: Netlink, owner: Owner): void {
  removeElementsOf(nl, inetTable, PURPOSE, owner, failover);
}

/** Also removes the reference plugin's. */
export function gcMasquerade(
  nl: Netlink,
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
  log: (message: string) => void,
): void {
  const isStale = staleOwnerFilter(network, validAttachments, logRemoval(log, "masquerading"));
  runAllSteps(
    () => void removeElements(nl, inetTable, PURPOSE, ownerPrefix(network), isStale, failover),
    () => gcReferenceMasquerade(nl, network, validAttachments),
  );
}
