/**
 * The `firewall` plugin: lets containers send through the firewalls of this host, and decides who may call them.
 *
 * Nothing has to be opened in tables of our own. What counts is that no other drops: where a base chain of somebody else's does, it is told
 * there (plugins/firewall/forward_accept.ts), and firewalld is told over D-Bus. Who may call a container is an element of the ruleset.
 *
 * @module
 */
import { type Ip, ipOf } from "../../ffi/address.ts";
import * as link from "../../ffi/route/link.ts";
import type { Netns } from "../../ffi/netns.ts";
import { type FirewallConfig, firewallKeys, parseFirewall } from "./config.ts";
import { findFirewalld, type Firewalld } from "./firewalld.ts";
import {
  addIngress,
  checkIngress,
  listPassengers,
  type Removed,
  removeIngress,
  restoreIngress,
  type Restriction,
  unowned,
} from "./ingress_policy.ts";
import { checkPassage, closePassage, type Leaving, openPassage, type Passenger } from "./forward_accept.ts";
import { bridgeRuleset } from "../lib/ruleset/bridge_table.ts";
import { requireTable } from "../lib/ruleset/table.ts";
import { deadOf } from "../lib/ruleset/elements.ts";
import { networkPrefix, oneOf, type Owner, ownerText, remedyFor, sameOwner } from "../lib/protocol/owner.ts";
import { type AttachmentCall, type Call, cleanUp, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import { listReferenceMasquerade } from "../lib/compat/masquerade.ts";
import { requireRuleset } from "../lib/ruleset/inet_table.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { type JsonObject, jsonObject } from "../../spec/schema.ts";

export default plugin({
  name: "firewall",
  about: "Lets the container through firewalls, keeps others out",
  // Read by each command in its own way: what makes ADD fail must not make DEL fail as well.
  config: { ...jsonObject, inner: firewallKeys },

  add(call) {
    const wanted = read(call);
    if (wanted.addresses.length === 0) return wanted.result;
    using firewalld = firewalldFor(wanted.config);
    call.undo.defer(() => leave(call, undefined));
    addIngress(call.host.nft, passengerOf(call, wanted), wanted.restriction);
    letThrough(call, wanted, firewalld);
    return wanted.result;
  },

  del(call) {
    leave(call, call.prevResult);
  },

  delMany(calls) {
    const { request } = calls[0];
    const leaving = { commented: networkPrefix(request.name), mine: oneOf(calls.map(({ owner }) => owner)) };
    const recorded = leaveAll(calls[0], leaving);
    const isDone = oneOf(recorded.map(({ owner }) => owner));
    return calls.filter(({ owner }) => !isDone(owner));
  },

  check(call) {
    const { host, owner } = call;
    const { config, addresses, restriction } = read(call);
    const passenger = { owner, addresses };
    checkIngress(host.nft, passenger, restriction);
    checkPassage(host.nft, passenger, config.iptablesAdminChainName);
    using firewalld = firewalldFor(config);
    const lost = firewalld && addresses.find((address) => !firewalld.has(config.firewalldZone, address));
    if (!lost) return;
    throw new CniError(
      Code.Internal,
      `Check failed: firewalld does not have ${lost} in zone "${config.firewalldZone}"`,
      { details: remedyFor(owner) },
    );
  },

  restore(call) {
    const wanted = read(call);
    if (wanted.addresses.length === 0) return [];
    using firewalld = firewalldFor(wanted.config);
    return [
      ...restoreIngress(call.host.nft, passengerOf(call, wanted), wanted.restriction),
      ...letThrough(call, wanted, firewalld),
    ];
  },

  gc(call) {
    const { request, valid } = call;
    leaveAll(call, { commented: networkPrefix(request.name), mine: deadOf(request.name, valid) });
  },

  status({ config: raw, request, host }) {
    const config = parseFirewall(raw, request.name);
    requireRuleset(host.nft);
    if (config.ingressPolicy === "isolated") requireTable(host.nft, bridgeRuleset);
    using _ = firewalldFor(config, Code.NotAvailable);
  },
});

type Attached = AttachmentCall<JsonObject>;

interface Wanted {
  readonly config: FirewallConfig;
  readonly result: Result;
  readonly addresses: readonly Ip[];
  readonly restriction?: Restriction;
}

function read(call: Attached): Wanted {
  const config = parseFirewall(call.config, call.request.name);
  const result = requirePrevResult(call, "firewall");
  const { ingressPolicy: policy } = config;
  const restriction = policy === "open" ? {} : { restriction: { policy, ...hostLinks(call.host, result, policy) } };
  return { config, result, addresses: addressesOf(result), ...restriction };
}

const passengerOf = ({ owner }: Attached, { addresses }: Wanted): Passenger => ({ owner, addresses });

/** Has others let the container through. @returns by whom it was not yet, in words */
function letThrough(call: Attached, wanted: Wanted, firewalld: Firewalld | undefined): string[] {
  const { host: { nft }, log } = call;
  const { addresses, config: { firewalldZone: zone, iptablesAdminChainName: admin } } = wanted;
  const added = addresses.filter((address) => firewalld?.add(zone, address));
  return [
    ...added.map((address) => `${address} in zone "${zone}" of firewalld`),
    ...openPassage(nft, passengerOf(call, wanted), admin, () => listPassengers(nft), log),
  ];
}

/** All addresses of a result, each once, whatever interface they belong to. */
function addressesOf({ ips = [] }: Result): Ip[] {
  return [...new Set(ips.map(({ address }) => ipOf(address)))];
}

function linksOf({ interfaces = [] }: Result): string[] {
  return interfaces.filter(({ sandbox }) => !sandbox).map(({ name }) => name);
}

/** The bridge that a result names, wherever in it, and the links that are its ports. */
function hostLinks(host: Netns, result: Result, policy: string): Omit<Restriction, "policy"> {
  const names = linksOf(result);
  const links = names.flatMap((name) => link.find(host.route, name) ?? []);
  const bridge = links.find(({ info }) => info?.kind === "bridge");
  // Of a plugin that gives each container a link of its own, that link is what others come from.
  const from = bridge?.name ?? names[0];
  if (from !== undefined) {
    return { bridge: from, ports: links.filter(({ master }) => master !== undefined).map(({ name = "" }) => name) };
  }
  throw new CniError(
    Code.InvalidConfig,
    `Cannot use ingressPolicy "${policy}": prevResult names no interface of the host`,
    {
      details: `"firewall" works on what an earlier plugin of the list set up; put it behind one such as "bridge"`,
    },
  );
}

/** The firewalld to tell, if there is one to be told. @throws {CniError} if it must run and does not */
function firewalldFor({ backend }: FirewallConfig, code: number = Code.TryAgainLater): Firewalld | undefined {
  if (backend !== undefined && backend !== "firewalld") return undefined;
  const firewalld = findFirewalld();
  if (!firewalld && backend) throw new CniError(code, `Cannot use backend "firewalld": firewalld does not run`);
  return firewalld;
}

/** The zone to take addresses out of, if firewalld was told; also where the rest of the configuration cannot be used. */
function zoneOf({ config, request }: Pick<Attached, "config" | "request">): string | undefined {
  try {
    const { backend, firewalldZone } = parseFirewall(config, request.name);
    return backend === undefined || backend === "firewalld" ? firewalldZone : undefined;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return zoneOf({ config: {}, request });
  }
}

/** Takes back what ADD did for all that have a record. @returns what was recorded */
function leaveAll({ config, request, host }: Call<JsonObject>, leaving: Leaving): Removed[] {
  const recorded = removeIngress(host.nft, leaving);
  cleanUp(
    () => closePassage(host.nft, leaving),
    () => leaveZone(zoneOf({ config, request }), recorded.map(({ address }) => address)),
  );
  return recorded;
}

/** Takes back all that ADD did; also of addresses that the result names, as far as nobody else has them. */
function leave({ config, request, host, owner }: Attached, result: Result | undefined): void {
  const named = result ? addressesOf(result) : [];
  const leaving = { commented: ownerText(owner), mine: (other: Owner) => sameOwner(other, owner) };
  const recorded = removeIngress(host.nft, leaving, { addresses: named, links: result ? linksOf(result) : [] })
    .map(({ address }) => address);
  // What has no record was attached by the reference plugin, whose rules name no owner; those of its masquerading do.
  const addresses = recorded.length > 0
    ? []
    : unowned(host.nft, named.length > 0 ? named : listReferenceMasquerade(host.nft, owner));
  cleanUp(
    () => closePassage(host.nft, { ...leaving, addresses }),
    () => leaveZone(zoneOf({ config, request }), [...recorded, ...addresses]),
  );
}

function leaveZone(zone: string | undefined, addresses: readonly Ip[]): void {
  if (zone === undefined || addresses.length === 0) return;
  using firewalld = findFirewalld();
  for (const address of addresses) firewalld?.remove(zone, address);
}
