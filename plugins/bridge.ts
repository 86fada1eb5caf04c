/**
 * The `bridge` plugin: a cable from the container to a bridge of the host.
 *
 * @module
 */
import * as address from "../ffi/route/address.ts";
import { bridge as bridgeKind, bridgePortOf, veth } from "../ffi/route/kinds.ts";
import * as link from "../ffi/route/link.ts";
import { IF_OPER_UP } from "../ffi/route/uapi.ts";
import {
  type BridgeConfig,
  bridgeConfig,
  needsVlanGateway,
  refuseContradictions,
  vlanGatewayName,
  wantedMac,
} from "./bridge/config.ts";
import { createCable, ensureBridge, ensureVlanGateway, setUpPort } from "./bridge/device.ts";
import { gatewayAddresses, setUpGateways, withDefaultRoutes, withGateways } from "./bridge/gateway.ts";
import { checkVlans } from "./bridge/vlan.ts";
import {
  awaitOperational,
  configure,
  containerInterface,
  expectConfigured,
  expectEqual,
  ipsOf,
  removeIfPresent,
} from "./kit/interface.ts";
import { addMasquerade, checkMasquerade, collectMasquerade, removeMasquerade } from "./kit/masquerade.ts";
import { type AddCall, type CheckCall, cleanUp, type DelCall, plugin, requirePrevResult } from "./kit/plugin.ts";
import { requireRuleset } from "./kit/ruleset.ts";
import { addSpoofCheck, checkSpoofCheck, collectSpoofChecks, removeSpoofCheck } from "./kit/spoof_check.ts";
import { CniError, Code } from "./spec/error.ts";
import type { Interface, Result } from "./spec/result.ts";

export default plugin({
  name: "bridge",
  about: "Connects the container to a bridge of the host",
  config: bridgeConfig,
  args: ["MAC"],

  add(call) {
    const { config, host, netns, ifname, ipam, undo, log } = call;
    refuseContradictions(config, ipam !== undefined);
    const mac = wantedMac(config, call.args);
    const bridge = ensureBridge(host, config, log);
    const port = createCable(host, { bridge, netns, ifname, mac }, config);
    undo.defer(() => void removeIfPresent(host, port));
    setUpPort(host, port, config);
    if (config.macspoofchk) guardMac(call, port);
    const result = ipam ? attachByAddress(call, bridge, ipam.add()) : attachByFrames(call);
    const outer = config.disableContainerInterface ? link.get(host.route, port) : awaitOperational(host, port);
    return { ...result, interfaces: describeInterfaces(call, bridge, outer) };
  },

  del(call) {
    const { config, host, netns, ifname, ipam, owner, prevResult } = call;
    const addresses = prevResult && ipsOf(prevResult, ifname).map((each) => each.address);
    // Rules before links: both make the kernel wait, and sent in this order it waits once.
    cleanUp(
      () => config.ipMasq && removeMasquerade(host.nft, owner, addresses),
      () => config.macspoofchk && removeSpoofCheck(host.nft, owner),
      () => removeIfPresent(netns, ifname) || removePort(call),
      () => ipam?.del(),
    );
  },

  check(call) {
    const { config, host, ipam, owner } = call;
    ipam?.check();
    const result = requirePrevResult(call, "bridge");
    const bridge = checkBridge(call, result);
    const inner = expectConfigured(call.netns, call.ifname, result);
    containerInterface(result, call.ifname, call.sandbox);
    checkPort(call, bridge, inner);
    if (!ipam) return;
    if (config.isGateway || config.isDefaultGateway) checkGateways(call, bridge, result);
    if (config.ipMasq) checkMasquerade(host.nft, owner, ipsOf(result, call.ifname).map((each) => each.address));
  },

  gc({ config, request, host, ipam, valid }) {
    cleanUp(
      () => config.ipMasq && collectMasquerade(host.nft, request.name, valid),
      () => config.macspoofchk && collectSpoofChecks(host.nft, request.name, valid),
      () => ipam?.gc(),
    );
  },

  status({ config, host, ipam }) {
    const found = link.find(host.route, config.bridge);
    if (found && !bridgeKind.of(found)) {
      throw new CniError(
        Code.NotAvailable,
        `Cannot attach containers: "${config.bridge}" is an interface of another kind than bridge`,
      );
    }
    if (config.ipMasq || config.macspoofchk) requireRuleset(host.nft);
    ipam?.status();
  },
});

/** Only frames that come from the container's own address may enter the bridge. */
function guardMac({ host, netns, ifname, owner, undo }: AddCall<BridgeConfig>, port: string): void {
  undo.defer(() => removeSpoofCheck(host.nft, owner));
  addSpoofCheck(host.nft, owner, port, link.get(netns.route, ifname).mac!);
}

