import type { Netns } from "../../ffi/netns.ts";
import * as bridgeVlan from "../../ffi/route/bridge_vlan.ts";
import { bridge as bridgeKind } from "../../ffi/route/link_kinds.ts";
import type { Link } from "../../ffi/route/link.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { type BridgeConfig, portVlans, usesVlanFiltering } from "./config.ts";

/** Gives a port these VLANs instead of the bridge's default, or beside it. @throws {NetlinkError} */
export function setVlans(host: Netns, port: number, preserveDefault: boolean, vlans: readonly bridgeVlan.Vlan[]): void {
  const defaultVids = preserveDefault ? [] : bridgeVlan.list(host.route, port).map(({ vid }) => vid);
  if (defaultVids.length > 0) bridgeVlan.remove(host.route, port, defaultVids);
  bridgeVlan.add(host.route, port, vlans);
}

/** Checks that a port has the configured VLANs, and that the bridge filters by VLAN. @throws {CniError} */
export function checkVlans(host: Netns, bridge: Link, port: Link, config: BridgeConfig): void {
  if (usesVlanFiltering(config)) {
    expectEqual(`VLAN filtering of "${config.bridge}"`, bridgeKind.of(bridge)?.vlanFiltering === 1, true);
  }
  const wanted = portVlans(config).sort((a, b) => a.vid - b.vid);
  if (wanted.length === 0) return;
  const wantedVids = new Set(wanted.map(({ vid }) => vid));
  // The default VLAN of the time of the ADD is not known any more.
  const present = bridgeVlan.list(host.route, port.index).filter(({ vid }) =>
    !config.preserveDefaultVlan || wantedVids.has(vid)
  );
  expectEqual(`VLANs of "${port.name}"`, formatVlans(present), formatVlans(wanted));
}

/** `100 native, 101-103` for ascending VLANs. */
function formatVlans(vlans: readonly bridgeVlan.Vlan[]): string {
  const ranges: { first: number; last: number; mode: string }[] = [];
  for (const { vid, pvid, untagged } of vlans) {
    const mode = pvid && untagged ? " native" : pvid ? " pvid" : untagged ? " untagged" : "";
    const lastRange = ranges.at(-1);
    if (lastRange && lastRange.mode === mode && lastRange.last === vid - 1) lastRange.last = vid;
    else ranges.push({ first: vid, last: vid, mode });
  }
  return ranges.map(({ first, last, mode }) => `${first}${last > first ? `-${last}` : ""}${mode}`).join(", ");
}
