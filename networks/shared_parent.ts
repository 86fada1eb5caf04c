/** Networks on one parent interface: containers of both are on one segment, so they must not have one address. */
import type { Netns } from "../ffi/netns/netns.ts";
import { type AddressRange, formatRanges, rangesOverlap } from "../plugins/lib/model/address_ranges.ts";
import { findDefaultRouteDevice } from "../plugins/lib/links/lower_device.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList, PluginEntry } from "../spec/network_config_list.ts";
import { findValue } from "../spec/schema.ts";
import type { NetworkFile } from "./network_files.ts";
import { reservationsOfEntry } from "./reservations.ts";

/** Plugins that connect containers to the network of their `master`. */
const UPPER_PLUGINS = ["macvlan", "ipvlan"];

interface AssignedRanges {
  /** `""` for the default route's, if the host has none. */
  readonly parent: string;
  readonly ranges: readonly AddressRange[];
}

export function refuseUsedRanges(host: Netns, created: NetworkConfigList, files: readonly NetworkFile[]): void {
  const own = assignedRanges(host, created);
  if (own.length === 0) return;
  for (const { list, file } of files) {
    const others = list ? tryAssignedRanges(host, list) : [];
    for (const { parent, ranges } of own) {
      const sameParent = others.filter((other) => other.parent === parent).flatMap((other) => other.ranges);
      const used = sameParent.find((range) => ranges.some((wanted) => rangesOverlap(range, wanted)));
      if (used) throw usedRangeError(created.name, parent, used, `network "${list?.name}" in "${file}"`);
    }
  }
}

function usedRangeError(network: string, parent: string, range: AddressRange, user: string): CniError {
  const place = parent === "" ? "the parent interface" : `"${parent}"`;
  return new CniError(
    Code.InvalidConfig,
    `Cannot create network "${network}": ${user} gives out ${formatRanges([range])} on ${place}`,
    { details: "give this one another part of the subnet with --ip-range" },
  );
}

function assignedRanges(host: Netns, list: NetworkConfigList): AssignedRanges[] {
  return list.plugins.filter(({ type }) => UPPER_PLUGINS.includes(type))
    .map((entry) => ({
      parent: parentOf(host, entry),
      ranges: (reservationsOfEntry(list, entry)?.rangeSets() ?? []).flatMap(({ ranges }) => ranges),
    }));
}

/** A network whose configuration is wrong gives out nothing. */
function tryAssignedRanges(host: Netns, list: NetworkConfigList): AssignedRanges[] {
  try {
    return assignedRanges(host, list);
  } catch (error) {
    if (error instanceof CniError) return [];
    throw error;
  }
}

function parentOf(host: Netns, { raw }: PluginEntry): string {
  const master = findValue(raw, "master");
  return typeof master === "string" && master !== "" ? master : findDefaultRouteDevice(host)?.name ?? "";
}
