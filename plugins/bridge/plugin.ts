import { type Mac, parseMac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { bridge as bridgeKind } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import {
  type BridgeConfig,
  bridgeConfig,
  isGateway,
  needsVlanGateway,
  refuseContradictions,
  vlanGatewayName,
} from "./config.ts";
import { bridgeNetwork } from "./network.ts";
import { refuseBridgeOverlap } from "./overlap.ts";
import { connectToBridge, ensureVlanGateway } from "./bridge_device.ts";
import {
  refuseUnreachableGateways,
  refuseUnreachableRangeGateways,
  setUpGateways,
  withDefaultRoutes,
  withGateways,
} from "./gateway.ts";
import { setUpPort } from "./port.ts";
import { claimLink } from "./shared_link.ts";
import { getHostVeth, randomMac } from "../lib/veth/veth_pair.ts";
import { requestedMac } from "../lib/links/requested_mac.ts";
import { removeRulesIfSupported } from "../lib/ruleset/nf_tables_support.ts";
import { awaitLinkOperational, configureInterface } from "../lib/links/configure_interface.ts";
import {
  type AddressScope,
  claimAddresses,
  listHostAddresses,
  refuseHostAddresses,
  routingTableOf,
} from "../lib/links/address_claim.ts";
import {
  detachVeth,
  detachVeths,
  gcVeths,
  masqueradeAddresses,
  restoreMasqueraded,
} from "../lib/veth/masqueraded_veth.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import type { Owner } from "../lib/model/owner.ts";
import { type AddCall, plugin, type RestoreCall } from "../lib/protocol/plugin.ts";
import { throwIfSignalled } from "../lib/protocol/signal.ts";
import { assignAddresses, describeInterface } from "../lib/links/single_interface.ts";
import { bridgeTable } from "../lib/ruleset/bridge_table.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { requireTable } from "../lib/ruleset/table.ts";
import {
  addSpoofCheck,
  checkSpoofCheck,
  gcSpoofChecks,
  hasSpoofChecks,
  removeSpoofCheck,
  removeSpoofCheckBatch,
  restoreSpoofCheck,
} from "../lib/veth/spoof_check.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type Interface, type IpConfig, requireExpressible, type Result } from "../../spec/result.ts";

const CONTAINER_INTERFACE_INDEX = 2;

export default plugin({
  name: "bridge",
  about: "Connects the container to a bridge of the host",
  config: bridgeConfig,
  model: (): PluginModel => require("./model.ts").default,
  args: ["MAC"],

  validate: ({ config, pluginConfig }) => refuseContradictions(config, pluginConfig.ipamType !== undefined),

  add(call) {
    const { config, pluginConfig, host, netns, ifname, ipam } = call;
    refuseContradictions(config, ipam !== undefined);
    // Check first: a bridge stays once other ADDs may rely on it.
    if (!ipam) requireExpressible({}, pluginConfig.cniVersion);
    // With macspoofchk, set the address instead of reading it: the container could change it first.
    const mac = requestedMac(config, call.args) ?? (config.macspoofchk ? randomMac() : undefined);
    const { bridge, port } = connectToBridge(call, mac);
    setUpPort(host, port, config, call.owner);
    const containerVeth = link.get(netns.route, ifname);
    if (config.macspoofchk) enableMacSpoofCheck(call, port, mac!);
    const result = ipam ? attachLayer3(call, bridge, port, containerVeth) : attachLayer2(call, containerVeth);
    // A foreign bridge's address may follow its ports'.
    const [bridgeLink, hostVeth] = link.getAll(host.route, [bridge.index, port]) as [link.Link, link.Link];
    if (!config.disableContainerInterface) awaitLinkOperational(host, hostVeth);
    if (config.macspoofchk) requireMac(netns, containerVeth, mac!);
    const vlanGateway = ipam && needsVlanGateway(config) ? [link.get(host.route, vlanGatewayName(config))] : [];
    // A bridge that is kept is not removed when this ADD is undone.
    throwIfSignalled();
    for (const shared of [bridgeLink, ...vlanGateway]) claimLink(host, shared, 0);
    const container = describeInterface(call, containerVeth);
    const interfaces = [describeLink(bridgeLink), describeLink(hostVeth), container, ...vlanGateway.map(describeLink)];
    return { ...result, interfaces };
  },

  del(call) {
    const { config, host, owner } = call;
    detachVeth(call, () =>
      removeRulesIfSupported(host, config.macspoofchk, (nl) => {
        if (config.macspoofchk || hasSpoofChecks(nl)) removeSpoofCheck(nl, owner);
      }));
  },

  delBatch(calls, ipam) {
    const { config, host, pluginConfig: { name } } = calls[0];
    return detachVeths(
      calls,
      ipam,
      (owners) => config.macspoofchk ? removeSpoofCheckBatch(host.nft, name, owners) : [],
    );
  },

  check: (call) => loadCheck().checkBridgeAttachment(call),

  restore: (call) => [
    ...call.ipam ? restoreMasqueraded(call, "bridge") : [],
    ...call.config.macspoofchk ? restoreMacSpoofCheck(call) : [],
  ],

  gc(call) {
    const { config: { macspoofchk }, pluginConfig: { name }, host, validAttachments, log } = call;
    gcVeths(call, () =>
      removeRulesIfSupported(host, macspoofchk, (nl) => {
        if (macspoofchk || hasSpoofChecks(nl)) gcSpoofChecks(host, name, validAttachments, log);
      }));
  },

  status(call) {
    const { config, host, ipam, pluginConfig } = call;
    refuseContradictions(config, ipam !== undefined);
    if (config.ipMasq) requireTable(host.nft, inetTable);
    if (config.macspoofchk) requireTable(host.nft, bridgeTable);
    ipam?.status();
    // The first ADD may make the bridge meanwhile.
    const found = link.find(host.route, config.bridge);
    if (found && !bridgeKind.of(found)) {
      const message = `Cannot attach containers: "${config.bridge}" is an interface of another kind than bridge`;
      throw new CniError(Code.NotAvailable, message);
    }
    if (isGateway(config) && ipam?.type === "host-local") refuseUnreachableRangeGateways(pluginConfig.raw);
    if (isGateway(config)) refuseBridgeOverlap(call, found);
  },

  diagnose: (call) => loadDiagnosis().diagnoseNetwork(call, bridgeNetwork(call.config)),
});

/** ADD and DEL do without it. */
function loadCheck(): typeof import("./check.ts") {
  return require("./check.ts");
}

/** Only `cni run status` and `check` need it. */
function loadDiagnosis(): typeof import("../lib/links/network_diagnosis.ts") {
  return require("../lib/links/network_diagnosis.ts");
}

function enableMacSpoofCheck({ host, owner, undo, log }: AddCall<BridgeConfig>, port: string, mac: Mac): void {
  undo.defer(() => removeSpoofCheck(host.nft, owner));
  addSpoofCheck(host.nft, owner, port, mac, { log });
}

/** @throws {CniError} if the container changed its address during the ADD */
function requireMac(netns: Netns, { index, name }: link.Link, mac: Mac): void {
  const actual = link.get(netns.route, index).mac;
  if (actual === mac) return;
  const message = `it changed the MAC address of "${name}" from ${mac} to ${actual} during the ADD`;
  throw new CniError(Code.Internal, `Cannot attach the container: ${message}`, {
    details: 'macspoofchk needs the address that it was given; the capability "mac" chooses that',
  });
}

/** Uses the result's address: the container may have changed its own. */
function restoreMacSpoofCheck(call: RestoreCall<BridgeConfig>): string[] {
  const { host, netns, ifname, owner, prevResult } = call;
  const port = getHostVeth(call).name!;
  const reportedMac = prevResult?.interfaces?.find(({ name, sandbox }) => name === ifname && sandbox)?.mac;
  if (reportedMac) return restoreSpoofCheck(host.nft, owner, port, parseMac(reportedMac));
  requireSpoofCheckOf(host, owner, port, link.get(netns.route, ifname).mac!);
  return [];
}

/** Results before 0.3.0 name no address to restore. @throws {CniError} */
function requireSpoofCheckOf(host: Netns, owner: Owner, port: string, mac: Mac): void {
  try {
    checkSpoofCheck(host.nft, owner, port, mac);
  } catch (error) {
    if (!(error instanceof CniError)) throw error;
    throw new CniError(
      Code.Internal,
      `Cannot restore macspoofchk of "${port}": the result of ADD names no MAC address`,
      { details: `${error.message}; attach the container again, with cniVersion 0.3.0 or later` },
    );
  }
}

function attachLayer3(
  call: AddCall<BridgeConfig>,
  bridge: link.Link,
  port: string,
  containerVeth: link.Link,
): Result {
  const { config, host, netns, ifname, owner, log } = call;
  const assigned = assignAddresses(call, { name: ifname });
  const ips = isGateway(config) ? withGateways(assigned.ips!) : assigned.ips!;
  const result = config.isDefaultGateway ? withDefaultRoutes({ ...assigned, ips }) : { ...assigned, ips };
  if (isGateway(config)) refuseUnreachableGateways(ips);
  const scope = addressScope(call, bridge, ips);
  claimAddresses(host, owner, port, scope, ips.map((ip) => ip.address));
  masqueradeAddresses(call, scope, ips);
  configureInterface(netns, containerVeth, result, { noDad: !config.enabledad, log });
  if (isGateway(config)) {
    const device = needsVlanGateway(config) ? ensureVlanGateway(call, bridge) : bridge;
    setUpGateways(call, { bridge, port, device }, ips);
  }
  return { ...result, ips: ips.map((ip) => ({ ...ip, interface: CONTAINER_INTERFACE_INDEX })) };
}

function attachLayer2(call: AddCall<BridgeConfig>, containerVeth: link.Link): Result {
  if (!call.config.disableContainerInterface) link.setUp(call.netns.route, containerVeth.index);
  return assignAddresses(call, { name: call.ifname });
}

function describeLink({ name, mac }: link.Link): Interface {
  return { name: name!, ...mac ? { mac } : {} };
}

/**
 * Scopes claims to the bridge, and to the host's routing table if the host has an address there.
 *
 * @throws {CniError} if the host has one of the addresses; {@linkcode setUpGateways} checks gateways
 */
function addressScope(
  { host, config, owner }: AddCall<BridgeConfig>,
  bridge: link.Link,
  ips: readonly IpConfig[],
): AddressScope {
  const name = config.vlan === 0 ? config.bridge : vlanGatewayName(config);
  const device = config.vlan === 0 ? bridge : link.find(host.route, name);
  const hostAddresses = !isGateway(config) && device ? listHostAddresses(host, device) : [];
  refuseHostAddresses(owner, name, hostAddresses, ips.map((ip) => ip.address));
  const isRouted = isGateway(config) || hostAddresses.length > 0;
  return { bridge: name, ...isRouted && { table: routingTableOf(host, device ?? {}) } };
}
