/** Pods that the plugin `network-policy` has attached: their addresses are in the guard. */
import { type Ip, ipFromBytes, type Mac, macFromBytes } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { type Owner, parseOwner, sameOwner } from "../model/owner.ts";
import { RECORD_SET } from "../ruleset/owner_records.ts";
import { podAddressSet, podSourceSet, policyBridgeTable, policyTable, selfCalls } from "../ruleset/policy_tables.ts";

const FAMILIES = [4, 6] as const;
const NAME_BYTES = 16;
const MAC_BYTES = 6;
/** Each field of a key has whole words. */
const MAC_FIELD_BYTES = 8;

export interface AttachedAddress extends Owner {
  readonly ip: Ip;
  /** The link on the host. */
  readonly interface: string;
}

export const listAttached = (nl: Netlink): AttachedAddress[] =>
  listOwned(nl, policyTable, podAddressSet, readAddressKey);

/** An address of a pod on a bridge, with the pod's MAC address. */
export interface BridgedAddress extends AttachedAddress {
  readonly mac: Mac;
}

export const listBridgedPods = (nl: Netlink): BridgedAddress[] =>
  listOwned(nl, policyBridgeTable, podSourceSet, readSourceKey);

function listOwned<T extends object>(
  nl: Netlink,
  table: nft.TableKey,
  set: (family: 4 | 6) => string,
  read: (key: Uint8Array) => T,
): (Owner & T)[] {
  return FAMILIES.flatMap((family) =>
    nft.listElements(nl, table, set(family)).flatMap(({ key, comment = "" }) => {
      const owner = parseOwner(comment);
      return owner ? [{ ...owner, ...read(key) }] : [];
    })
  );
}

/** Of whom a table has elements, or had some that others removed: a DEL removes the record too. */
export const listRecordedPods = (nl: Netlink, table: nft.TableKey): Owner[] =>
  nft.listElements(nl, table, RECORD_SET).flatMap(({ comment = "" }) => parseOwner(comment) ?? []);

export interface Guard {
  /** Each address once: the last container that got it has it. */
  readonly attached: readonly AttachedAddress[];
  /** Another one if somebody has removed the table meanwhile, and with it all that it had. */
  readonly table: bigint | undefined;
}

export function readGuard(nl: Netlink): Guard {
  const listed = listAttached(nl);
  const attached = isUnique(listed) ? listed : withoutFormer(nl, listed);
  // It comes last: a table that is still the same has had this.
  return { attached, table: nft.findTable(nl, policyTable)?.handle };
}

const isUnique = (listed: readonly AttachedAddress[]): boolean =>
  new Set(listed.map(({ ip }) => ip)).size === listed.length;

/** The DEL of a container may come after the ADD of the next one with its address. */
function withoutFormer(nl: Netlink, listed: readonly AttachedAddress[]): AttachedAddress[] {
  const holders = new Map(
    FAMILIES.flatMap((family) =>
      nft.listElements(nl, policyTable, selfCalls(family)).map(({ key, comment = "" }) =>
        [ipFromBytes(key.subarray(0, family === 4 ? 4 : 16)), parseOwner(comment)] as const
      )
    ),
  );
  return listed.filter((each) => sameOwner(holders.get(each.ip), each));
}

/** The key of an element of the guard in `table inet`. */
export function readAddressKey(key: Uint8Array): Pick<AttachedAddress, "ip" | "interface"> {
  return { interface: linkNameIn(key), ip: ipFromBytes(key.subarray(NAME_BYTES)) };
}

function readSourceKey(key: Uint8Array): Pick<BridgedAddress, "ip" | "interface" | "mac"> {
  return {
    interface: linkNameIn(key),
    mac: macFromBytes(key.subarray(NAME_BYTES, NAME_BYTES + MAC_BYTES)),
    ip: ipFromBytes(key.subarray(NAME_BYTES + MAC_FIELD_BYTES)),
  };
}

/** At the begin of a key. */
export function linkNameIn(key: Uint8Array): string {
  const name = key.subarray(0, NAME_BYTES);
  const end = name.indexOf(0);
  return new TextDecoder().decode(end < 0 ? name : name.subarray(0, end));
}

/** An element of one of the tables. @returns `undefined` if it is in a set without addresses */
export function attachedAddressOf(
  { set, key }: { readonly set: string; readonly key: Uint8Array },
): Pick<AttachedAddress, "ip" | "interface"> | undefined {
  if (FAMILIES.some((family) => set === podAddressSet(family))) return readAddressKey(key);
  return FAMILIES.some((family) => set === podSourceSet(family)) ? readSourceKey(key) : undefined;
}

/** By address: the ports of bridges. */
export function bridgePorts(nl: Netlink): Map<Ip, string> {
  const listed = listBridgedPods(nl);
  const holders = new Map(isUnique(listed) ? [] : readGuard(nl).attached.map((each) => [each.ip, each.interface]));
  const present = listed.filter((each) => (holders.get(each.ip) ?? each.interface) === each.interface);
  return new Map(present.map((each) => [each.ip, each.interface]));
}
