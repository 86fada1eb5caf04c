/**
 * The cable between a container and the bridge: the container's interface, and the port at the other end.
 *
 * @module
 */
import type { Mac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { bridgePortChange, bridgePortOf, veth } from "../../ffi/route/kinds.ts";
import * as link from "../../ffi/route/link.ts";
import { IF_OPER_UP, IFF_UP } from "../../ffi/route/uapi.ts";
import { expectEqual, removeIfPresent } from "../kit/interface.ts";
import { deadOf } from "../kit/owned_elements.ts";
import { formatOwner, type Owner, parseOwner, sameOwner } from "../kit/owner.ts";
import type { AttachmentCall, CheckCall, DelCall, GcCall, ManyCalls } from "../kit/plugin.ts";
import { checkSpoofCheck } from "../kit/spoof_check.ts";
import { CniError, Code } from "../spec/error.ts";
import { type BridgeConfig, portVlans, vlanGatewayName } from "./config.ts";
import { checkVlans, setVlans } from "./vlan.ts";

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

/** Writes down whose the container's port is, and sets what the configuration wants of it. @throws {NetlinkError} */
export function setUpPort(host: Netns, name: string, config: BridgeConfig, owner: Owner): void {
  const { hairpinMode, portIsolation } = config;
  const flags = bridgePortChange({ hairpin: Number(hairpinMode), isolated: Number(portIsolation) });
  // The alias is what `ip link` shows, and how DEL and GC find the port when all else is gone.
  link.set(host.route, name, { alias: formatOwner(owner), ...hairpinMode || portIsolation ? { info: flags } : {} });
  const vlans = portVlans(config);
  if (vlans.length > 0) setVlans(host, link.get(host.route, name).index, config.preserveDefaultVlan, vlans);
}

/** A name that no other interface of the host has, as far as chance can tell. */
export function randomName(): string {
  return `veth${crypto.getRandomValues(new Uint8Array(4)).toHex()}`;
}

/** Checks that the other end of the container's cable is a port of the bridge, as the configuration wants it. @throws {CniError} */
export function checkPort(
  { config, host, ifname, owner }: CheckCall<BridgeConfig>,
  bridge: link.Link,
  inner: link.Link,
): void {
  expectEqual(`kind of "${ifname}"`, inner.info?.kind, "veth");
  const port = link.find(host.route, inner.parent ?? 0);
  if (!port || port.info?.kind !== "veth") {
    throw new CniError(Code.Internal, `Check failed: the other end of "${ifname}" is missing on the host`);
  }
  expectEqual(`bridge of "${port.name}"`, port.master, bridge.index);
  const flags = bridgePortOf(port);
  expectEqual(`hairpin mode of "${port.name}"`, flags?.hairpin === 1, config.hairpinMode);
  expectEqual(`isolation of "${port.name}"`, (flags?.isolated ?? 0) === 1, config.portIsolation);
  if (config.macspoofchk) checkSpoofCheck(host.nft, owner, port.name!, inner.mac!);
  checkVlans(host, bridge, port, config);
  if (config.mtu) expectEqual(`MTU of "${port.name}"`, port.mtu, config.mtu);
  if (!config.disableContainerInterface) expectEqual(`operational state of "${port.name}"`, port.operstate, IF_OPER_UP);
}

/** Removes the host's end of the cable, for when the namespace with the container's end cannot be entered. */
export function removePort(call: DelCall<BridgeConfig>): void {
  const { host, prevResult, config, owner } = call;
  const found = findTold(call);
  if (found) removeIfPresent(host, found.name!);
  else if (!prevResult) removePorts(host, config.bridge, (each) => sameOwner(each, owner));
}

/** Removes the host's ends of many cables. @returns the attachments that one was found for @throws {NetlinkError} */
export function removePortsOfMany(calls: ManyCalls<BridgeConfig>): ReadonlySet<ManyCalls<BridgeConfig>[number]> {
  const { host, config } = calls[0];
  const found = new Set<ManyCalls<BridgeConfig>[number]>();
  link.removeChosen(host.route, (all) => {
    const byName = new Map(all.map((each) => [each.name, each]));
    const owned = new Map(portsIn(all, config.bridge).map((each) => [each.alias, each]));
    return calls.flatMap((call) => {
      const { network, containerId, ifname } = call.owner;
      const port = told(call, (name) => byName.get(name)) ?? owned.get(`${network} ${containerId} ${ifname}`);
      if (port) found.add(call);
      return port ?? [];
    });
  });
  return found;
}

/** The host's end of the cable. @throws {CniError} if it is missing */
export function getPort(call: AttachmentCall<BridgeConfig>): link.Link {
  const { host, config, ifname, owner } = call;
  const port = findTold(call) ?? listPorts(host, config.bridge, (each) => sameOwner(each, owner))[0];
  if (port) return port;
  throw new CniError(Code.Internal, `Cannot find the other end of "${ifname}": it is missing on the host`);
}

/** The host's end of the cable, as far as the result tells which it is. */
function findTold(call: AttachmentCall<BridgeConfig>): link.Link | undefined {
  return told(call, (name) => link.find(call.host.route, name));
}

function told(
  { prevResult, config, owner }: AttachmentCall<BridgeConfig>,
  find: (name: string) => link.Link | undefined,
): link.Link | undefined {
  for (const { name, mac, sandbox } of prevResult?.interfaces ?? []) {
    if (sandbox || name === config.bridge || name === vlanGatewayName(config)) continue;
    const found = find(name);
    // The name alone might be another container's by now; the reference plugin writes no owner.
    if (!found || !veth.of(found)) continue;
    if (found.alias === undefined ? found.mac === mac : isOwned(found, (each) => sameOwner(each, owner))) {
      return found;
    }
  }
  return undefined;
}

/** Removes the cables of this network's containers that live no more. */
export function collectPorts({ host, config, request, valid }: GcCall<BridgeConfig>): void {
  const isDead = deadOf(request.name, valid);
  link.removeChosen(host.route, (all) => portsIn(all, config.bridge).filter((each) => isOwned(each, isDead)));
}

function removePorts(host: Netns, bridge: string, isToGo: (owner: Owner) => boolean): void {
  for (const each of listPorts(host, bridge, isToGo)) removeIfPresent(host, each.name!);
}

function portsIn(all: readonly link.Link[], bridge: string): link.Link[] {
  const master = all.find(({ name }) => name === bridge)?.index;
  return master === undefined ? [] : all.filter((each) => each.master === master);
}

function listPorts(host: Netns, bridge: string, mine: (owner: Owner) => boolean): link.Link[] {
  const master = link.find(host.route, bridge)?.index;
  return master === undefined ? [] : link.list(host.route, { master }).filter((each) => isOwned(each, mine));
}

function isOwned({ alias = "" }: link.Link, mine: (owner: Owner) => boolean): boolean {
  const owner = parseOwner(alias);
  return owner !== undefined && mine(owner);
}
