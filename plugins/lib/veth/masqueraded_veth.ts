/** What plugins with a veth pair and optional masquerading share. @module */
import type { Cidr } from "../../../ffi/address.ts";
import { boolean, int, oneOf, optional, withDefault } from "../../../spec/schema.ts";
import type { IpConfig } from "../../../spec/result.ts";
import type { Owner } from "../model/owner.ts";
import {
  type AddCall,
  type BatchIpamDelegate,
  type CheckCall,
  collectionSteps,
  type DelBatch,
  type DelBatchCall,
  type DelCall,
  type GcCall,
  releaseSteps,
  requirePrevResult,
  type RestoreCall,
  runAllSteps,
} from "../protocol/plugin.ts";
import {
  addMasquerade,
  checkMasquerade,
  gcMasquerade,
  removeMasquerade,
  removeMasqueradeBatch,
  removeMasqueradeForDel,
  restoreMasquerade,
} from "./masquerade.ts";
import { removeRulesIfSupported } from "../ruleset/nf_tables_support.ts";
import { type AddressScope, lives, livesElsewhere } from "../links/address_claim.ts";
import { ipsOf } from "../links/configure_interface.ts";
import { gcVethPairs, removeVethPair, removeVethPairs } from "./veth_pair.ts";

export const vethKeys = () => ({
  ipMasq: withDefault(boolean, false),
  /** Accepted for compatibility; the rules are nf_tables' either way. */
  ipMasqBackend: optional(oneOf("iptables", "nftables")),
  /** Bytes, of both ends; 0: the kernel's default. */
  mtu: withDefault(int({ min: 0, max: 65535 }), 0),
});

interface MasqueradeConfig {
  readonly ipMasq: boolean;
}

const addressesOf = (ips: readonly IpConfig[]): Cidr[] => ips.map(({ address }) => address);

export function masqueradeAddresses(
  { config, host, owner, undo, log }: AddCall<MasqueradeConfig>,
  scope: AddressScope,
  ips: readonly IpConfig[],
): void {
  if (!config.ipMasq) return;
  const addresses = addressesOf(ips);
  undo.defer(() => removeMasquerade(host.nft, owner, addresses));
  addMasquerade(host.nft, owner, addresses, livesElsewhere(host, owner, scope), { log });
}

export function checkMasqueraded({ config, host, owner }: CheckCall<MasqueradeConfig>, ips: readonly IpConfig[]): void {
  if (config.ipMasq) checkMasquerade(host.nft, owner, addressesOf(ips), lives(host));
}

/** @param type the plugin's name @returns what was missing, as text */
export function restoreMasqueraded(call: RestoreCall<MasqueradeConfig>, type: string): string[] {
  const { config, host, ifname, owner } = call;
  const result = requirePrevResult(call, type);
  // Results before 0.3.0 name no interfaces: all addresses are this one's.
  const ips = result.interfaces?.length ? ipsOf(result, ifname) : result.ips ?? [];
  return config.ipMasq ? restoreMasquerade(host.nft, owner, addressesOf(ips), lives(host)) : [];
}

/** Removes rules before links: both make the kernel wait, and in this order it waits once. */
export function detachVeth(call: DelCall<MasqueradeConfig>, removeOtherRules = () => {}): void {
  const { ifname, ipam, prevResult } = call;
  runAllSteps(
    () => removeMasqueradeForDel(call, prevResult && addressesOf(ipsOf(prevResult, ifname))),
    removeOtherRules,
    ...releaseSteps(ipam, () => removeVethPair(call)),
  );
}

/** @returns the calls that still need a DEL */
export function detachVeths<C extends MasqueradeConfig>(
  calls: DelBatch<C>,
  ipam: BatchIpamDelegate,
  removeOtherRules: (owners: readonly Owner[]) => Iterable<Owner> = () => [],
): readonly DelBatchCall<C>[] {
  const { config, host, pluginConfig: { name } } = calls[0];
  const owners = calls.map(({ owner }) => owner);
  const unfinished = new Set<Owner>();
  const addUnfinished = (some: Iterable<Owner>) => {
    for (const owner of some) unfinished.add(owner);
  };
  runAllSteps(
    () => config.ipMasq && addUnfinished(removeMasqueradeBatch(host.nft, name, owners)),
    () => addUnfinished(removeOtherRules(owners)),
    () => removeVethPairs(calls),
    () => addUnfinished(ipam.del(calls).map(({ owner }) => owner)),
  );
  return calls.filter(({ owner }) => unfinished.has(owner));
}

export function gcVeths(call: GcCall<MasqueradeConfig>, gcOtherRules = () => {}): void {
  const { config, pluginConfig: { name }, host, ipam, validAttachments, log } = call;
  runAllSteps(
    () => removeRulesIfSupported(host, config.ipMasq, (nl) => gcMasquerade(nl, name, validAttachments, log)),
    gcOtherRules,
    ...collectionSteps(ipam, () => gcVethPairs(call)),
  );
}
