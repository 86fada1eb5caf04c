/**
 * The `firewall` plugin: lets containers send through the firewalls of this host, and decides who may call them.
 *
 * Nothing has to be opened in tables of our own. What counts is that no other drops: where a base chain of somebody else's does, it is told
 * there (plugins/firewall/forward_accept.ts), and firewalld is told over D-Bus. Who may call a container is an element of the ruleset.
 *
 * @module
 */
import { checkFailedError } from "../lib/protocol/check_failed.ts";
import type { Ip } from "../../ffi/address.ts";
import { type FirewallConfig, firewallConfigSchema, parseFirewallConfig } from "./config.ts";
import { findFirewalld, type Firewalld } from "./firewalld.ts";
import {
  addIngressElements,
  checkIngressElements,
  listEndpoints,
  type RemovedAddress,
  removeIngressElements,
  restoreIngressElements,
  unownedAddresses,
} from "./ingress_policy.ts";
import {
  addForwardAccept,
  checkForwardAccept,
  type Endpoint,
  type RemovalFilter,
  removeForwardAccept,
} from "./forward_accept.ts";
import { bridgeTable } from "../lib/ruleset/bridge_table.ts";
import { requireTable } from "../lib/ruleset/table.ts";
import {
  isOneOfOwners,
  isStaleIn,
  type Owner,
  ownerPrefix,
  ownerRestoreHint,
  ownerText,
  sameOwner,
} from "../lib/protocol/owner.ts";
import { cleanUp, plugin, type PluginCall } from "../lib/protocol/plugin.ts";
import { listReferenceMasquerade } from "../lib/compat/masquerade.ts";
import { requireInetTable } from "../lib/ruleset/inet_table.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { type JsonObject, jsonObject } from "../../spec/schema.ts";
import {
  type FirewallCall,
  type FirewallRequest,
  hostInterfaceNames,
  readRequest,
  reportedAddresses,
} from "./request.ts";

export default plugin({
  name: "firewall",
  about: "Lets the container through firewalls, keeps others out",
  // Read by each command in its own way: what makes ADD fail must not make DEL fail as well.
  config: { ...jsonObject, inner: firewallConfigSchema },

  needsPrevResult: () => true,

  add(call) {
    const request = readRequest(call);
    if (request.addresses.length === 0) return request.result;
    using firewalld = requiredFirewalld(call, request.config);
    call.undo.defer(() => removeAttachment(call, undefined));
    addIngressElements(call.host.nft, endpointOf(call, request), request.restriction);
    allowForwarding(call, request, firewalld);
    return request.result;
  },

  del(call) {
    removeAttachment(call, call.prevResult);
  },

  delBatch(calls) {
    const { pluginConfig } = calls[0];
    const removal = {
      commented: ownerPrefix(pluginConfig.name),
      isOwned: isOneOfOwners(calls.map(({ owner }) => owner)),
    };
    const removed = removeAttachments(calls[0], removal);
    const isRemoved = isOneOfOwners(removed.map(({ owner }) => owner));
    return calls.filter(({ owner }) => !isRemoved(owner));
  },

  check(call) {
    const { host, owner } = call;
    const { config, addresses, restriction } = readRequest(call);
    const endpoint = { owner, addresses };
    checkIngressElements(host.nft, endpoint, restriction);
    checkForwardAccept(host.nft, endpoint, config.iptablesAdminChainName);
    using firewalld = requiredFirewalld(call, config);
    const missing = firewalld && addresses.find((address) => !firewalld.has(config.firewalldZone, address));
    if (!missing) return;
    throw checkFailedError(
      `firewalld does not have ${missing} in zone "${config.firewalldZone}"`,
      ownerRestoreHint(owner),
    );
  },

  restore(call) {
    const request = readRequest(call);
    if (request.addresses.length === 0) return [];
    using firewalld = requiredFirewalld(call, request.config);
    return [
      ...restoreIngressElements(call.host.nft, endpointOf(call, request), request.restriction),
      ...allowForwarding(call, request, firewalld),
    ];
  },

  gc(call) {
    const { pluginConfig, validAttachments } = call;
    removeAttachments(call, {
      commented: ownerPrefix(pluginConfig.name),
      isOwned: isStaleIn(pluginConfig.name, validAttachments),
    });
  },

  status(call) {
    const { config: raw, pluginConfig, host } = call;
    const config = parseFirewallConfig(raw, pluginConfig.name);
    requireInetTable(host.nft);
    if (config.ingressPolicy === "isolated") requireTable(host.nft, bridgeTable);
    using _ = requiredFirewalld(call, config, Code.NotAvailable);
  },
});

