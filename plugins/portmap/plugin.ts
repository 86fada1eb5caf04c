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
import {
  checkElements,
  deadOf,
  ensureElements,
  removeElements,
  restoreElements,
  TakenError,
} from "../lib/ruleset/elements.ts";
import { networkPrefix, oneOf, type Owner, sameOwner } from "../lib/protocol/owner.ts";
import { type AttachmentCall, cleanUp, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import { requireRuleset, ruleset } from "../lib/ruleset/inet_table.ts";
import {
  describeHostPort,
  parsePortmap,
  type PortmapConfig,
  portmapKeys,
  type PortMapping,
  publishedOn,
} from "./config.ts";
import { mappingsFor, publishedPort, selectionsOf, wantedElements } from "./elements.ts";
import { forgetFormer, forgetWithdrawn } from "./conntrack_flush.ts";
import { refuseListeners } from "./listeners.ts";
import { HOST_PORT_TAKEN, refuseOverlaps, takenError } from "./port_conflicts.ts";
import { collectReferencePorts, removeReferencePorts, withReferencePorts } from "./reference_port_rules.ts";
import { type Search, searchFor } from "./del_scope.ts";
import { heirsOf } from "./failover.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { type JsonObject, jsonObject } from "../../spec/schema.ts";

export default plugin({
  name: "portmap",
  about: "Publishes ports of the container on the host",
  // Read by each command in its own way: what makes ADD fail must not make DEL fail as well.
  config: { ...jsonObject, inner: portmapKeys },

  add(call) {
    const { host, owner, undo, log } = call;
    const config = parse(call);
    const result = requirePrevResult(call, "portmap");
    if (config.mappings.length === 0) return result;
    refuseLoopback(config.mappings);
    if (config.backend === "iptables") {
      log('backend "iptables": the ports are published by nf_tables rules of this program all the same');
    }
    const addresses = containerAddresses(result, call.ifname);
    reportUnreachable(config.mappings, addresses, log);
    // Whose rules are put back has had the ports all the time; so only here.
    publish(call, config, addresses, ensureElements, once(() => lookForListeners(call, config, addresses)));
    undo.defer(() => withdraw(host, isOwn(call), searchFor(owner, findConfig(call), addresses)));
    for (const address of addresses) openLoopback(host, config, address);
    forgetEarlier(call, config, addresses);
    return result;
  },

  del(call) {
    const { host, owner, prevResult, ifname, log } = call;
    const addresses = prevResult ? containerAddresses(prevResult, ifname) : [];
    cleanUp(
      () => withdraw(host, isOwn(call), searchFor(owner, findConfig(call), addresses), log),
      () => removeReferencePorts(host.nft, owner, addresses.map(ipOf)),
    );
  },

  delMany(calls) {
    const { host, request, log } = calls[0];
    const owners = calls.map(({ owner }) => owner);
    withdraw(host, oneOf(owners), { selections: selectionsOf(networkPrefix(request.name)) }, log);
    const rest = withReferencePorts(host.nft, owners);
    return calls.filter(({ owner }) => rest.has(owner));
  },

  check(call) {
    const config = parse(call);
    const addresses = containerAddresses(requirePrevResult(call, "portmap"), call.ifname);
    checkElements(call.host.nft, ruleset, call.owner, wantedElements(config, addresses));
  },

  restore(call) {
    const config = parse(call);
    const addresses = containerAddresses(requirePrevResult(call, "portmap"), call.ifname);
    const restored = publish(call, config, addresses, restoreElements);
    if (restored.length > 0) forgetEarlier(call, config, addresses);
    return restored;
  },

  gc({ host, request, valid, log }) {
    withdraw(host, deadOf(request.name, valid), { selections: selectionsOf(networkPrefix(request.name)) }, log);
    collectReferencePorts(host.nft, request.name, valid);
  },

  status(call) {
    parse(call);
    requireRuleset(call.host.nft);
  },
});

type Configured = Pick<AttachmentCall<JsonObject>, "config" | "request">;

function parse({ config, request }: Configured): PortmapConfig {
  try {
    return parsePortmap(config);
  } catch (error) {
    throw error instanceof ConfigError ? error.at({ network: request.name }) : error;
  }
}

/** The first address of each family that is the container's, or that no interface of another is named for. */
function containerAddresses({ ips = [], interfaces = [] }: Result, ifname: string): Cidr[] {
  const own = ips.filter((ip) => {
    const device = ip.interface === undefined ? undefined : interfaces[ip.interface];
    return !device || (device.name === ifname && device.sandbox);
  });
  return ([4, 6] as const).flatMap((family) => own.find(({ address }) => familyOf(address) === family)?.address ?? []);
}

type Attached = AttachmentCall<JsonObject>;

/** Does not stand in the way of those who want to publish ports that are in use. */
function unlessAllowed({ log }: Attached, { hostPortInUse }: PortmapConfig, look: () => void): void {
  if (hostPortInUse === "ignore") return;
  try {
    look();
  } catch (error) {
    if (hostPortInUse !== "warn" || !(error instanceof CniError && error.code === HOST_PORT_TAKEN)) throw error;
    log(`hostPortInUse is "warn", going on: ${error.message}`);
  }
}

function lookForListeners({ host, owner, log }: Attached, { mappings }: PortmapConfig, addresses: readonly Cidr[]) {
  attempt(
    log,
    "see whether programs listen on the host ports",
    () => refuseListeners(host.diag, owner.containerId, mappings, addresses),
  );
}

/** Calls it once, however often it is called itself. */
function once(call: () => void): () => void {
  let isDone = false;
  return () => {
    if (isDone) return;
    isDone = true;
    call();
  };
}

/**
 * @param ensure how the elements are made
 * @param lookBesides sees whether others than containers are in the way
 * @returns what was not published yet, in words
 */
function publish(
  call: Attached,
  config: PortmapConfig,
  addresses: readonly Cidr[],
  ensure: typeof ensureElements,
  lookBesides = () => {},
): string[] {
  const { host, owner } = call;
  const look = () => {
    unlessAllowed(call, config, () => refuseOverlaps(host.nft, owner, config.mappings, addresses));
    unlessAllowed(call, config, lookBesides);
  };
  try {
    return ensure(host.nft, ruleset, owner, wantedElements(config, addresses), look);
  } catch (error) {
    throw error instanceof TakenError ? takenError(error.element.title, error.holder, "it", error) : error;
  }
}

/** Conversations with former holders of the ports, or that began while nobody held them. */
function forgetEarlier({ host, log }: Attached, { mappings }: PortmapConfig, addresses: readonly Cidr[]): void {
  attempt(
    log,
    "forget conversations with former holders of the ports",
    () => forgetFormer(host, mappings, addresses),
  );
}

const isOwn = ({ owner }: Pick<Attached, "owner">) => (other: Owner): boolean => sameOwner(other, owner);

/** The configuration, if it can be used. */
function findConfig(call: Configured): PortmapConfig | undefined {
  try {
    return parse(call);
  } catch (error) {
    if (error instanceof ConfigError) return undefined;
    throw error;
  }
}

function withdraw(
  host: Netns,
  mine: (owner: Owner) => boolean,
  { selections, more }: Search,
  log?: (message: string) => void,
): void {
  const removed = removeElements(host.nft, ruleset, selections, mine, heirsOf, more);
  const ports = removed.flatMap((each) => publishedPort(each) ?? []);
  attempt(log, "forget conversations with former containers", () => forgetWithdrawn(host, ports));
}

/**
 * Lets the container's link carry packets that come from 127.0.0.1 before they are translated; without it a port published on the host's
 * loopback addresses cannot be reached over IPv4.
 */
function openLoopback(host: Netns, { snat, mappings }: PortmapConfig, address: Cidr): void {
  if (!snat || familyOf(address) !== 4 || !mappingsFor(mappings, address).some(reachesLoopback)) return;
  const index = findOutgoingLink(host, address);
  const name = index === undefined ? undefined : link.find(host.route, index)?.name;
  if (name !== undefined) host.run(() => requireSysctl(`net/ipv4/conf/${name}/route_localnet`, "1"));
}

function reachesLoopback(mapping: PortMapping): boolean {
  return publishedOn(mapping)?.startsWith("127.") ?? true;
}

/** By which link the container is reached; `undefined` if it is not. */
function findOutgoingLink(host: Netns, address: Cidr): number | undefined {
  try {
    return outgoingLink(host.route, ipOf(address));
  } catch (error) {
    if (error instanceof NetlinkError && ["ENETUNREACH", "EHOSTUNREACH"].includes(error.code)) return undefined;
    throw error;
  }
}

/** @throws {CniError} for a port on ::1: whoever calls it would wait for an answer that never comes */
function refuseLoopback(mappings: readonly PortMapping[]): void {
  const mapping = mappings.find(({ hostIP }) => hostIP === "::1");
  if (!mapping) return;
  throw new CniError(
    Code.InvalidConfig,
    `Cannot publish ${describeHostPort(mapping)}: the kernel delivers no answer to ::1 from another interface`,
    { details: "publish it on 127.0.0.1, on another IPv6 address of the host, or on all addresses" },
  );
}

/** Says what is asked for and cannot be: such a mapping is passed over, as a runtime may offer all of its addresses. */
function reportUnreachable(
  mappings: readonly PortMapping[],
  addresses: readonly Cidr[],
  log: (text: string) => void,
): void {
  for (const mapping of mappings) {
    const possible = addresses.some((address) => mappingsFor([mapping], address).length > 0);
    if (!possible) log(`Cannot publish ${describeHostPort(mapping)}: the container has no address of that family`);
  }
}

/** What is better done but not needed: a failure is said and no more. */
function attempt(log: ((message: string) => void) | undefined, purpose: string, call: () => void): void {
  try {
    call();
  } catch (error) {
    if (!(error instanceof SystemError)) throw error;
    log?.(`Cannot ${purpose}, going on without: ${error.message}`);
  }
}
