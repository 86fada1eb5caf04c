/** Pods that the plugin `network-policy` has attached: their addresses are in the guard. */
import { type Ip, ipFromBytes } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { type Owner, parseOwner, sameOwner } from "../model/owner.ts";
import { podAddressSet, policyBridgeTable, policyTable, selfCalls } from "../ruleset/policy_tables.ts";

const FAMILIES = [4, 6] as const;
const NAME_BYTES = 16;

export interface AttachedAddress extends Owner {
  readonly ip: Ip;
  /** The link on the host. */
  readonly interface: string;
}

export function listAttached(nl: Netlink, table: nft.TableKey = policyTable): AttachedAddress[] {
  return FAMILIES.flatMap((family) =>
    nft.listElements(nl, table, podAddressSet(family)).flatMap(({ key, comment = "" }) => {
      const owner = parseOwner(comment);
      return owner ? [{ ...owner, ...readAddressKey(key) }] : [];
    })
  );
}

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

/** The key of an element of the guard. */
export function readAddressKey(key: Uint8Array): Pick<AttachedAddress, "ip" | "interface"> {
  const name = key.subarray(0, NAME_BYTES);
  const end = name.indexOf(0);
  return {
    interface: new TextDecoder().decode(end < 0 ? name : name.subarray(0, end)),
    ip: ipFromBytes(key.subarray(NAME_BYTES)),
  };
}

/** By address: the ports of bridges. */
export function bridgePorts(nl: Netlink): Map<Ip, string> {
  const listed = listAttached(nl, policyBridgeTable);
  const holders = new Map(isUnique(listed) ? [] : readGuard(nl).attached.map((each) => [each.ip, each.interface]));
  const present = listed.filter((each) => (holders.get(each.ip) ?? each.interface) === each.interface);
  return new Map(present.map((each) => [each.ip, each.interface]));
}
