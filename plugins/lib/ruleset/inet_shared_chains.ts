/** The shared chains of `table inet cni`: masquerading, hairpins and ingress policies. */
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
import type { ChainElement } from "./table_definition.ts";

/** The strictest first. */
export const INGRESS_POLICIES = ["isolated", "same-bridge"] as const;

/** The subnet as part of a chain's name, as nft(8) reads it back: it takes no colons. */
const subnetChainName = (subnet: Cidr): string => subnet.replaceAll(":", "-");

/** Hides addresses of the subnet behind the host, except within the subnet and to groups. */
export function masqueradeChain(address: Cidr): SharedChain {
  const subnet = networkOf(address);
  const groups = parseCidr(familyOf(subnet) === 4 ? "224.0.0.0/4" : "ff00::/8");
  return {
    name: `masquerade-${subnetChainName(subnet)}`,
    rules: [rule(daddrIn(subnet), returnFromChain()), rule(daddrIn(groups), returnFromChain()), rule(masquerade())],
  };
}

/** Hides who calls a published port where the container could not answer otherwise: neighbours, to which it would answer past the host. */
export function hairpinChain(address: Cidr): SharedChain {
  const subnet = networkOf(address);
  return { name: `hairpin-${subnetChainName(subnet)}`, rules: [rule(saddrIn(subnet), masquerade())] };
}

/** Hides everybody who calls a published port. */
export function hairpinAllChain(): SharedChain {
  return { name: "hairpin-everybody", rules: [rule(masquerade())] };
}

/** Who may call containers of a bridge: those of no other bridge that has such a policy, or none of these bridges at all. */
export type BridgeIngressPolicy = (typeof INGRESS_POLICIES)[number];
export const bridgeSetName = (policy: BridgeIngressPolicy): string => `${policy.replace("-", "_")}_bridges`;
const ingressChainName = (policy: BridgeIngressPolicy, bridge: string): string => `ingress-${policy}-${bridge}`;

/** Lets everybody in. */
export function openIngressChain(): SharedChain {
  return {
    name: "ingress-open",
    rules: [rule(accept())],
    comment: "Containers that everybody may call",
    usesGoto: true,
  };
}

/** Keeps out whoever comes from a bridge that has a policy; as `same-bridge`, except from the same bridge. */
export function bridgeIngressChain(policy: BridgeIngressPolicy, bridge: string): SharedChain {
  const rules = [rule(inSet([iifname()], "ingress_bridges"), drop())];
  if (policy === "same-bridge") rules.unshift(rule(iifnameIs(bridge), accept()));
  return { name: ingressChainName(policy, bridge), rules, usesGoto: true };
}

/** The chain of this name that keeps out more than `policy` does, `open` or one of a bridge; undefined if that is not what it does. */
export function stricterIngressChain(policy: "open" | BridgeIngressPolicy, name: string): SharedChain | undefined {
  const stricter = policy === "open" ? INGRESS_POLICIES : INGRESS_POLICIES.slice(0, INGRESS_POLICIES.indexOf(policy));
  for (const stricterPolicy of stricter) {
    const bridge = bridgeOfChain(stricterPolicy, name);
    if (bridge !== undefined) return bridgeIngressChain(stricterPolicy, bridge);
  }
  return undefined;
}

/** The bridge that the chain is about, if it is one for this policy. */
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