/** Without IPAM the container speaks whatever it likes; its end is set up and nothing more. */
function attachByFrames({ config, netns, ifname, request }: AddCall<BridgeConfig>): Result {
  if (!config.disableContainerInterface) link.setUp(netns.route, link.get(netns.route, ifname).index);
  return request.dns ? { dns: request.dns } : {};
}

function attachByAddress(call: AddCall<BridgeConfig>, bridge: link.Link, assigned: Result): Result {
  const { config, request, host, netns, ifname, owner, undo, log } = call;
  const result = complete(call, assigned);
  const ips = result.ips!;
  if (config.isGateway || config.isDefaultGateway) {
    const device = needsVlanGateway(config) ? ensureVlanGateway(host, bridge, config) : bridge;
    setUpGateways(host, device, ips, config.forceAddress);
  }
  if (config.ipMasq) {
    undo.defer(() => removeMasquerade(host.nft, owner, ips.map((each) => each.address)));
    addMasquerade(host.nft, owner, ips.map((each) => each.address));
  }
  const interfaces = [{ name: "" }, { name: "" }, { name: ifname }];
  configure(netns, ifname, { ...result, interfaces }, { withoutDad: !config.enabledad, log });
  return request.dns && Object.keys(request.dns).length > 0 ? { ...result, dns: request.dns } : result;
}

/** What IPAM decided, with the container's interface, gateways and default routes filled in. */
function complete({ config, ipam }: AddCall<BridgeConfig>, assigned: Result): Result {
  if (!assigned.ips?.length) {
    throw new CniError(Code.Internal, `Cannot attach the container: IPAM plugin "${ipam!.type}" returned no address`);
  }
  const isGateway = config.isGateway || config.isDefaultGateway;
  const ips = (isGateway ? withGateways(assigned.ips) : assigned.ips).map((ip) => ({ ...ip, interface: CONTAINER }));
  return config.isDefaultGateway ? withDefaultRoutes({ ...assigned, ips }) : { ...assigned, ips };
}

/** Where the container's interface stands in the result: behind the bridge and its port. */
const CONTAINER = 2;

function describeInterfaces(call: AddCall<BridgeConfig>, bridge: link.Link, outer: link.Link): Interface[] {
  const { config, host, netns, ifname, sandbox } = call;
  const inner = link.get(netns.route, ifname);
  const onHost = (device: link.Link): Interface => ({ name: device.name!, ...device.mac ? { mac: device.mac } : {} });
  return [
    onHost(link.get(host.route, bridge.index)),
    onHost(outer),
    { ...onHost(inner), sandbox },
    ...call.ipam && needsVlanGateway(config) ? [onHost(link.get(host.route, vlanGatewayName(config)))] : [],
  ];
}

/** The host's end of the cable, for when the namespace with the container's end cannot be entered. */
function removePort({ host, prevResult, config }: DelCall<BridgeConfig>): void {
  for (const { name, mac, sandbox } of prevResult?.interfaces ?? []) {
    if (sandbox || name === config.bridge || name === vlanGatewayName(config)) continue;
    const found = link.find(host.route, name);
    // The name alone might be another container's by now.
    if (found && veth.of(found) && found.mac === mac) removeIfPresent(host, name);
  }
}

function checkBridge({ config, host, request }: CheckCall<BridgeConfig>, result: Result): link.Link {
  const found = link.find(host.route, config.bridge);
  if (!found || !bridgeKind.of(found)) {
    throw new CniError(Code.Internal, `Check failed: network "${request.name}" has no bridge "${config.bridge}"`);
  }
  const reported = result.interfaces?.find(({ name, sandbox }) => name === config.bridge && !sandbox);
  expectEqual(`bridge "${config.bridge}" in prevResult`, reported?.name, config.bridge);
  if (reported?.mac) {
    expectEqual(`MAC address of "${config.bridge}"`, found.mac as string | undefined, reported.mac.toLowerCase());
  }
  if (config.promiscMode) expectEqual(`promiscuous mode of "${config.bridge}"`, (found.promiscuity ?? 0) > 0, true);
  expectEqual(`administrative state of "${config.bridge}"`, link.isUp(found) ? "up" : "down", "up");
  return found;
}

/** The other end of the container's cable must be a port of the bridge, as the configuration wants it. */
function checkPort(
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

function checkGateways({ config, host, ifname }: CheckCall<BridgeConfig>, bridge: link.Link, result: Result): void {
  const device = needsVlanGateway(config) ? link.get(host.route, vlanGatewayName(config)) : bridge;
  const present = address.list(host.route, { index: device.index }).map((each) => each.address);
  for (const wanted of gatewayAddresses(ipsOf(result, ifname))) {
    if (!present.includes(wanted)) {
      throw new CniError(Code.Internal, `Check failed: "${device.name}" lacks gateway address ${wanted}`);
    }
  }
}
