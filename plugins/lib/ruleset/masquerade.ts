/** IP masquerading of attachments (`ipMasq`): a container reaches what is outside its subnet under the host's address. */
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

/** Whether an attachment lives that has the address too, where it is not in the way. @throws {CniError} if it is in the way */
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

/** Of several containers with one address, in networks that do not reach each other, the first one's element serves all. */
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
 * Masquerades what comes from these addresses. An address that another attachment has is taken over, unless that lives.
 *
 * @throws {CniError} what `livesElsewhere` throws
 * @throws {NetlinkError}
 */
export function addMasquerade(
  nl: Netlink,
  owner: Owner,
  addresses: readonly Cidr[],
  livesElsewhere: FindHolder = () => false,
): void {
  ensureElements(nl, inetTable, owner, masqueradeElements(owner, addresses, livesElsewhere));
}

/** Puts back what {@linkcode addMasquerade} made and is missing. @returns what that was, in words @throws {ElementInUseError} @throws {NetlinkError} */
export function restoreMasquerade(
  nl: Netlink,
  owner: Owner,
  addresses: readonly Cidr[],
  livesElsewhere: FindHolder = () => false,
): string[] {
  return restoreElements(nl, inetTable, owner, masqueradeElements(owner, addresses, livesElsewhere));
}

/**
 * Stops masquerading for an attachment, and what the reference plugin set up for it.
 *
 * @param addresses the attachment's, if known: of what the reference plugin made, they say which interface it is for
 * @throws {NetlinkError}
 */
export function removeMasquerade(nl: Netlink, owner: Owner, addresses?: readonly (Ip | Cidr)[]): void {
  cleanUp(
    () => removeMasqueradeElements(nl, owner),
    () => removeReferenceMasquerade(nl, owner, addresses),
  );
}

/**
 * Stops masquerading for many attachments of a network.
 *
 * @returns those for which the reference plugin has set up something, which is still there
 * @throws {NetlinkError}
 */
export function removeMasqueradeBatch(nl: Netlink, network: string, owners: readonly Owner[]): ReadonlySet<Owner> {
  removeElements(nl, inetTable, PURPOSE, ownerPrefix(network), isOneOfOwners(owners), failover);
  return ownersWithReferenceMasquerade(nl, owners);
}

/** Stops masquerading for the attachment of a DEL, also where its network does not ask for it any more. @throws {NetlinkError} */
export function removeMasqueradeForDel(
  { config, host, owner }: DelCall<{ readonly ipMasq: boolean }>,
  addresses: readonly Cidr[] | undefined,
): void {
  const remove = config.ipMasq ? removeMasquerade : removeMasqueradeElements;
  removeRulesIfSupported(host, config.ipMasq, (nl) => remove(nl, owner, addresses));
}

/** As {@linkcode removeMasquerade}, without a question for what the reference plugin has set up. @throws {NetlinkError} */
function removeMasqueradeElements(nl: Netlink, owner: Owner): void {
  removeElementsOf(nl, inetTable, PURPOSE, owner, failover);
}

/** @throws {CniError} if what {@linkcode addMasquerade} made is not there any more */
export function checkMasquerade(
  nl: Netlink,
  owner: Owner,
  addresses: readonly Cidr[],
  livesElsewhere: FindHolder = () => false,
): void {
  checkElements(nl, inetTable, owner, masqueradeElements(owner, addresses, livesElsewhere));
}

/** Stops masquerading for all attachments of a network that are not among the valid ones, the reference plugin's included. @throws {NetlinkError} */
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
