/** The table for IPv4 and IPv6: static chains and rules, and maps with attachments' elements. */
import { parseCidr, parseIp } from "../../../ffi/address.ts";
import {
  ifnameType,
  inetProto,
  inetService,
  ipv4Addr,
  ipv6Addr,
  mapOf,
  mark,
  namedSet,
  setOf,
} from "../../../ffi/nft/datatypes.ts";
import {
  ctDirectionReply,
  ctStatusDnat,
  daddr,
  daddrIn,
  dnatMap,
  dport,
  fibDaddrLocal,
  gotoChain,
  iifnameIs,
  jump,
  l4proto,
  metaNfproto,
  oifname,
  returnFromChain,
  rule,
  type RuleStatement,
  saddr,
  saddrFromMap,
  saddrIn,
  setDaddr,
  vmap,
} from "../../../ffi/nft/statements.ts";
import * as uapi from "../../../ffi/nft/uapi.ts";
import { recordSet } from "./owner_records.ts";
import type { TableDefinition } from "./table.ts";
import { forwardMarkChains, forwardMarkRules } from "./forward_mark.ts";
import { bridgeSetName, INGRESS_POLICIES, ingressChainElements } from "./inet_shared_chains.ts";

const familySets = (name: string): string[] => [`${name}4`, `${name}6`];

/** Published ports of all addresses. Conditions on a port of one address continue here. */
export const ANY_ADDRESS_CHAIN = "hostports_any_address";

export const inetTable: TableDefinition = {
  family: uapi.NFPROTO_INET,
  table: "cni",
  comment: "Container networks; managed by cni",
  objects: () => ({
    sets: [...setsOf(4), ...setsOf(6), ...loopbackSets(), ...bridgeSets(), recordSet()],
    chains: [
      { name: "hostports", comment: "Published ports: first those of one address of the host" },
      { name: ANY_ADDRESS_CHAIN, comment: "Published ports of all addresses of the host" },
      ...forwardMarkChains(),
      ...baseChains(),
    ],
  }),
  purposes: {
    masquerade: ["masquerade", "masquerade_standby"].flatMap(familySets),
    ingress: ["ingress", "forward"].flatMap(familySets),
    ports: [
      ...["hostports", "hostip_hostports", "conditions", "hostip_conditions", "hairpin", "hostports_standby"]
        .flatMap(familySets),
      ...["loopback4", "hostip_loopback4"],
    ],
  },
  sentinel: { chain: "after_filter", rules: 1 },
  rules: () => staticRules().map(([chain, ...parts]) => ({ chain, expressions: rule(...parts) })),
  chainElementsOf: ingressChainElements,
};

function setsOf(family: 4 | 6) {
  const address = family === 4 ? ipv4Addr : ipv6Addr;
  const port = [inetProto, inetService];
  const verdicts = mapOf([address], "verdict");
  const sets = {
    hostports: [mapOf(port, [address, inetService]), "Published ports, with the address and port of the container"],
    hostip_hostports: [mapOf([address, ...port], [address, inetService]), "Published ports of one address of the host"],
    conditions: [mapOf(port, "verdict"), "Published ports with conditions"],
    hostip_conditions: [
      mapOf([address, ...port], "verdict"),
      "Published ports of one address of the host, with conditions",
    ],
    hairpin: [verdicts, "Containers whose published ports masquerade some callers"],
    masquerade: [verdicts, "Masqueraded containers"],
    ingress: [verdicts, "Containers with any ingressPolicy"],
    forward: [setOf([address]), "Containers whose packets other firewalls must accept"],
    // Failover elements: no rule uses these sets.
    masquerade_standby: [
      mapOf([address, mark], "verdict"),
      "Containers that share an address with another one, which masquerades for both",
    ],
    hostports_standby: [
      setOf([address, ...port, address, inetService]),
      "Ports of containers on several networks, published by another of these networks",
    ],
  } as const;
  return Object.entries(sets).map(([name, [shape, comment]]) => namedSet(`${name}${family}`, shape, comment));
}

function loopbackSets() {
  const port = [inetProto, inetService];
  const comment = "Published ports, with the source that calls from 127.0.0.1 get";
  return [
    namedSet("loopback4", mapOf(port, [ipv4Addr]), comment),
    namedSet("hostip_loopback4", mapOf([ipv4Addr, ...port], [ipv4Addr]), comment),
  ];
}

