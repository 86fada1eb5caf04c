/**
 * The bridge itself, and the host's interface in one of its VLANs.
 *
 * @module
 */
import { checkFailedError, expectEqual } from "../lib/protocol/check_failed.ts";
import { type Mac, macFromBytes } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { bridge as bridgeKind, veth } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { IFF_PROMISC, IFF_UP } from "../../ffi/route/uapi.ts";
import { randomVethName } from "../lib/links/veth_pair.ts";
import { disableRouterAdvertisements, trySysctls } from "../lib/links/sysctls.ts";
import type { CheckCall } from "../lib/protocol/plugin.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { type BridgeConfig, usesVlanFiltering, vlanGatewayName } from "./config.ts";
import { setVlans } from "./vlan.ts";

/** The bridge of the configuration, created if there is none. @throws {CniError} if the name belongs to something else */
export function ensureBridge(host: Netns, config: BridgeConfig, log: (message: string) => void): link.Link {
  const existing = link.find(host.route, config.bridge);
  const device = existing ? reuseBridge(host, existing, config) : createBridge(host, config);
  // Of every bridge: one that was there may be the system's, or that of an ADD that did not get this far.
  host.run(() => trySysctls(disableRouterAdvertisements(config.bridge), log));
  return device;
}

function createBridge(host: Netns, config: BridgeConfig): link.Link {
  const { bridge: name } = config;
  try {
    link.add(host.route, {
      name,
      // An address given at birth stays; else the bridge would take that of whichever port has the lowest.
      mac: randomMac(),
      ...config.mtu ? { mtu: config.mtu } : {},
      flags: IFF_UP | (config.promiscMode ? IFF_PROMISC : 0),
      change: IFF_UP | (config.promiscMode ? IFF_PROMISC : 0),
      info: bridgeKind(usesVlanFiltering(config) ? { vlanFiltering: 1 } : {}),
    });
  } catch (error) {
    // Another container's ADD was faster.
    if (!(error instanceof NetlinkError && error.code === "EEXIST")) throw error;
    return reuseBridge(host, link.get(host.route, name), config);
  }
  return link.get(host.route, name);
}

function reuseBridge(host: Netns, existing: link.Link, config: BridgeConfig): link.Link {
  const { bridge: name } = config;
  const current = bridgeKind.of(existing);
  if (!current) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot use "${name}" as a bridge: it is an interface of another kind (${existing.info?.kind ?? "device"})`,
      {
        details: `choose another name for "bridge", or remove the interface`,
      },
    );
  }
  const flags = IFF_UP | (config.promiscMode ? IFF_PROMISC : 0);
  if ((existing.flags & flags) !== flags) link.set(host.route, existing.index, { flags, change: flags });
  if (usesVlanFiltering(config) && !current.vlanFiltering) {
    link.set(host.route, existing.index, { info: bridgeKind({ vlanFiltering: 1 }) });
  }
  return existing;
}

/** Checks the bridge against the configuration and what ADD reported. @throws {CniError} on the first difference */
export function checkBridge({ config, host, pluginConfig }: CheckCall<BridgeConfig>, result: Result): link.Link {
  const device = link.find(host.route, config.bridge);
  if (!device || !bridgeKind.of(device)) {
    throw checkFailedError(`network "${pluginConfig.name}" has no bridge "${config.bridge}"`);
  }
  const reported = result.interfaces?.find(({ name, sandbox }) => name === config.bridge && !sandbox);
  expectEqual(`bridge "${config.bridge}" in prevResult`, reported?.name, config.bridge);
  if (reported?.mac) {
    expectEqual(`MAC address of "${config.bridge}"`, device.mac as string | undefined, reported.mac.toLowerCase());
  }
  if (config.promiscMode) expectEqual(`promiscuous mode of "${config.bridge}"`, (device.promiscuity ?? 0) > 0, true);
  expectEqual(`administrative state of "${config.bridge}"`, link.isUp(device) ? "up" : "down", "up");
  return device;
}

/** The host's interface in the container's VLAN: a veth whose peer is a port of the bridge. Created if there is none. */
export function ensureVlanGateway(host: Netns, bridge: link.Link, config: BridgeConfig): link.Link {
  const name = vlanGatewayName(config);
  if (!link.find(host.route, name)) createVlanGateway(host, bridge, name);
  const gateway = link.get(host.route, name);
  // It is brought up last: one that is down was left by an ADD that is not done yet, or never will be.
  if (link.isUp(gateway)) return gateway;
  const port = veth.of(gateway) && gateway.linkIndex ? link.find(host.route, gateway.linkIndex) : undefined;
  if (port?.master === bridge.index) {
    setVlans(host, port.index, config.preserveDefaultVlan, [{ vid: config.vlan, pvid: true, untagged: true }]);
  }
  link.setUp(host.route, gateway.index);
  return gateway;
}

function createVlanGateway(host: Netns, bridge: link.Link, name: string): void {
  const mtu = bridge.mtu ? { mtu: bridge.mtu } : {};
  const peer = { name, ...mtu };
  const port = randomVethName();
  try {
    link.add(host.route, {
      name: port,
      master: bridge.index,
      ...mtu,
      flags: IFF_UP,
      change: IFF_UP,
      info: veth({ peer }),
    });
  } catch (error) {
    // Another container's ADD was faster.
    if (!(error instanceof NetlinkError && error.code === "EEXIST")) throw error;
  }
}

/** An address of the locally administered range, for one interface. */
function randomMac(): Mac {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = (bytes[0]! & 0xfc) | 0x02;
  return macFromBytes(bytes);
}
