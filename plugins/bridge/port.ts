import type { Mac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as bridgeVlan from "../../ffi/route/bridge_vlan.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { bridgePortInfo } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { createVethPair } from "../lib/veth/veth_pair.ts";
import { formatAlias, type Owner } from "../lib/model/owner.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type BridgeConfig, portVlans } from "./config.ts";

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

/** Sets a port's VLANs, in place of the bridge's default or beside it. */
export function setVlans(host: Netns, port: number, preserveDefault: boolean, vlans: readonly bridgeVlan.Vlan[]): void {
  const defaultVids = preserveDefault ? [] : bridgeVlan.list(host.route, port).map(({ vid }) => vid);
  if (defaultVids.length > 0) bridgeVlan.remove(host.route, port, defaultVids);
  bridgeVlan.add(host.route, port, vlans);
}
