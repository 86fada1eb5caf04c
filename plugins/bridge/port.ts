import type { Mac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as bridgeVlan from "../../ffi/route/bridge_vlan.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { bridge as bridgeKind, bridgePortInfo, bridgePortOf } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { expectLink } from "../lib/links/expect_link.ts";
import { checkVethPair, createVethPair } from "../lib/veth/veth_pair.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { formatAlias, type Owner } from "../lib/model/owner.ts";
import type { CheckCall } from "../lib/protocol/plugin.ts";
import { checkSpoofCheck } from "../lib/veth/spoof_check.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type BridgeConfig, portVlans, usesVlanFiltering } from "./config.ts";

export interface PortOptions {
  readonly bridge: link.Link;
  readonly netns: Netns;
  readonly ifname: string;
  readonly mac: Mac | undefined;
}

/**
 * @returns the port's name
 * @throws {CniError} if the interface name is taken, or the bridge is full
 */
export function createPort(host: Netns, { bridge, ...veth }: PortOptions, config: BridgeConfig): string {
  try {
    return createVethPair(host, { ...veth, mtu: config.mtu, master: bridge.index });
  } catch (error) {
    if (!(error instanceof NetlinkError && error.code === "EXFULL")) throw error;
    const problem = "it has 1023 ports, the most that Linux allows";
    throw new CniError(Code.Internal, `Cannot attach another container to bridge "${config.bridge}": ${problem}`, {
      details: "use a second network with a bridge of its own",
      cause: error,
    });
  }
}

export function setUpPort(host: Netns, name: string, config: BridgeConfig, owner: Owner): void {
  const { hairpinMode, portIsolation } = config;
  const flags = bridgePortInfo({ hairpin: Number(hairpinMode), isolated: Number(portIsolation) });
  // DEL and GC find the port by its alias when there is no result.
  link.set(host.route, name, { alias: formatAlias(owner), ...hairpinMode || portIsolation ? { info: flags } : {} });
  const vlans = portVlans(config);
  if (vlans.length > 0) setVlans(host, link.get(host.route, name).index, config.preserveDefaultVlan, vlans);
}

export function checkPort(call: CheckCall<BridgeConfig>, bridge: link.Link, containerVeth: link.Link): void {
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

export function setVlans(host: Netns, port: number, preserveDefault: boolean, vlans: readonly bridgeVlan.Vlan[]): void {
  const defaultVids = preserveDefault ? [] : bridgeVlan.list(host.route, port).map(({ vid }) => vid);
  if (defaultVids.length > 0) bridgeVlan.remove(host.route, port, defaultVids);
  bridgeVlan.add(host.route, port, vlans);
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
