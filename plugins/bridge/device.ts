/**
 * The bridge itself, and its ports.
 *
 * @module
 */
import { type Mac, macFromBytes } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { bridge as bridgeKind, bridgePortChange, veth } from "../../ffi/route/kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { IFF_PROMISC, IFF_UP } from "../../ffi/route/uapi.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { ensureSysctl } from "../../ffi/sysctl.ts";
import { CniError, Code } from "../spec/error.ts";
import { type BridgeConfig, portVlans, usesVlans, vlanGatewayName } from "./config.ts";
import { setVlans } from "./vlan.ts";

/** The bridge of the configuration, created if there is none. @throws {CniError} if the name belongs to something else */
export function ensureBridge(host: Netns, config: BridgeConfig, log: (message: string) => void): link.Link {
  const { bridge: name } = config;
  const found = link.find(host.route, name);
  if (found) return adapt(host, found, config);
  try {
    link.add(host.route, {
      name,
      // An address given at birth stays; else the bridge would take that of whichever port has the lowest.
      mac: randomMac(),
      ...config.mtu ? { mtu: config.mtu } : {},
      flags: IFF_UP | (config.promiscMode ? IFF_PROMISC : 0),
      change: IFF_UP | (config.promiscMode ? IFF_PROMISC : 0),
      info: bridgeKind(usesVlans(config) ? { vlanFiltering: 1 } : {}),
    });
  } catch (error) {
    // Another container's ADD was faster.
    if (!(error instanceof NetlinkError && error.code === "EEXIST")) throw error;
    return adapt(host, link.get(host.route, name), config);
  }
  ignoreAdvertisements(host, name, log);
  return link.get(host.route, name);
}

function adapt(host: Netns, found: link.Link, config: BridgeConfig): link.Link {
  const { bridge: name } = config;
  const current = bridgeKind.of(found);
  if (!current) {
    throw new CniError(
      Code.InvalidConfig,
      `Cannot use "${name}" as a bridge: it is an interface of another kind (${found.info?.kind ?? "device"})`,
      {
        details: `choose another name for "bridge", or remove the interface`,
      },
    );
  }
  const flags = IFF_UP | (config.promiscMode ? IFF_PROMISC : 0);
  if ((found.flags & flags) !== flags) link.set(host.route, found.index, { flags, change: flags });
  if (usesVlans(config) && !current.vlanFiltering) {
    link.set(host.route, found.index, { info: bridgeKind({ vlanFiltering: 1 }) });
  }
  return found;
}

/** A container must not make the host its router's client. */
function ignoreAdvertisements(host: Netns, name: string, log: (message: string) => void): void {
  const parameter = `net/ipv6/conf/${name}/accept_ra`;
  try {
    host.run(() => ensureSysctl(parameter, "0"));
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    if (error.code !== "ENOENT") log(`Cannot set ${parameter} to 0, going on without: ${error.message}`);
  }
}

/** What the two ends of a container's cable are to be. */
export interface Cable {
  readonly bridge: link.Link;
  readonly netns: Netns;
  readonly ifname: string;
  readonly mac: Mac | undefined;
}

/**
 * Creates the container's interface and the bridge's port, each where it will live.
 *
 * @returns the name of the host's end
 * @throws {CniError} if the container has an interface of that name
 */
export function createCable(host: Netns, { bridge, netns, ifname, mac }: Cable, config: BridgeConfig): string {
  const mtu = config.mtu ? { mtu: config.mtu } : {};
  const peer = { name: ifname, netnsFd: netns.fd, ...mtu, ...mac ? { mac } : {} };
  for (let attempt = 1;; attempt++) {
    const name = randomName();
    try {
      link.add(host.route, { name, master: bridge.index, ...mtu, flags: IFF_UP, change: IFF_UP, info: veth({ peer }) });
      return name;
    } catch (error) {
      if (!(error instanceof NetlinkError)) throw error;
      if (error.code === "EXFULL") throw bridgeFull(config.bridge, error);
      if (error.code !== "EEXIST" || attempt === 10) throw error.forPurpose(`create "${ifname}" in "${netns.path}"`);
      if (link.find(netns.route, ifname)) throw interfaceExists(ifname, netns);
    }
  }
}

const interfaceExists = (ifname: string, netns: Netns) =>
  new CniError(
    Code.InvalidEnvironment,
    `Cannot create "${ifname}" in "${netns.path}": the container has an interface of that name`,
    {
      details: "give another CNI_IFNAME, or run DEL for this container first",
    },
  );

const bridgeFull = (bridge: string, cause: unknown) =>
  new CniError(
    Code.Internal,
    `Cannot attach another container to bridge "${bridge}": it has 1023 ports, the most that Linux allows`,
    {
      details: "use a second network with a bridge of its own",
      cause,
    },
  );

/** Sets what the configuration wants of the container's port. @throws {NetlinkError} */
export function setUpPort(host: Netns, name: string, config: BridgeConfig): void {
  const { hairpinMode, portIsolation } = config;
  const vlans = portVlans(config);
  if (!hairpinMode && !portIsolation && vlans.length === 0) return;
  const { index } = link.get(host.route, name);
  if (hairpinMode || portIsolation) {
    link.set(host.route, index, {
      info: bridgePortChange({ hairpin: Number(hairpinMode), isolated: Number(portIsolation) }),
    });
  }
  if (vlans.length > 0) setVlans(host, index, config.preserveDefaultVlan, vlans);
}

/** The host's interface in the container's VLAN: a cable whose other end is a port of the bridge. Created if there is none. */
export function ensureVlanGateway(host: Netns, bridge: link.Link, config: BridgeConfig): link.Link {
  const name = vlanGatewayName(config);
  if (!link.find(host.route, name)) addVlanGateway(host, bridge, name);
  const gateway = link.get(host.route, name);
  // It is brought up last: one that is down was left by an ADD that is not done yet, or never will be.
  if (link.isUp(gateway)) return gateway;
  const port = veth.of(gateway) && gateway.parent ? link.find(host.route, gateway.parent) : undefined;
  if (port?.master === bridge.index) {
    setVlans(host, port.index, config.preserveDefaultVlan, [{ vid: config.vlan, pvid: true, untagged: true }]);
  }
  link.setUp(host.route, gateway.index);
  return gateway;
}

function addVlanGateway(host: Netns, bridge: link.Link, name: string): void {
  const mtu = bridge.mtu ? { mtu: bridge.mtu } : {};
  const peer = { name, ...mtu };
  const port = randomName();
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

function randomName(): string {
  return `veth${crypto.getRandomValues(new Uint8Array(4)).toHex()}`;
}

/** An address of the locally administered range, for one interface. */
function randomMac(): Mac {
  const bytes = crypto.getRandomValues(new Uint8Array(6));
  bytes[0] = (bytes[0]! & 0xfc) | 0x02;
  return macFromBytes(bytes);
}
