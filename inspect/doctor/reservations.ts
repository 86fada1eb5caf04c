import type { Ip } from "../../ffi/address.ts";
import { parseHostLocalConfig } from "../../plugins/host_local/config.ts";
import { describeHolder, type Holder, readInventory } from "../../plugins/host_local/inventory.ts";
import { networkDirectoryOf } from "../../plugins/host_local/network_directory.ts";
import { findRangeOf, type RangeSet } from "../../plugins/host_local/ranges.ts";
import type { Owner } from "../../plugins/lib/protocol/owner.ts";
import { CniError, ConfigError } from "../../spec/error.ts";
import type { NetworkConfigList } from "../../spec/network_config_list.ts";
import type { PluginConfig } from "../../spec/plugin_config.ts";
import { hostLocalConfigs } from "../../networks/users.ts";

/** Says in words why an address is not its container's, by the present reservations of host-local. */
export function openReservations(network: NetworkConfigList): (owner: Owner, ip: Ip) => string | undefined {
  const all = hostLocalConfigs(network).map((config) => ({
    sets: findRangeSets(config),
    holders: readInventory(networkDirectoryOf(config)).holders,
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
function findRangeSets(config: PluginConfig): readonly RangeSet[] {
  try {
    return parseHostLocalConfig(config).sets;
  } catch (error) {
    if (error instanceof ConfigError || error instanceof CniError) return [];
    throw error;
  }
}

/** Old reservations name no interface. */
function isHeldBy({ containerId, ifname }: Holder, owner: Holder): boolean {
  return containerId === owner.containerId && (ifname === undefined || ifname === owner.ifname);
}
