import type { Mac } from "../../ffi/address.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { bridge as bridgeKind, veth } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { IFF_PROMISC, IFF_UP } from "../../ffi/route/uapi.ts";
import { randomVethName, removeLinkIfPresent } from "../lib/links/container_link.ts";
import { randomMac } from "../lib/veth/veth_pair.ts";
import { hasRouter } from "../lib/links/forwarding.ts";
import { disableRouterAdvertisements, skipDuplicateDetection, trySysctls } from "../lib/links/sysctls.ts";
import type { AddCall } from "../lib/protocol/plugin.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type BridgeConfig, usesVlanFiltering, vlanGatewayName } from "./config.ts";
import { isNewLink } from "../lib/links/created_link.ts";
import { claimLink, newLinkGroup, removeLinkGroup } from "./shared_link.ts";
import { createPort, setVlans } from "./port.ts";

/**
 * Connects the container to the bridge, which is created if missing. A failed ADD removes its port. It also removes a
 * bridge that no ADD has succeeded on, unless another ADD has a port there.
 *
 * @returns the bridge and the host veth's name
 * @throws {CniError} if another link has one of the interface names
 */
export function connectToBridge(
  call: AddCall<BridgeConfig>,
  mac: Mac | undefined,
): { readonly bridge: link.Link; readonly port: string } {
  const { host, config, netns, ifname, log, undo } = call;
  for (;;) {
    let port: string | undefined;
    undo.defer(() => {
      if (port !== undefined) removeLinkIfPresent(host, port);
      removeUnusedBridge(host, config.bridge);
    });
    const bridge = findOrCreate(
      host,
      config.bridge,
      () => explainMissingVlans(config, () => createBridge(host, config)),
    );
    const isNew = isNewLink(bridge);
    try {
      explainMissingVlans(config, () => adjustBridge(host, bridge, config));
      // Also for an existing bridge: the ADD that created it may not have got this far.
      const sysctls = {
        ...!hasRouter(host, bridge) && disableRouterAdvertisements(config.bridge),
        ...isNew && skipDuplicateDetection(config.bridge),
      };
      host.run(() => trySysctls(sysctls, log));
      port = createPort(host, { bridge, netns, ifname, mac }, config);
      if (!isNew || claimLink(host, bridge, newLinkGroup())) return { bridge, port };
      removeLinkIfPresent(host, port);
    } catch (error) {
      if (!isNew || link.find(host.route, bridge.index)) throw error;
    }
    // Another ADD failed and removed the bridge.
  }
}

/** An ADD changes the group after it adds a port, so the group is read before the ports. */
function removeUnusedBridge(host: Netns, name: string): void {
  const bridge = link.find(host.route, name);
  if (!bridge || !isNewLink(bridge) || link.list(host.route, { master: bridge.index }).length > 0) return;
  removeLinkGroup(host, bridge.group!);
}

function findOrCreate(host: Netns, name: string, create: () => void): link.Link {
  for (;;) {
    const existing = link.find(host.route, name);
    if (existing) return existing;
    ignoreErrors(["EEXIST"], create);
  }
}

function createBridge(host: Netns, config: BridgeConfig): void {
  const flags = wantedFlags(config);
  link.add(host.route, {
    name: config.bridge,
    group: newLinkGroup(),
    // Without an address of its own, the bridge takes its ports' lowest.
    mac: randomMac(),
    ...config.mtu ? { mtu: config.mtu } : {},
    flags,
    change: flags,
    info: bridgeKind(usesVlanFiltering(config) ? { vlanFiltering: 1 } : {}),
  });
}

const wantedFlags = ({ promiscMode }: BridgeConfig): number => IFF_UP | (promiscMode ? IFF_PROMISC : 0);

function adjustBridge(host: Netns, existing: link.Link, config: BridgeConfig): void {
  const { bridge: name } = config;
  const current = bridgeKind.of(existing);
  if (!current) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot use "${name}" as a bridge: it is an interface of another kind (${existing.info?.kind ?? "device"})`,
      { details: 'choose another name for "bridge"' },
    );
  }
  const flags = wantedFlags(config);
  if ((existing.flags & flags) !== flags) link.set(host.route, existing.index, { flags, change: flags });
  if (usesVlanFiltering(config) && !current.vlanFiltering) {
    link.set(host.route, existing.index, { info: bridgeKind({ vlanFiltering: 1 }) });
  }
}

/** The kernel says no more than that an operation is not supported. */
function explainMissingVlans(config: BridgeConfig, call: () => void): void {
  try {
    call();
  } catch (error) {
    if (!(error instanceof NetlinkError) || error.code !== "EOPNOTSUPP" || !usesVlanFiltering(config)) throw error;
    throw new CniError(Code.Internal, `Cannot use VLANs on the bridge "${config.bridge}": this kernel refuses them`, {
      details: "it needs CONFIG_BRIDGE_VLAN_FILTERING; without it, leave out vlan and vlanTrunk",
      cause: error,
    });
  }
}

/**
 * The host's interface in the container's VLAN, created if missing: a veth whose peer is a port of the bridge. A failed
 * ADD removes it unless another ADD has found it.
 */
export function ensureVlanGateway(call: AddCall<BridgeConfig>, bridge: link.Link): link.Link {
  const { host, config, log } = call;
  const gateway = findOrCreateVlanGateway(call, bridge);
  // It is set up last: one that is down belongs to an unfinished or failed ADD.
  if (link.isUp(gateway)) return gateway;
  const port = veth.of(gateway) && gateway.linkIndex ? link.find(host.route, gateway.linkIndex) : undefined;
  if (port?.master === bridge.index) {
    setVlans(host, port.index, config.preserveDefaultVlan, [{ vid: config.vlan, pvid: true, untagged: true }]);
  }
  host.run(() => trySysctls(skipDuplicateDetection(gateway.name!), log));
  link.setUp(host.route, gateway.index);
  return gateway;
}

function findOrCreateVlanGateway({ host, config, undo }: AddCall<BridgeConfig>, bridge: link.Link): link.Link {
  const group = newLinkGroup();
  undo.defer(() => removeLinkGroup(host, group));
  const mtu = bridge.mtu ? { mtu: bridge.mtu } : {};
  for (;;) {
    const gateway = findOrCreate(host, vlanGatewayName(config), () =>
      link.add(host.route, {
        name: randomVethName(),
        master: bridge.index,
        ...mtu,
        flags: IFF_UP,
        change: IFF_UP,
        info: veth({ peer: { name: vlanGatewayName(config), group, ...mtu } }),
      }));
    if (gateway.group === group || claimLink(host, gateway, 0)) return gateway;
  }
}
