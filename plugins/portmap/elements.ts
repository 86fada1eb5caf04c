import { type Cidr, familyOf, type Ip, ipBytes, ipOf } from "../../ffi/address.ts";
import { concatenation, daddr, dnatMap, dport, gotoChain, l4proto, portField, rule } from "../../ffi/nft/statements.ts";
import type { Owner } from "../lib/model/owner.ts";

import type { WantedElement } from "../lib/ruleset/wanted_elements.ts";
import { ANY_ADDRESS_CHAIN } from "../lib/ruleset/inet_table.ts";
import { hairpinAllChain, hairpinChain } from "../lib/ruleset/inet_shared_chains.ts";
import type { SharedChain } from "../lib/ruleset/shared_chains.ts";
import type { Conditions } from "./conditions.ts";
import type { PortmapConfig } from "./config.ts";
import {
  describeHostPort,
  familiesOf,
  hostAddressOf,
  type PortMapping,
  reachesLoopback,
} from "../../spec/port_mapping.ts";
import { failoverKey, portMapKey } from "../lib/ruleset/port_elements.ts";

/** @param addresses the container's, at most one per family @param loopbackSource the source address for calls from 127.0.0.0/8 */
export function publishedElements(
  config: PortmapConfig,
  addresses: readonly Cidr[],
  loopbackSource?: Ip,
): WantedElement[] {
  return addresses.flatMap((address) => {
    const mappings = mappingsForFamily(config.mappings, address);
    if (mappings.length === 0) return [];
    const family = familyOf(address);
    const target = ipBytes(ipOf(address));
    const ports = mappings.flatMap((mapping) => portElements(mapping, family, target, config.conditions[family]));
    if (!config.snat) return ports;
    const loopback = loopbackSource && family === 4
      ? mappings.map((mapping) => loopbackElement(mapping, ipBytes(loopbackSource)))
      : [];
    return [...ports, ...loopback, hairpinElement(address, config.masqAll)];
  });
}

export function mappingsForFamily(mappings: readonly PortMapping[], address: Cidr): PortMapping[] {
  const family = familyOf(address);
  return mappings.filter((candidate) => familiesOf(candidate).includes(family));
}

function portElements(
  mapping: PortMapping,
  family: 4 | 6,
  target: Uint8Array,
  conditions: Conditions | undefined,
): WantedElement[] {
  const title = describeHostPort(mapping);
  const { prefix, key, port } = portMapKey(mapping);
  const value = concatenation(target, portField(mapping.containerPort));
  const element = { set: `${prefix}hostports${family}`, key, value, title, exclusive: true };
  if (!conditions) {
    return [{ ...element, yieldsTo, failover: failoverKey(family, hostAddressOf(mapping), port, value) }];
  }
  const chain = conditionsChain(conditions, family, prefix);
  return [element, {
    set: `${prefix}conditions${family}`,
    key,
    chain,
    title: `conditions on ${title}`,
    exclusive: true,
  }];
}

/** Only the interface that has the port gets this element. */
function loopbackElement(mapping: PortMapping, source: Uint8Array): WantedElement {
  const { prefix, key } = portMapKey(mapping);
  return {
    set: `${prefix}loopback4`,
    key,
    value: source,
    title: describeHostPort(mapping),
    isNew: !reachesLoopback(mapping),
    exclusive: true,
    yieldsTo,
  };
}

/** Another interface of the same container already has the port. */
const yieldsTo = (holder: Owner, owner: Owner): boolean => holder.containerId === owner.containerId;

/**
 * Translates packets that fulfil the conditions. Other packets pass as if the port were not published.
 *
 * Networks with the same conditions share the chain.
 */
function conditionsChain({ text, parts }: Conditions, family: 4 | 6, prefix: "" | "hostip_"): SharedChain {
  const key = [...prefix ? [daddr(family)] : [], l4proto(), dport()];
  const name = `${prefix}conditions${family}-${new Bun.CryptoHasher("sha256").update(text).digest("hex").slice(0, 16)}`;
  const translate = rule(...parts, dnatMap(family, key, `${prefix}hostports${family}`));
  return {
    name,
    rules: prefix ? [translate, rule(gotoChain(ANY_ADDRESS_CHAIN))] : [translate],
    usesGoto: true,
  };
}

function hairpinElement(address: Cidr, allSources: boolean): WantedElement {
  return {
    set: `hairpin${familyOf(address)}`,
    key: ipBytes(ipOf(address)),
    chain: allSources ? hairpinAllChain() : hairpinChain(address),
    title: `masquerading of what reaches ${ipOf(address)} by a published port`,
  };
}
