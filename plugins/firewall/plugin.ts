/**
 * The `firewall` plugin: lets containers through the host's firewalls, and decides who may call them.
 *
 * Ruleset elements say whose packets are marked and who may call a container. iptables and other dropping chains accept
 * the mark (forward_accept.ts). firewalld is configured over D-Bus.
 */
import { missingRulesOf } from "../lib/protocol/check_failed.ts";
import type { Ip } from "../../ffi/address.ts";
import { type FirewallConfig, firewallConfigSchema } from "./config.ts";
import { findFirewalld, type Firewalld } from "./firewalld.ts";
import {
  addIngressElements,
  checkIngressElements,
  type Endpoint,
  isUnused,
  type RemovedAddress,
  removeIngressElements,
  restoreIngressElements,
  unownedAddresses,
} from "./ingress_policy.ts";
import {
  addForwardAccept,
  addressFamilies,
  checkForwardAccept,
  hasIptablesRules,
  IPTABLES_RULES_REFUSED,
  takesIptablesRules,
} from "./forward_accept.ts";
import { type RemovalFilter, removeForwardAccept } from "./forward_removal.ts";
import { describeLegacyFilters } from "../lib/ruleset/iptables_legacy.ts";
import type { PluginModel } from "../lib/model/plugin_model.ts";
import { bridgeTable } from "../lib/ruleset/bridge_table.ts";
import { lendOnce, readOnce } from "../lib/protocol/shared_reads.ts";
import { requireTable } from "../lib/ruleset/table.ts";
import {
  isOneOfOwners,
  logRemoval,
  type Owner,
  ownerPrefix,
  ownerText,
  sameOwner,
  staleOwnerFilter,
} from "../lib/model/owner.ts";

import { plugin, type PluginCall, runAllSteps } from "../lib/protocol/plugin.ts";
import { listReferenceMasquerade } from "../lib/compat/masquerade.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { type JsonObject, jsonObject } from "../../spec/schema.ts";
import { type FirewallCall, type FirewallRequest, readRequest, reportedAddresses } from "./request.ts";

export default plugin({
  name: "firewall",
  about: "Lets the container through firewalls, and keeps others out",
  hasRulesOnly: true,
  // Each command parses it itself: an invalid value fails ADD, but must not fail DEL.
  config: { ...jsonObject, inner: firewallConfigSchema },
  model: (): PluginModel => require("./model.ts").default,

  needsPrevResult: () => true,

  add(call) {
    const request = readRequest(call);
    if (request.addresses.length === 0) return request.result;
    using firewalld = requiredFirewalld(call, request.config);
    call.undo.defer(() => removeAttachment(call, undefined));
    addIngressElements(call.host.nft, endpointOf(call, request), request.restriction, call);
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
    using firewalld = requiredFirewalld(call, config);
    const missing = firewalld && addresses.find((address) => !firewalld.has(config.firewalldZone, address));
    if (missing) throw missingRulesOf(owner, `firewalld does not have ${missing} in zone "${config.firewalldZone}"`);
    checkForwardAccept(host.nft, addresses, config.iptablesAdminChainName, owner);
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
      isOwned: staleOwnerFilter(pluginConfig.name, validAttachments, logRemoval(call.log, "rules")),
    });
  },

  status(call) {
    const { host, log } = call;
    const config = firewallConfigSchema.parse(call.config);
    requireTable(host.nft, inetTable);
    if (config.ingressPolicy === "isolated") requireTable(host.nft, bridgeTable);
    using _ = requiredFirewalld(call, config, Code.NotAvailable);
    for (const message of describeLegacyFilters(host, [4, 6])) log(message);
    if (!hasIptablesRules(host.nft) && !takesIptablesRules(host.nft)) log(IPTABLES_RULES_REFUSED);
  },
});

const endpointOf = ({ owner }: FirewallCall, { addresses }: FirewallRequest): Endpoint => ({ owner, addresses });

/** @returns what was added, as text */
function allowForwarding(call: FirewallCall, request: FirewallRequest, firewalld: Firewalld | undefined): string[] {
  const { host, log } = call;
  const { addresses, config: { firewalldZone: zone, iptablesAdminChainName: adminChain } } = request;
  const families = addressFamilies(addresses);
  readOnce(host.nft, `legacy filters ${families}`, () => describeLegacyFilters(host, families).forEach(log));
  // The kernel answers, also if firewalld does not.
  const accepted = addForwardAccept(host.nft, addresses, adminChain, log);
  const added = addresses.filter((address) => firewalld?.add(zone, address));
  return [...added.map((address) => `${address} in zone "${zone}" of firewalld`), ...accepted];
}

function requiredFirewalld(
  { env, host }: Pick<PluginCall<unknown>, "env" | "host">,
  { backend }: FirewallConfig,
  code: number = Code.TryAgainLater,
): Firewalld | undefined {
  if (backend !== undefined && backend !== "firewalld") return undefined;
  const firewalld = lendOnce(host.nft, "firewalld", () => findFirewalld(env));
  if (!firewalld && backend) throw new CniError(code, `Cannot use backend "firewalld": firewalld does not run`);
  return firewalld;
}

/** The zone that ADD used, if any. An invalid configuration yields the default. */
function configuredZone(config: JsonObject): string | undefined {
  try {
    const { backend, firewalldZone } = firewallConfigSchema.parse(config);
    return backend === undefined || backend === "firewalld" ? firewalldZone : undefined;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return configuredZone({});
  }
}

function removeAttachments(
  { config, env, host }: PluginCall<JsonObject>,
  removal: RemovalFilter,
): RemovedAddress[] {
  const removed = removeIngressElements(host.nft, removal);
  runAllSteps(
    () => removeForwardAccept(host.nft, removal, () => isUnused(host.nft, removed)),
    () => removeFromZone(env, configuredZone(config), removed.map(({ address }) => address)),
  );
  return removed;
}

function removeAttachment({ config, env, host, owner }: FirewallCall, result: Result | undefined): void {
  const reported = result ? reportedAddresses(result) : [];
  const removal = { commented: ownerText(owner), isOwned: (candidate: Owner) => sameOwner(candidate, owner) };
  const removed = removeIngressElements(host.nft, owner);
  // No elements: the reference attached it. Only its masquerading rules name the owner.
  const addresses = removed.length > 0
    ? []
    : unownedAddresses(host.nft, reported.length > 0 ? reported : listReferenceMasquerade(host.nft, owner));
  runAllSteps(
    () => removeForwardAccept(host.nft, { ...removal, addresses }, () => isUnused(host.nft, removed)),
    () =>
      removeFromZone(env, configuredZone(config), [
        ...removed.map(({ address }) => address),
        ...addresses,
      ]),
  );
}

function removeFromZone(env: FirewallCall["env"], zone: string | undefined, addresses: readonly Ip[]): void {
  if (zone === undefined || addresses.length === 0) return;
  using firewalld = findFirewalld(env);
  for (const address of addresses) firewalld?.remove(zone, address);
}
