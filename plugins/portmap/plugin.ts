/**
 * The `portmap` plugin: ports of the host that lead to ports of the container.
 *
 * Every published port is an element of a map in nf_tables (plugins/lib/ruleset/inet_table.ts): what a packet costs, and what an ADD costs, does not
 * depend on how many there are. The key of the map is protocol and port (and address, if one was asked for), so two containers cannot have
 * the same; that they have none in common is seen to in portmap/overlaps.ts.
 *
 * @module
 */
import { type Cidr, familyOf, ipOf } from "../../ffi/address.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import * as link from "../../ffi/route/link.ts";
import { outgoingLink } from "../../ffi/route/route.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import type { Netns } from "../../ffi/netns.ts";
import { requireSysctl } from "../lib/links/sysctls.ts";
import { checkElements, ensureElements, removeElements, restoreElements } from "../lib/ruleset/elements.ts";
import { ElementInUseError } from "../lib/ruleset/wanted_elements.ts";
import { isOneOfOwners, isStaleIn, type Owner, ownerPrefix, sameOwner } from "../lib/protocol/owner.ts";
import { type AttachmentCall, cleanUp, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import { inetTable, requireInetTable } from "../lib/ruleset/inet_table.ts";
import {
  describeHostPort,
  hostAddressOf,
  parsePortmapConfig,
  type PortmapConfig,
  portmapConfigSchema,
  type PortMapping,
} from "./config.ts";
import { mappingsForFamily, parsePortElement, publishedElements, selectAllPublished } from "./elements.ts";
import { flushStaleFlows, flushWithdrawnFlows } from "./conntrack_flush.ts";
import { refuseListeners } from "./listeners.ts";
import { HOST_PORT_TAKEN, hostPortTakenError, refusePortConflicts } from "./port_conflicts.ts";
import { collectReferencePorts, ownersWithReferencePorts, removeReferencePorts } from "./reference_port_rules.ts";
import { type DelScope, delScopeOf } from "./del_scope.ts";
import { promotionsOf } from "./failover.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { type JsonObject, jsonObject } from "../../spec/schema.ts";

export default plugin({
  name: "portmap",
  about: "Publishes ports of the container on the host",
  // Read by each command in its own way: what makes ADD fail must not make DEL fail as well.
  config: { ...jsonObject, inner: portmapConfigSchema },

  add(call) {
    const { host, owner, undo, log } = call;
    const config = parseConfig(call);
    const result = requirePrevResult(call, "portmap");
    if (config.mappings.length === 0) return result;
    refuseIpv6Loopback(config.mappings);
    if (config.backend === "iptables") {
      log('backend "iptables": the ports are published by nf_tables rules of this program all the same');
    }
    const addresses = containerAddresses(result, call.ifname);
    logUnreachable(config.mappings, addresses, log);
    // Whose rules are put back has had the ports all the time; so only here.
    publishPorts(call, config, addresses, ensureElements, once(() => checkListeners(call, config, addresses)));
    undo.defer(() => removePublishedPorts(host, ownedBy(call), delScopeOf(owner, tryParseConfig(call), addresses)));
    for (const address of addresses) enableRouteLocalnet(host, config, address);
    flushEarlierFlows(call, config, addresses);
    return result;
  },

  del(call) {
    const { host, owner, prevResult, ifname, log } = call;
    const addresses = prevResult ? containerAddresses(prevResult, ifname) : [];
    cleanUp(
      () => removePublishedPorts(host, ownedBy(call), delScopeOf(owner, tryParseConfig(call), addresses), log),
      () => removeReferencePorts(host.nft, owner, addresses.map(ipOf)),
    );
  },

  delBatch(calls) {
    const { host, pluginConfig, log } = calls[0];
    const owners = calls.map(({ owner }) => owner);
    removePublishedPorts(host, isOneOfOwners(owners), {
      selections: selectAllPublished(ownerPrefix(pluginConfig.name)),
    }, log);
    const withReferenceRules = ownersWithReferencePorts(host.nft, owners);
    return calls.filter(({ owner }) => withReferenceRules.has(owner));
  },

  check(call) {
    const config = parseConfig(call);
    const addresses = containerAddresses(requirePrevResult(call, "portmap"), call.ifname);
    checkElements(call.host.nft, inetTable, call.owner, publishedElements(config, addresses));
  },

  restore(call) {
    const config = parseConfig(call);
    const addresses = containerAddresses(requirePrevResult(call, "portmap"), call.ifname);
    const restored = publishPorts(call, config, addresses, restoreElements);
    if (restored.length > 0) flushEarlierFlows(call, config, addresses);
    return restored;
  },

  gc({ host, pluginConfig, validAttachments, log }) {
    removePublishedPorts(host, isStaleIn(pluginConfig.name, validAttachments), {
      selections: selectAllPublished(ownerPrefix(pluginConfig.name)),
    }, log);
    collectReferencePorts(host.nft, pluginConfig.name, validAttachments);
  },

  status(call) {
    parseConfig(call);
    requireInetTable(call.host.nft);
  },
});

type ConfiguredCall = Pick<AttachmentCall<JsonObject>, "config" | "pluginConfig">;

function parseConfig({ config, pluginConfig }: ConfiguredCall): PortmapConfig {
  try {
    return parsePortmapConfig(config);
  } catch (error) {
    throw error instanceof ConfigError ? error.withLocation({ network: pluginConfig.name }) : error;
  }
}

/** The first address of each family that is the container's, or that no interface of another is named for. */
function containerAddresses({ ips = [], interfaces = [] }: Result, ifname: string): Cidr[] {
  const containerIps = ips.filter((ip) => {
    const device = ip.interface === undefined ? undefined : interfaces[ip.interface];
    return !device || (device.name === ifname && device.sandbox);
  });
  return ([4, 6] as const).flatMap((family) =>
    containerIps.find(({ address }) => familyOf(address) === family)?.address ?? []
  );
}

type PortmapCall = AttachmentCall<JsonObject>;

/** Does not stand in the way of those who want to publish ports that are in use. */
function unlessPortInUseAllowed({ log }: PortmapCall, { hostPortInUse }: PortmapConfig, check: () => void): void {
  if (hostPortInUse === "ignore") return;
  try {
    check();
  } catch (error) {
    if (hostPortInUse !== "warn" || !(error instanceof CniError && error.code === HOST_PORT_TAKEN)) throw error;
    log(`hostPortInUse is "warn", going on: ${error.message}`);
  }
}

function checkListeners({ host, owner, log }: PortmapCall, { mappings }: PortmapConfig, addresses: readonly Cidr[]) {
  attemptOrLog(
    log,
    "see whether programs listen on the host ports",
    () => refuseListeners(host.diag, owner.containerId, mappings, addresses),
  );
}

/** Calls it once, however often it is called itself. */
function once(call: () => void): () => void {
  let isCalled = false;
  return () => {
    if (isCalled) return;
    isCalled = true;
    call();
  };
}

/**
 * @param applyElements how the elements are made
 * @param checkHostPrograms sees whether others than containers are in the way
 * @returns what was not published yet, in words
 */
function publishPorts(
  call: PortmapCall,
  config: PortmapConfig,
  addresses: readonly Cidr[],
  applyElements: typeof ensureElements,
  checkHostPrograms = () => {},
): string[] {
  const { host, owner } = call;
  const checkConflicts = () => {
    unlessPortInUseAllowed(call, config, () => refusePortConflicts(host.nft, owner, config.mappings, addresses));
    unlessPortInUseAllowed(call, config, checkHostPrograms);
  };
  try {
    return applyElements(host.nft, inetTable, owner, publishedElements(config, addresses), checkConflicts);
  } catch (error) {
    throw error instanceof ElementInUseError
      ? hostPortTakenError(error.element.title, error.currentOwner, "it", error)
      : error;
  }
}

/** Conversations with former holders of the ports, or that began while nobody held them. */
function flushEarlierFlows({ host, log }: PortmapCall, { mappings }: PortmapConfig, addresses: readonly Cidr[]): void {
  attemptOrLog(
    log,
    "forget conversations with former holders of the ports",
    () => flushStaleFlows(host, mappings, addresses),
  );
}

const ownedBy = ({ owner }: Pick<PortmapCall, "owner">) => (candidate: Owner): boolean => sameOwner(candidate, owner);

/** The configuration, if it can be used. */
function tryParseConfig(call: ConfiguredCall): PortmapConfig | undefined {
  try {
    return parseConfig(call);
  } catch (error) {
    if (error instanceof ConfigError) return undefined;
    throw error;
  }
}

function removePublishedPorts(
  host: Netns,
  isOwned: (owner: Owner) => boolean,
  { selections, moreSelections }: DelScope,
  log?: (message: string) => void,
): void {
  const removed = removeElements(host.nft, inetTable, selections, isOwned, promotionsOf, moreSelections);
  const ports = removed.flatMap((element) => parsePortElement(element) ?? []);
  attemptOrLog(log, "forget conversations with former containers", () => flushWithdrawnFlows(host, ports));
}

/**
 * Lets the container's link carry packets that come from 127.0.0.1 before they are translated; without it a port published on the host's
 * loopback addresses cannot be reached over IPv4.
 */
function enableRouteLocalnet(host: Netns, { snat, mappings }: PortmapConfig, address: Cidr): void {
  if (!snat || familyOf(address) !== 4 || !mappingsForFamily(mappings, address).some(reachesLoopback)) return;
  const index = findOutgoingInterface(host, address);
  const name = index === undefined ? undefined : link.find(host.route, index)?.name;
  if (name !== undefined) host.run(() => requireSysctl(`net/ipv4/conf/${name}/route_localnet`, "1"));
}

function reachesLoopback(mapping: PortMapping): boolean {
  return hostAddressOf(mapping)?.startsWith("127.") ?? true;
}

/** By which link the container is reached; `undefined` if it is not. */
function findOutgoingInterface(host: Netns, address: Cidr): number | undefined {
  try {
    return outgoingLink(host.route, ipOf(address));
  } catch (error) {
    if (error instanceof NetlinkError && ["ENETUNREACH", "EHOSTUNREACH"].includes(error.code)) return undefined;
    throw error;
  }
}

/** @throws {CniError} for a port on ::1: whoever calls it would wait for an answer that never comes */
function refuseIpv6Loopback(mappings: readonly PortMapping[]): void {
  const mapping = mappings.find(({ hostIP }) => hostIP === "::1");
  if (!mapping) return;
  throw new CniError(
    Code.InvalidConfig,
    `Cannot publish ${describeHostPort(mapping)}: the kernel delivers no answer to ::1 from another interface`,
    { details: "publish it on 127.0.0.1, on another IPv6 address of the host, or on all addresses" },
  );
}

/** Says what is asked for and cannot be: such a mapping is passed over, as a runtime may offer all of its addresses. */
function logUnreachable(
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
  log: (text: string) => void,
): void {
  for (const mapping of mappings) {
    const isReachable = addresses.some((address) => mappingsForFamily([mapping], address).length > 0);
    if (!isReachable) log(`Cannot publish ${describeHostPort(mapping)}: the container has no address of that family`);
  }
}

/** What is better done but not needed: a failure is said and no more. */
function attemptOrLog(log: ((message: string) => void) | undefined, purpose: string, call: () => void): void {
  try {
    call();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    log?.(`Cannot ${purpose}, going on without: ${error.message}`);
  }
}
