/** Pods that the plugin `network-policy` has attached: their addresses are in the guard. */
import { type Ip, ipFromBytes } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { type Owner, parseOwner } from "../model/owner.ts";
import { podAddressSet, policyBridgeTable, policyTable } from "../ruleset/policy_tables.ts";

const NAME_BYTES = 16;

export interface AttachedAddress extends Owner {
  readonly ip: Ip;
  /** The link on the host. */
  readonly interface: string;
}

export function listAttached(nl: Netlink, table: nft.TableKey = policyTable): AttachedAddress[] {
  return ([4, 6] as const).flatMap((family) =>
    nft.listElements(nl, table, podAddressSet(family)).flatMap(({ key, comment = "" }) => {
      const owner = parseOwner(comment);
      return owner ? [{ ...owner, ...readAddressKey(key) }] : [];
    })
  );
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
  return new Map(listAttached(nl, policyBridgeTable).map((each) => [each.ip, each.interface]));
}
