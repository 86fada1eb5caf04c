/**
 * The `bridge` plugin: a cable from the container to a bridge of the host.
 *
 * @module
 */
import { parseMac } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { bridge as bridgeKind } from "../../ffi/route/link_kinds.ts";
import * as link from "../../ffi/route/link.ts";
import {
  type BridgeConfig,
  bridgeConfig,
  needsVlanGateway,
  refuseContradictions,
  vlanGatewayName,
  wantedMac,
} from "./config.ts";
import { checkBridge, ensureBridge, ensureVlanGateway } from "./bridge_device.ts";
import { checkGateways, setUpGateways, withDefaultRoutes, withGateways } from "./gateway.ts";
import { checkPort, createPort, othersOf, setUpPort } from "./port.ts";
import { collectCables, getEnd, removeCable, removeCables } from "../lib/links/veth.ts";
import { removeRules } from "../lib/ruleset/nf_tables_support.ts";
import {
  awaitOperational,
  configure,
  containerInterface,
  expectConfigured,
  ipsOf,
  removeIfPresent,
} from "../lib/links/interface.ts";
import {
  addMasquerade,
  checkMasquerade,
  collectMasquerade,
  removeMasquerade,
  removeMasqueradeOfMany,
  removeOwnMasquerade,
  restoreMasquerade,
} from "../lib/ruleset/masquerade.ts";
import type { Owner } from "../lib/protocol/owner.ts";
import { type AddCall, cleanUp, plugin, requirePrevResult, type RestoreCall } from "../lib/protocol/plugin.ts";
import { requireRuleset } from "../lib/ruleset/inet_table.ts";
import {
  addSpoofCheck,
  collectSpoofChecks,
  hasSpoofChecks,
  removeSpoofCheck,
  removeSpoofCheckOfMany,
  requireSpoofCheck,
  restoreSpoofCheck,
} from "../lib/ruleset/spoof_check.ts";
import { CniError, Code } from "../../spec/error.ts";
import type { Interface, Result } from "../../spec/result.ts";

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
    const port = createPort(host, { bridge, netns, ifname, mac }, config);
    undo.defer(() => void removeIfPresent(host, port));
    setUpPort(host, port, config, call.owner);
    const inner = link.get(netns.route, ifname);
    if (config.macspoofchk) guardMac(call, port, inner);
    const result = ipam ? attachByAddress(call, bridge, inner, ipam.add()) : attachByFrames(call, inner);
    // Looked at again: the address of a bridge that is not ours may follow that of its ports.
    const [device, outer] = link.getAll(host.route, [bridge.index, port]) as [link.Link, link.Link];
    if (!config.disableContainerInterface) awaitOperational(host, outer);
    return { ...result, interfaces: describeInterfaces(call, device, outer, inner) };
  },

  del(call) {
    const { config, host, ifname, ipam, owner, prevResult } = call;
    const addresses = prevResult && ipsOf(prevResult, ifname).map((each) => each.address);
    // Rules before links: both make the kernel wait, and sent in this order it waits once.
    cleanUp(
      () =>
        removeRules(
          host,
          config.ipMasq,
          (nl) => (config.ipMasq ? removeMasquerade : removeOwnMasquerade)(nl, owner, addresses),
        ),
      () =>
        removeRules(host, config.macspoofchk, (nl) => {
          if (config.macspoofchk || hasSpoofChecks(nl)) removeSpoofCheck(nl, owner);
        }),
      () => removeCable(call, othersOf(config)),
      () => ipam?.del(),
    );
  },

  delMany(calls, ipam) {
    const { config, host, request: { name } } = calls[0];
    const owners = calls.map(({ owner }) => owner);
    const rest = new Set<Owner>();
    const left = (found: Iterable<Owner>) => {
      for (const owner of found) rest.add(owner);
    };
    cleanUp(
      () => config.ipMasq && left(removeMasqueradeOfMany(host.nft, name, owners)),
      () => config.macspoofchk && left(removeSpoofCheckOfMany(host.nft, name, owners)),
      () => removeCables(calls, othersOf(config)),
      () => left(ipam.del(calls).map(({ owner }) => owner)),
    );
    return calls.filter(({ owner }) => rest.has(owner));
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
    const ips = ipsOf(result, call.ifname);
    if (config.isGateway || config.isDefaultGateway) checkGateways(host, gatewayDevice(host, bridge, config), ips);
    if (config.ipMasq) checkMasquerade(host.nft, owner, ips.map((each) => each.address));
  },

  restore(call) {
    const { config, host, ipam, ifname, owner } = call;
    const result = requirePrevResult(call, "bridge");
    // Before 0.3.0 results named no interfaces; then all addresses are of this one.
    const ips = result.interfaces?.length ? ipsOf(result, ifname) : result.ips ?? [];
    return [
      ...config.ipMasq && ipam ? restoreMasquerade(host.nft, owner, ips.map((each) => each.address)) : [],
      ...config.macspoofchk ? restoreGuard(call) : [],
    ];
  },

  gc(call) {
    const { config, request, host, ipam, valid } = call;
    cleanUp(
      () => removeRules(host, config.ipMasq, (nl) => collectMasquerade(nl, request.name, valid)),
      () =>
        removeRules(host, config.macspoofchk, (nl) => {
          if (config.macspoofchk || hasSpoofChecks(nl)) collectSpoofChecks(host, request.name, valid);
        }),
      () => collectCables(call),
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
    if (config.ipMasq) requireRuleset(host.nft);
    if (config.macspoofchk) requireSpoofCheck(host.nft);
    ipam?.status();
  },
});

