/** IP masquerading of attachments (`ipMasq`): outside its subnet, a container has the host's address. */
import { type Cidr, familyOf, type Ip, ipBytes, ipOf } from "../../../ffi/address.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import {
  checkElements,
  ensureElements,
  type Failover,
  isAwaited,
  removeElements,
  removeElementsOf,
  restoreElements,
} from "./elements.ts";
import type { WantedElement } from "./wanted_elements.ts";
import { isOneOfOwners, isStaleIn, logRemoval, type Owner, ownerPrefix, ownerText } from "../protocol/owner.ts";
import { cleanUp, type DelCall } from "../protocol/plugin.ts";
import { removeRulesIfSupported } from "./nf_tables_support.ts";
import {
  gcReferenceMasquerade,
  ownersWithReferenceMasquerade,
  removeReferenceMasquerade,
} from "../compat/masquerade.ts";
import { inetTable } from "./inet_table.ts";
import { masqueradeChain } from "./inet_shared_chains.ts";

const PURPOSE = "masquerade";

const masqueradeSet = (address: Ip | Cidr): string => `masquerade${familyOf(address)}`;
const addressKey = (address: Ip | Cidr): Uint8Array =>
  ipBytes(address.includes("/") ? ipOf(address as Cidr) : address as Ip);

/** Whether a living attachment has the address too, without conflict. @throws {CniError} on a conflict */
export type FindHolder = (holder: Owner, address: Cidr) => boolean;

function masqueradeElements(owner: Owner, addresses: readonly Cidr[], livesElsewhere: FindHolder): WantedElement[] {
  return addresses.map((address) => {
    const chain = masqueradeChain(address);
    const digest = new Bun.CryptoHasher("sha256").update(ownerText(owner)).digest();
    return {
      set: masqueradeSet(address),
      key: addressKey(address),
      chain,
      title: `masquerading of ${ipOf(address)}`,
      failover: {
        set: standbySet(address),
        key: Uint8Array.of(...addressKey(address), ...digest.subarray(0, OWNER_DIGEST_BYTES)),
        chain,
      },
      yieldsTo: (holder) => livesElsewhere(holder, address),
    };
  });
}

/** If several containers have one address, in networks that do not reach each other, the first one's element serves all. */
const standbySet = (address: Ip | Cidr): string => `masquerade_standby${familyOf(address)}`;
const OWNER_DIGEST_BYTES = 4;

const failover: Failover = {
  selectors: (removed) => removed.some(isAwaited) ? STANDBY_SETS : [],
  promotions: (removed, others) =>
    removed.flatMap(({ set, key }) => {
      const from = others.find((other) =>
        standbySetOf(set) === other.set && Buffer.compare(other.key.subarray(0, key.length), key) === 0
      );
      return from?.data ? [{ from, to: [{ set, key, data: from.data }] }] : [];
    }),
};
const standbySetOf = (set: string): string => set.replace("masquerade", "masquerade_standby");
const STANDBY_SETS = ["masquerade_standby4", "masquerade_standby6"].map((set) => ({ set }));

/**
 * Masquerades these addresses. An address is taken over from another attachment, unless that lives.
 *
 * @throws {CniError} what `livesElsewhere` throws
 */
export function addMasquerade(
  nl: Netlink,
  owner: Owner,
  addresses: readonly Cidr[],
  livesElsewhere: FindHolder = () => false,
): void {
  ensureElements(nl, inetTable, owner, masqueradeElements(owner, addresses, livesElsewhere));
}

/** Puts back what is missing. @returns what that was, in words @throws {ElementInUseError} */
export function restoreMasquerade(
  nl: Netlink,
  owner: Owner,
  addresses: readonly Cidr[],
  livesElsewhere: FindHolder = () => false,
): string[] {
  return restoreElements(nl, inetTable, owner, masqueradeElements(owner, addresses, livesElsewhere));
}

/**
 * Ends masquerading for an attachment, that of the reference plugin too.
 *
 * @param addresses the attachment's, if known: they tell which of the reference plugin's rules are for this interface
 */
export function removeMasquerade(nl: Netlink, owner: Owner, addresses?: readonly (Ip | Cidr)[]): void {
  cleanUp(
    () => removeMasqueradeElements(nl, owner),
    () => removeReferenceMasquerade(nl, owner, addresses),
  );
}

/** Ends masquerading for many attachments of a network. @returns those that may have rules of the reference plugin, which stay */
export function removeMasqueradeBatch(nl: Netlink, network: string, owners: readonly Owner[]): ReadonlySet<Owner> {
  removeElements(nl, inetTable, PURPOSE, ownerPrefix(network), isOneOfOwners(owners), failover);
  return ownersWithReferenceMasquerade(nl, owners);
}

/** Ends masquerading for a DEL, also if the network no longer asks for it. */
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

/** @throws {CniError} if anything that {@linkcode addMasquerade} made is missing */
export function checkMasquerade(
  nl: Netlink,
  owner: Owner,
  addresses: readonly Cidr[],
  livesElsewhere: FindHolder = () => false,
): void {
  checkElements(nl, inetTable, owner, masqueradeElements(owner, addresses, livesElsewhere));
}

/** Ends masquerading for all other attachments of a network, that of the reference plugin too. */
export function gcMasquerade(
  nl: Netlink,
  network: string,
  validAttachments: readonly Omit<Owner, "network">[],
  log: (message: string) => void,
): void {
  const isStale = isStaleIn(network, validAttachments, logRemoval(log, "masquerading"));
  cleanUp(
    () => void removeElements(nl, inetTable, PURPOSE, ownerPrefix(network), isStale, failover),
    () => gcReferenceMasquerade(nl, network, validAttachments),
  );
}