const endpointOf = ({ owner }: FirewallCall, { addresses }: FirewallRequest): Endpoint => ({ owner, addresses });

/** Has others let the container through. @returns by whom it was not yet, in words */
function allowForwarding(call: FirewallCall, request: FirewallRequest, firewalld: Firewalld | undefined): string[] {
  const { host: { nft }, log } = call;
  const { addresses, config: { firewalldZone: zone, iptablesAdminChainName: adminChain } } = request;
  const added = addresses.filter((address) => firewalld?.add(zone, address));
  return [
    ...added.map((address) => `${address} in zone "${zone}" of firewalld`),
    ...addForwardAccept(nft, endpointOf(call, request), adminChain, () => listEndpoints(nft), log),
  ];
}

/** The firewalld to tell, if there is one to be told. @throws {CniError} if it must run and does not */
function requiredFirewalld(
  { env }: Pick<PluginCall<unknown>, "env">,
  { backend }: FirewallConfig,
  code: number = Code.TryAgainLater,
): Firewalld | undefined {
  if (backend !== undefined && backend !== "firewalld") return undefined;
  const firewalld = findFirewalld(env);
  if (!firewalld && backend) throw new CniError(code, `Cannot use backend "firewalld": firewalld does not run`);
  return firewalld;
}

/** The zone to take addresses out of, if firewalld was told; also where the rest of the configuration cannot be used. */
function configuredZone({ config, pluginConfig }: Pick<FirewallCall, "config" | "pluginConfig">): string | undefined {
  try {
    const { backend, firewalldZone } = parseFirewallConfig(config, pluginConfig.name);
    return backend === undefined || backend === "firewalld" ? firewalldZone : undefined;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return configuredZone({ config: {}, pluginConfig });
  }
}

/** Takes back what ADD did for all that have a record. @returns what was recorded */
function removeAttachments(
  { config, pluginConfig, env, host }: PluginCall<JsonObject>,
  removal: RemovalFilter,
): RemovedAddress[] {
  const removed = removeIngressElements(host.nft, removal);
  cleanUp(
    () => removeForwardAccept(host.nft, removal),
    () => removeFromZone(env, configuredZone({ config, pluginConfig }), removed.map(({ address }) => address)),
  );
  return removed;
}

/** Takes back all that ADD did; also of addresses that the result names, as far as nobody else has them. */
function removeAttachment({ config, pluginConfig, env, host, owner }: FirewallCall, result: Result | undefined): void {
  const reported = result ? reportedAddresses(result) : [];
  const removal = { commented: ownerText(owner), isOwned: (candidate: Owner) => sameOwner(candidate, owner) };
  const removed = removeIngressElements(host.nft, removal, {
    addresses: reported,
    links: result ? hostInterfaceNames(result) : [],
  })
    .map(({ address }) => address);
  // What has no record was attached by the reference plugin, whose rules name no owner; those of its masquerading do.
  const addresses = removed.length > 0
    ? []
    : unownedAddresses(host.nft, reported.length > 0 ? reported : listReferenceMasquerade(host.nft, owner));
  cleanUp(
    () => removeForwardAccept(host.nft, { ...removal, addresses }),
    () => removeFromZone(env, configuredZone({ config, pluginConfig }), [...removed, ...addresses]),
  );
}

function removeFromZone(env: FirewallCall["env"], zone: string | undefined, addresses: readonly Ip[]): void {
  if (zone === undefined || addresses.length === 0) return;
  using firewalld = findFirewalld(env);
  for (const address of addresses) firewalld?.remove(zone, address);
}
