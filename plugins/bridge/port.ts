import type { Mac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { bridgePortInfo, bridgePortOf } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { expectLink } from "../lib/links/expect_link.ts";
import { checkVethPair, createVethPair } from "../lib/links/veth_pair.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { formatAlias, type Owner } from "../lib/protocol/owner.ts";
import type { CheckCall } from "../lib/protocol/plugin.ts";
import { checkSpoofCheck } from "../lib/ruleset/spoof_check.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type BridgeConfig, portVlans } from "./config.ts";
import { checkVlans, setVlans } from "./vlan.ts";

/** The veth pair between a container and the bridge. */
export interface PortOptions {
  readonly bridge: link.Link;
  readonly netns: Netns;
  readonly ifname: string;
  readonly mac: Mac | undefined;
}

/**
 * Creates the container's interface and the bridge's port.
 *
 * @returns the name of the port
 * @throws {CniError} if the container has an interface of that name, or the bridge no room
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

/** Gives the port its owner as alias, its flags and VLANs. @throws {NetlinkError} */
export function setUpPort(host: Netns, name: string, config: BridgeConfig, owner: Owner): void {
  const { hairpinMode, portIsolation } = config;
  const flags = bridgePortInfo({ hairpin: Number(hairpinMode), isolated: Number(portIsolation) });
  // DEL and GC find the port by its alias when all else is gone.
  link.set(host.route, name, { alias: formatAlias(owner), ...hairpinMode || portIsolation ? { info: flags } : {} });
  const vlans = portVlans(config);
  if (vlans.length > 0) setVlans(host, link.get(host.route, name).index, config.preserveDefaultVlan, vlans);
}

/** Checks that the host veth is a port of the bridge as configured. @throws {CniError} */
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
