/** CHECK of `bridge`: what has changed since the ADD. ADD and DEL do not load it. @module */
import type { Netns } from "../../ffi/netns/netns.ts";
import * as bridgeVlan from "../../ffi/route/bridge_vlan.ts";
import { bridge as bridgeKind, bridgePortOf } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { expectConfigured, requireContainerInterface } from "../lib/links/check_interface.ts";
import { ipsOf } from "../lib/links/configure_interface.ts";
import { expectLink } from "../lib/links/expect_link.ts";
import { checkMasqueraded } from "../lib/veth/masqueraded_veth.ts";
import { checkForwarding, distinctFamilies } from "../lib/links/reachability.ts";
import { checkVethPair } from "../lib/veth/veth_pair.ts";
import { checkWanted } from "../lib/links/wanted_differences.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { type CheckCall, requirePrevResult } from "../lib/protocol/plugin.ts";
import { checkSpoofCheck } from "../lib/veth/spoof_check.ts";
import type { IpConfig, Result } from "../../spec/result.ts";
import { type BridgeConfig, isGateway, portVlans, usesVlanFiltering } from "./config.ts";
import { bridgeWanted } from "./wanted.ts";

/** @throws {CniError} on the first difference */
export function checkBridgeAttachment(call: CheckCall<BridgeConfig>): void {
  const { config, host, ipam } = call;
  ipam?.check();
  const result = requirePrevResult(call, "bridge");
  const ips = ipam ? ipsOf(result, call.ifname) : [];
  const bridge = checkBridge(call, result, ips);
  const containerVeth = expectConfigured(call.netns, call.ifname, result);
  requireContainerInterface(result, call.ifname, call.sandbox);
  checkPort(call, bridge, containerVeth);
  if (!ipam) return;
  if (isGateway(config)) checkForwarding(host, distinctFamilies(ips.flatMap(({ gateway }) => gateway ?? [])));
  checkMasqueraded(call, ips);
}

function checkBridge(call: CheckCall<BridgeConfig>, result: Result, ips: readonly IpConfig[]): link.Link {
  const { config, host } = call;
  const found = link.find(host.route, config.bridge);
  checkWanted(call, bridgeWanted(config, ips), { host: found ? [found] : [] });
  const device = found!;
  const reported = result.interfaces?.find(({ name, sandbox }) => name === config.bridge && !sandbox);
  expectEqual(`bridge "${config.bridge}" in prevResult`, reported?.name, config.bridge);
  const mac = reported?.mac?.toLowerCase();
  if (mac) expectEqual<string | undefined>(`MAC address of "${config.bridge}"`, device.mac, mac);
  if (config.promiscMode) expectEqual(`promiscuous mode of "${config.bridge}"`, (device.promiscuity ?? 0) > 0, true);
  return device;
}

function checkPort(call: CheckCall<BridgeConfig>, bridge: link.Link, containerVeth: link.Link): void {
  const { config, host, owner } = call;
  const port = checkVethPair(call, containerVeth);
  expectLink(`bridge of "${port.name}"`, host, port.master, bridge);
  const flags = bridgePortOf(port);
  expectEqual(`hairpin mode of "${port.name}"`, flags?.hairpin === 1, config.hairpinMode);
  expectEqual(`isolation of "${port.name}"`, (flags?.isolated ?? 0) === 1, config.portIsolation);
  if (config.macspoofchk) checkSpoofCheck(host.nft, owner, port.name!, containerVeth.mac!);
  checkVlans(host, bridge, port, config);
  if (config.mtu) expectEqual(`MTU of "${port.name}"`, port.mtu, config.mtu);
  if (!config.disableContainerInterface) {
    expectEqual(`operational state of "${port.name}"`, link.operationalState(port), "up");
  }
}

function checkVlans(host: Netns, bridge: link.Link, port: link.Link, config: BridgeConfig): void {
  if (usesVlanFiltering(config)) {
    expectEqual(`VLAN filtering of "${config.bridge}"`, bridgeKind.of(bridge)?.vlanFiltering === 1, true);
  }
  const wanted = portVlans(config).sort((a, b) => a.vid - b.vid);
  if (wanted.length === 0) return;
  const wantedVids = new Set(wanted.map(({ vid }) => vid));
  // The default VLAN at the time of the ADD is unknown.
  const present = bridgeVlan.list(host.route, port.index).filter(({ vid }) =>
    !config.preserveDefaultVlan || wantedVids.has(vid)
  );
  expectEqual(`VLANs of "${port.name}"`, formatVlans(present), formatVlans(wanted));
}

/** `100 native, 101-103` for ascending VLANs. */
function formatVlans(vlans: readonly bridgeVlan.Vlan[]): string {
  const ranges: { first: number; last: number; mode: string }[] = [];
  for (const vlan of vlans) {
    const { vid } = vlan;
    const mode = vlanMode(vlan);
    const lastRange = ranges.at(-1);
    if (lastRange && lastRange.mode === mode && lastRange.last === vid - 1) lastRange.last = vid;
    else ranges.push({ first: vid, last: vid, mode });
  }
  return ranges.map(({ first, last, mode }) => `${first}${last > first ? `-${last}` : ""}${mode}`).join(", ");
}

function vlanMode({ pvid, untagged }: bridgeVlan.Vlan): string {
  if (pvid && untagged) return " native";
  if (pvid) return " pvid";
  return untagged ? " untagged" : "";
}
