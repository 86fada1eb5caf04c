/**
 * The `bridge` plugin: a veth pair between the container and a bridge of the host.
 *
 * @module
 */
import { type Mac, parseMac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { bridge as bridgeKind } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import {
  type BridgeConfig,
  bridgeConfig,
  needsVlanGateway,
  refuseContradictions,
  requestedContainerMac,
  vlanGatewayName,
} from "./config.ts";
import { diagnoseBridge } from "./diagnose.ts";
import { checkBridge, connectToBridge, ensureVlanGateway } from "./bridge_device.ts";
import {
  checkGateways,
  refuseUnreachableGateways,
  refuseUnreachableRangeGateways,
  setUpGateways,
  withDefaultRoutes,
  withGateways,
} from "./gateway.ts";
import { checkPort, otherHostInterfaces, setUpPort } from "./port.ts";
import { claimLink } from "./shared_link.ts";
import { gcVethPairs, getHostVeth, randomMac, removeVethPair, removeVethPairs } from "../lib/links/veth_pair.ts";
import { removeRulesIfSupported } from "../lib/ruleset/nf_tables_support.ts";
import { awaitLinkOperational, configureInterface, ipsOf } from "../lib/links/configure_interface.ts";
import {
  type AddressScope,
  claimAddresses,
  listHostAddresses,
  lives,
  livesElsewhere,
  refuseHostAddresses,
  routingTableOf,
} from "../lib/links/address_claim.ts";
import { expectConfigured, requireContainerInterface } from "../lib/links/check_interface.ts";
import {
  addMasquerade,
  checkMasquerade,
  gcMasquerade,
  removeMasquerade,
  removeMasqueradeBatch,
  removeMasqueradeForDel,
  restoreMasquerade,
} from "../lib/ruleset/masquerade.ts";
import type { Owner } from "../lib/protocol/owner.ts";
import {
  type AddCall,
  type CheckCall,
  cleanUp,
  plugin,
  requirePrevResult,
  type RestoreCall,
} from "../lib/protocol/plugin.ts";
import { expectEqual } from "../lib/protocol/check_failed.ts";
import { checkForwarding, distinctFamilies } from "../lib/links/reachability.ts";
import { requireInetTable } from "../lib/ruleset/inet_table.ts";
import {
  addSpoofCheck,
  checkSpoofCheck,
  gcSpoofChecks,
  hasSpoofChecks,
  removeSpoofCheck,
  removeSpoofCheckBatch,
  requireSpoofCheck,
  restoreSpoofCheck,
} from "../lib/ruleset/spoof_check.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type Interface, type IpConfig, requireExpressible, type Result } from "../../spec/result.ts";

export default plugin({
  name: "bridge",
  about: "Connects the container to a bridge of the host",
  config: bridgeConfig,
  args: ["MAC"],

  add(call) {
    const { config, pluginConfig, host, netns, ifname, ipam } = call;
    refuseContradictions(config, ipam !== undefined);
    // Too late once the bridge is there: it stays from the moment that other ADDs may rely on it.
    if (!ipam) requireExpressible({}, pluginConfig.cniVersion);
    const mac = chooseContainerMac(call);
    const { bridge, port } = connectToBridge(call, mac);
    setUpPort(host, port, config, call.owner);
    const containerVeth = link.get(netns.route, ifname);
    if (config.macspoofchk) enableMacSpoofCheck(call, port, mac!);
    const result = ipam ? attachLayer3(call, bridge, port, containerVeth) : attachLayer2(call, containerVeth);
    // Looked at again: the address of a bridge that is not ours may follow that of its ports.
    const [bridgeLink, hostVeth] = link.getAll(host.route, [bridge.index, port]) as [link.Link, link.Link];
    if (!config.disableContainerInterface) awaitLinkOperational(host, hostVeth);
    if (config.macspoofchk) requireMac(netns, containerVeth, mac!);
    const vlanGateway = ipam && needsVlanGateway(config) ? [getGatewayDevice(host, bridge, config)] : [];
    for (const shared of [bridgeLink, ...vlanGateway]) claimLink(host, shared, 0);
    const container = { ...describeLink(containerVeth), sandbox: call.sandbox };
    const interfaces = [describeLink(bridgeLink), describeLink(hostVeth), container, ...vlanGateway.map(describeLink)];
    return { ...result, interfaces };
  },

  del(call) {
    const { config, host, ifname, ipam, owner, prevResult } = call;
    const addresses = prevResult && ipsOf(prevResult, ifname).map((ip) => ip.address);
    // Rules before links: both make the kernel wait, and sent in this order it waits once.
    cleanUp(
      () => removeMasqueradeForDel(call, addresses),
      () =>
        removeRulesIfSupported(host, config.macspoofchk, (nl) => {
          if (config.macspoofchk || hasSpoofChecks(nl)) removeSpoofCheck(nl, owner);
        }),
      () => removeVethPair(call, otherHostInterfaces(config)),
      () => ipam?.del(),
    );
  },

  delBatch(calls, ipam) {
    const { config, host, pluginConfig: { name } } = calls[0];
    const owners = calls.map(({ owner }) => owner);
    const unfinished = new Set<Owner>();
    const markUnfinished = (unfinishedOwners: Iterable<Owner>) => {
      for (const owner of unfinishedOwners) unfinished.add(owner);
    };
    cleanUp(
      () => config.ipMasq && markUnfinished(removeMasqueradeBatch(host.nft, name, owners)),
      () => config.macspoofchk && markUnfinished(removeSpoofCheckBatch(host.nft, name, owners)),
      () => removeVethPairs(calls, otherHostInterfaces(config)),
      () => markUnfinished(ipam.del(calls).map(({ owner }) => owner)),
    );
    return calls.filter(({ owner }) => unfinished.has(owner));
  },

  check(call) {
    const { config, host, ipam, owner } = call;
    ipam?.check();
    const result = requirePrevResult(call, "bridge");
    const bridge = checkBridge(call, result);
    const containerVeth = expectConfigured(call.netns, call.ifname, result);
    requireContainerInterface(result, call.ifname, call.sandbox);
    checkPort(call, bridge, containerVeth);
    if (!ipam) return;
    const ips = ipsOf(result, call.ifname);
    if (config.isGateway || config.isDefaultGateway) checkGatewayDevice(call, bridge, ips);
    if (config.ipMasq) checkMasquerade(host.nft, owner, ips.map((ip) => ip.address), lives(host));
  },

  restore(call) {
    const { config, host, ipam, ifname, owner } = call;
    const result = requirePrevResult(call, "bridge");
    // Before 0.3.0 results named no interfaces; then all addresses are of this one.
    const ips = result.interfaces?.length ? ipsOf(result, ifname) : result.ips ?? [];
    return [
      ...config.ipMasq && ipam ? restoreMasquerade(host.nft, owner, ips.map((ip) => ip.address), lives(host)) : [],
      ...config.macspoofchk ? restoreMacSpoofCheck(call) : [],
    ];
  },

  gc(call) {
    const { config, pluginConfig, host, ipam, validAttachments } = call;
    cleanUp(
      () =>
        removeRulesIfSupported(
          host,
          config.ipMasq,
          (nl) => gcMasquerade(nl, pluginConfig.name, validAttachments, call.log),
        ),
      () =>
        removeRulesIfSupported(host, config.macspoofchk, (nl) => {
          if (config.macspoofchk || hasSpoofChecks(nl)) {
            gcSpoofChecks(host, pluginConfig.name, validAttachments, call.log);
          }
        }),
      () => gcVethPairs(call),
      () => ipam?.gc(),
    );
  },

  status({ config, host, ipam, pluginConfig }) {
    refuseContradictions(config, ipam !== undefined);
    const found = link.find(host.route, config.bridge);
    if (found && !bridgeKind.of(found)) {
      throw new CniError(
        Code.NotAvailable,
        `Cannot attach containers: "${config.bridge}" is an interface of another kind than bridge`,
      );
    }
    if (config.ipMasq) requireInetTable(host.nft);
    if (config.macspoofchk) requireSpoofCheck(host.nft);
    ipam?.status();
    const isGateway = config.isGateway || config.isDefaultGateway;
    if (isGateway && ipam?.type === "host-local") refuseUnreachableRangeGateways(pluginConfig.raw);
  },

  diagnose: diagnoseBridge,
});

/** The interface with the gateways' addresses leads to where the host forwards packets. */
function checkGatewayDevice(
  { config, host }: CheckCall<BridgeConfig>,
  bridge: link.Link,
  ips: readonly IpConfig[],
): void {
  const device = getGatewayDevice(host, bridge, config);
  expectEqual(`administrative state of "${device.name}"`, link.isUp(device) ? "up" : "down", "up");
  checkGateways(host, device, ips);
  checkForwarding(host, distinctFamilies(ips.flatMap(({ gateway }) => gateway ?? [])));
}

/** Where it is checked, the address is given and not read: what the container has, it may have chosen itself by then. */
function chooseContainerMac({ config, args }: AddCall<BridgeConfig>): Mac | undefined {
  return requestedContainerMac(config, args) ?? (config.macspoofchk ? randomMac() : undefined);
}

/** Only frames that come from the address that the container was given may enter the bridge. */
function enableMacSpoofCheck({ host, owner, undo }: AddCall<BridgeConfig>, port: string, mac: Mac): void {
  undo.defer(() => removeSpoofCheck(host.nft, owner));
  addSpoofCheck(host.nft, owner, port, mac);
}

/** @throws {CniError} if the container has changed its address during the ADD */
function requireMac(netns: Netns, { index, name }: link.Link, mac: Mac): void {
  const actual = link.get(netns.route, index).mac;
  if (actual === mac) return;
  throw new CniError(
    Code.Internal,
    `Cannot attach the container: it changed the MAC address of "${name}" from ${mac} to ${actual} during the ADD`,
    {
      details:
        'macspoofchk needs the address that it was given; who attaches it may choose that with the capability "mac"',
    },
  );
}

/** The address is the one that the ADD told: what the container has by now, it may have chosen itself. */
function restoreMacSpoofCheck(call: RestoreCall<BridgeConfig>): string[] {
  const { host, netns, ifname, owner, prevResult } = call;
  const port = getHostVeth(call, otherHostInterfaces(call.config)).name!;
  const reportedMac = prevResult?.interfaces?.find(({ name, sandbox }) => name === ifname && sandbox)?.mac;
  if (reportedMac) return restoreSpoofCheck(host.nft, owner, port, parseMac(reportedMac));
  requireSpoofCheckOf(host, owner, port, link.get(netns.route, ifname).mac!);
  return [];
}

/** Before 0.3.0 results named no address: then what is missing cannot be put back. @throws {CniError} */
function requireSpoofCheckOf(host: Netns, owner: Owner, port: string, mac: Mac): void {
  try {
    checkSpoofCheck(host.nft, owner, port, mac);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(
      Code.Internal,
      `Cannot restore macspoofchk of "${port}": the result of ADD names no MAC address`,
      {
        details: `${error.message}; attach the container anew, with cniVersion 0.3.0 or later`,
      },
    );
  }
}

/** Without IPAM the container speaks whatever it likes; its end is set up and nothing more. */
function attachLayer2({ config, netns, pluginConfig }: AddCall<BridgeConfig>, containerVeth: link.Link): Result {
  if (!config.disableContainerInterface) link.setUp(netns.route, containerVeth.index);
  return pluginConfig.dns ? { dns: pluginConfig.dns } : {};
}

function attachLayer3(
  call: AddCall<BridgeConfig>,
  bridge: link.Link,
  port: string,
  containerVeth: link.Link,
): Result {
  const { config, pluginConfig, host, netns, ifname, owner, undo, log } = call;
  const result = completeResult(call, call.ipam!.add());
  const ips = result.ips!;
  const isGateway = config.isGateway || config.isDefaultGateway;
  if (isGateway) refuseUnreachableGateways(ips);
  const scope = addressScope(call, bridge, ips);
  claimAddresses(host, owner, port, scope, ips.map((ip) => ip.address));
  if (config.ipMasq) {
    undo.defer(() => removeMasquerade(host.nft, owner, ips.map((ip) => ip.address)));
    addMasquerade(host.nft, owner, ips.map((ip) => ip.address), livesElsewhere(host, owner, scope));
  }
  const interfaces = [{ name: "" }, { name: "" }, { name: ifname }];
  configureInterface(netns, containerVeth, { ...result, interfaces }, { noDad: !config.enabledad, log });
  if (isGateway) {
    const device = needsVlanGateway(config) ? ensureVlanGateway(call, bridge) : bridge;
    setUpGateways(call, { bridge, port, device }, ips);
  }
  return pluginConfig.dns && Object.keys(pluginConfig.dns).length > 0 ? { ...result, dns: pluginConfig.dns } : result;
}

/** What IPAM decided, with the container's interface, gateways and default routes filled in. */
function completeResult({ config, ipam }: AddCall<BridgeConfig>, ipamResult: Result): Result {
  if (!ipamResult.ips?.length) {
    throw new CniError(Code.Internal, `Cannot attach the container: IPAM plugin "${ipam!.type}" returned no address`);
  }
  const isGateway = config.isGateway || config.isDefaultGateway;
  const ips = (isGateway ? withGateways(ipamResult.ips) : ipamResult.ips).map((ip) => ({
    ...ip,
    interface: CONTAINER_INTERFACE_INDEX,
  }));
  return config.isDefaultGateway ? withDefaultRoutes({ ...ipamResult, ips }) : { ...ipamResult, ips };
}

/** Where the container's interface stands in the result: behind the bridge and its port. */
const CONTAINER_INTERFACE_INDEX = 2;

function describeLink({ name, mac }: link.Link): Interface {
  return { name: name!, ...mac ? { mac } : {} };
}

/**
 * Where the container's addresses must be its alone: on its bridge, and where the host has an address there, in its routing table.
 *
 * @throws {CniError} if the host has one of them there; where it is the gateway, {@linkcode setUpGateways} looks
 */
function addressScope(
  { host, config, owner }: AddCall<BridgeConfig>,
  bridge: link.Link,
  ips: readonly IpConfig[],
): AddressScope {
  const name = config.vlan === 0 ? config.bridge : vlanGatewayName(config);
  const device = config.vlan === 0 ? bridge : link.find(host.route, name);
  const isGateway = config.isGateway || config.isDefaultGateway;
  const hostAddresses = !isGateway && device ? listHostAddresses(host, device) : [];
  refuseHostAddresses(owner, name, hostAddresses, ips.map((ip) => ip.address));
  const isRouted = isGateway || hostAddresses.length > 0;
  return { bridge: name, ...isRouted && { table: routingTableOf(host, device ?? {}) } };
}

/** The interface that has the gateway's address. */
function getGatewayDevice(host: Netns, bridge: link.Link, config: BridgeConfig): link.Link {
  return needsVlanGateway(config) ? link.get(host.route, vlanGatewayName(config)) : bridge;
}