/** Only frames that come from the container's own address may enter the bridge. */
function guardMac({ host, owner, undo }: AddCall<BridgeConfig>, port: string, inner: link.Link): void {
  undo.defer(() => removeSpoofCheck(host.nft, owner));
  addSpoofCheck(host.nft, owner, port, inner.mac!);
}

/** The address is the one that the ADD told: what the container has by now, it may have chosen itself. */
function restoreGuard(call: RestoreCall<BridgeConfig>): string[] {
  const { host, netns, ifname, owner, prevResult } = call;
  const told = prevResult?.interfaces?.find(({ name, sandbox }) => name === ifname && sandbox)?.mac;
  const mac = told ? parseMac(told) : link.get(netns.route, ifname).mac!;
  return restoreSpoofCheck(host.nft, owner, getEnd(call, othersOf(call.config)).name!, mac);
}

/** Without IPAM the container speaks whatever it likes; its end is set up and nothing more. */
function attachByFrames({ config, netns, request }: AddCall<BridgeConfig>, inner: link.Link): Result {
  if (!config.disableContainerInterface) link.setUp(netns.route, inner.index);
  return request.dns ? { dns: request.dns } : {};
}

function attachByAddress(
  call: AddCall<BridgeConfig>,
  bridge: link.Link,
  inner: link.Link,
  assigned: Result,
): Result {
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
  configure(netns, inner, { ...result, interfaces }, { withoutDad: !config.enabledad, log });
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

function describeInterfaces(
  { config, host, ipam, sandbox }: AddCall<BridgeConfig>,
  bridge: link.Link,
  outer: link.Link,
  inner: link.Link,
): Interface[] {
  const onHost = (device: link.Link): Interface => ({ name: device.name!, ...device.mac ? { mac: device.mac } : {} });
  return [
    onHost(bridge),
    onHost(outer),
    { ...onHost(inner), sandbox },
    ...ipam && needsVlanGateway(config) ? [onHost(gatewayDevice(host, bridge, config))] : [],
  ];
}

/** The interface that has the gateway's address. */
function gatewayDevice(host: Netns, bridge: link.Link, config: BridgeConfig): link.Link {
  return needsVlanGateway(config) ? link.get(host.route, vlanGatewayName(config)) : bridge;
}
