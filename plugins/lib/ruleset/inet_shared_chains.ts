import { type Cidr, familyOf, networkOf, parseCidr } from "../../../ffi/address.ts";
import {
  accept,
  daddrIn,
  drop,
  ifnameField,
  iifname,
  iifnameIs,
  inSet,
  masquerade,
  returnFromChain,
  rule,
  saddrIn,
} from "../../../ffi/nft/statements.ts";
import type { SharedChain } from "./shared_chains.ts";
import type { ChainElement } from "./table.ts";

/** The strictest first: what precedes a policy is stricter. */
export const INGRESS_POLICIES = ["isolated", "same-bridge"] as const;

/** nft(8) allows no colon in a chain's name. */
const subnetChainName = (subnet: Cidr): string => subnet.replaceAll(":", "-");

/** Masquerades addresses of the subnet, except within it and to multicast groups. */
export function masqueradeChain(address: Cidr): SharedChain {
  const subnet = networkOf(address);
  const groups = parseCidr(familyOf(subnet) === 4 ? "224.0.0.0/4" : "ff00::/8");
  return {
    name: `masquerade-${subnetChainName(subnet)}`,
    rules: [rule(daddrIn(subnet), returnFromChain()), rule(daddrIn(groups), returnFromChain()), rule(masquerade())],
  };
}

/** Masquerades neighbours that call a published port: else the container answers them directly, past the host. */
export function hairpinChain(address: Cidr): SharedChain {
  const subnet = networkOf(address);
  return { name: `hairpin-${subnetChainName(subnet)}`, rules: [rule(saddrIn(subnet), masquerade())] };
}

export function hairpinAllChain(): SharedChain {
  return { name: "hairpin-everybody", rules: [rule(masquerade())] };
}

export type BridgeIngressPolicy = (typeof INGRESS_POLICIES)[number];
export const bridgeSetName = (policy: BridgeIngressPolicy): string => `${policy.replace("-", "_")}_bridges`;
const ingressChainName = (policy: BridgeIngressPolicy, bridge: string): string => `ingress-${policy}-${bridge}`;

export function openIngressChain(): SharedChain {
  return {
    name: "ingress-open",
    rules: [rule(accept())],
    comment: "Containers without an ingressPolicy",
    usesGoto: true,
  };
}

/** Drops packets from bridges with a policy; with `same-bridge`, except this bridge. */
export function bridgeIngressChain(policy: BridgeIngressPolicy, bridge: string): SharedChain {
  const rules = [rule(inSet([iifname()], "ingress_bridges"), drop())];
  if (policy === "same-bridge") rules.unshift(rule(iifnameIs(bridge), accept()));
  return { name: ingressChainName(policy, bridge), rules, usesGoto: true };
}

export function stricterIngressChain(policy: "open" | BridgeIngressPolicy, name: string): SharedChain | undefined {
  const stricter = policy === "open" ? INGRESS_POLICIES : INGRESS_POLICIES.slice(0, INGRESS_POLICIES.indexOf(policy));
  for (const stricterPolicy of stricter) {
    const bridge = bridgeOfChain(stricterPolicy, name);
    if (bridge !== undefined) return bridgeIngressChain(stricterPolicy, bridge);
  }
  return undefined;
}

function bridgeOfChain(policy: BridgeIngressPolicy, chain: string): string | undefined {
  const bridge = chain.slice(ingressChainName(policy, "").length);
  return chain === ingressChainName(policy, bridge) ? bridge : undefined;
}

export function ingressChainElements(chain: string): ChainElement[] {
  return INGRESS_POLICIES.flatMap((policy, i): ChainElement[] => {
    const bridge = bridgeOfChain(policy, chain);
    if (bridge === undefined) return [];
    const key = ifnameField(bridge);
    const comment = `ingressPolicy ${policy}`;
    const alsoOfChain = ingressChainName(INGRESS_POLICIES[1 - i]!, bridge);
    return [{ set: bridgeSetName(policy), key, jumpsToChain: true, comment }, {
      set: "ingress_bridges",
      key,
      alsoOfChain,
      comment: "ingressPolicy",
    }];
  });
}