function bridgeSets() {
  const bridges = mapOf([ifnameType], "verdict");
  return [
    namedSet("ingress_bridges", setOf([ifnameType]), "Bridges with an ingressPolicy, isolated from each other"),
    ...INGRESS_POLICIES.map((policy) =>
      namedSet(bridgeSetName(policy), bridges, `Bridges with ingressPolicy ${policy}`)
    ),
  ];
}

const baseChains = () =>
  ([
    [
      "loopback_output",
      "route",
      uapi.NF_INET_LOCAL_OUT,
      uapi.NF_IP_PRI_RAW,
      "Gives calls from 127.0.0.1 to published ports another source",
    ],
    [
      "loopback_input",
      "filter",
      uapi.NF_INET_LOCAL_IN,
      uapi.NF_IP_PRI_NAT_SRC + 10,
      "Gives answers to those calls the destination 127.0.0.1 again",
    ],
    ["prerouting", "nat", uapi.NF_INET_PRE_ROUTING, uapi.NF_IP_PRI_NAT_DST, "Calls from elsewhere to published ports"],
    ["output", "nat", uapi.NF_INET_LOCAL_OUT, uapi.NF_IP_PRI_NAT_DST, "Calls from this host to published ports"],
    ["forward", "filter", uapi.NF_INET_FORWARD, uapi.NF_IP_PRI_FILTER, "Drops packets that an ingressPolicy forbids"],
    [
      "postrouting",
      "nat",
      uapi.NF_INET_POST_ROUTING,
      uapi.NF_IP_PRI_NAT_SRC,
      "Masquerading",
    ],
  ] as const).map(([name, type, number, priority, comment]) => ({ name, type, hook: { number, priority }, comment }));

type ChainRule = [chain: string, ...RuleStatement[]];

function staticRules(): ChainRule[] {
  const loopback = parseCidr("127.0.0.0/8");
  const localhost = parseCidr("127.0.0.1/32");
  const port = [l4proto(), dport()];
  const bothFamilies = (toRules: (family: 4 | 6) => ChainRule[]) => [...toRules(4), ...toRules(6)];
  // Ports with conditions come first.
  const portRules = (chain: string, prefix: string, fields: (family: 4 | 6) => typeof port) =>
    bothFamilies((family) => [
      [chain, metaNfproto(family), vmap(fields(family), `${prefix}conditions${family}`)],
      [chain, dnatMap(family, fields(family), `${prefix}hostports${family}`)],
    ]);
  return [
    // Between 127.0.0.1 and a link, the kernel passes packets only with route_localnet, which exposes these
    // addresses to neighbours. So the call gets an address of the host as source before conntrack sees it, and the
    // answer gets 127.0.0.1 back.
    ["loopback_output", saddrIn(localhost), saddrFromMap([daddr(4), ...port], "hostip_loopback4")],
    ["loopback_output", saddrIn(localhost), daddrIn(loopback), saddrFromMap(port, "loopback4")],
    [
      "loopback_input",
      iifnameIs("lo", true),
      ctDirectionReply(),
      ctStatusDnat(),
      saddrIn(loopback),
      setDaddr(parseIp("127.0.0.1")),
    ],
    ...forwardMarkRules(),
    // Only this host calls these addresses.
    ["prerouting", daddrIn(loopback), returnFromChain()],
    // Only packets to this host reach published ports.
    ["prerouting", fibDaddrLocal(), jump("hostports")],
    // The kernel delivers no answer to ::1 from a link. Untranslated, a call to "localhost" fails at once and tries
    // 127.0.0.1.
    ["output", daddrIn(parseCidr("::1/128")), returnFromChain()],
    ["output", fibDaddrLocal(), jump("hostports")],
    ...portRules("hostports", "hostip_", (family) => [daddr(family), ...port]),
    ["hostports", gotoChain(ANY_ADDRESS_CHAIN)],
    ...portRules(ANY_ADDRESS_CHAIN, "", () => port),
    // By bridge: a container cannot escape by changing its address.
    ...INGRESS_POLICIES.map((policy): ChainRule => ["forward", vmap([oifname()], bridgeSetName(policy))]),
    ...bothFamilies((family) => [["forward", vmap([daddr(family)], `ingress${family}`)]]),
    ...bothFamilies((family) => [["postrouting", ctStatusDnat(), vmap([daddr(family)], `hairpin${family}`)]]),
    ...bothFamilies((family) => [["postrouting", vmap([saddr(family)], `masquerade${family}`)]]),
  ];
}
