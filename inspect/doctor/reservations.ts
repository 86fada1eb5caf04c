import type { Ip } from "../../ffi/address.ts";
import { type AddressHolder, type AddressReservations, describeHolder } from "../../plugins/lib/model/reservations.ts";
import { findRangeOf, type RangeSet } from "../../plugins/lib/model/address_ranges.ts";
import type { Owner } from "../../plugins/lib/model/owner.ts";
import { CniError, ConfigError } from "../../spec/error.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import { reservationsOf } from "../../networks/reservations.ts";

/** Says in words why an address is not its container's, by the present reservations. */
export function openReservations(network: NetworkConfigList): (owner: Owner, ip: Ip) => string | undefined {
  const all = reservationsOf(network).map((reservations) => ({
    sets: findRangeSets(reservations),
    holders: reservations.holders(),
  }));
  return (owner, ip) => {
    const found = all.find(({ sets }) => sets.some((set) => findRangeOf(set, ip)));
    if (!found) return undefined;
    const holder = found.holders.get(ip);
    const isReserved = holder ? isHeldBy(holder, owner) : found.holders.has(ip);
    if (isReserved) return undefined;
    const whose = `address ${ip} of "${owner.ifname}" of container "${owner.containerId}"`;
    return holder
      ? `${whose} is reserved for ${describeHolder(holder)}`
      : `${whose} is not reserved, so the next container may get it too`;
  };
}

/** Another check says what is wrong with the configuration. */
function findRangeSets(reservations: AddressReservations): readonly RangeSet[] {
  try {
    return reservations.rangeSets();
  } catch (error) {
    if (error instanceof ConfigError || error instanceof CniError) return [];
    throw error;
  }
}

/** Old reservations name no interface. */
function isHeldBy({ containerId, ifname }: AddressHolder, owner: AddressHolder): boolean {
  return containerId === owner.containerId && (ifname === undefined || ifname === owner.ifname);
}
