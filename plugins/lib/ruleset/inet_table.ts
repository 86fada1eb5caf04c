/** The table for IPv4 and IPv6: static chains and rules, and maps with attachments' elements. */
import { parseCidr } from "../../../ffi/address.ts";
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
  accept,
  ctOriginalSaddrIn,
  ctStateEstablishedRelated,
  ctStatusDnat,
  daddr,
  daddrIn,
  dnatMap,
  dport,
  fibDaddrLocal,
  gotoChain,
  jump,
  l4proto,
  masquerade,
  metaNfproto,
  oifname,
  oifnameIs,
  returnFromChain,
  rule,
  type RuleStatement,
  saddr,
  vmap,
} from "../../../ffi/nft/statements.ts";
import * as uapi from "../../../ffi/nft/uapi.ts";
import { recordSet } from "./owner_records.ts";
import type { TableDefinition } from "./table.ts";
import { formerForwardMarkRules, forwardMarkChains, forwardMarkRules } from "./forward_mark.ts";
import { bridgeSetName, INGRESS_POLICIES, ingressChainElements } from "./inet_shared_chains.ts";

const familySets = (name: string): string[] => [`${name}4`, `${name}6`];

const INGRESS_CHAIN = "ingress_policies";

/** Published ports of all addresses. Conditions on a port of one address continue here. */
export const ANY_ADDRESS_CHAIN = "hostports_any_address";

/** Published ports need it too. The first ADD of a port makes it. */
export const LOOPBACK_CALLS_CHAIN = "loopback_calls";

export const inetTable: TableDefinition = {
  family: uapi.NFPROTO_INET,
  table: "cni",
  comment: "Container networks; managed by cni",
  objects: () => ({
    sets: [...setsOf(4), ...setsOf(6), ...loopbackSets(), ...bridgeSets(), recordSet()],
    chains: [
      { name: "hostports", comment: "Published ports: first those of one address of the host" },
      { name: ANY_ADDRESS_CHAIN, comment: "Published ports of all addresses of the host" },
      { name: INGRESS_CHAIN, comment: "Drops new connections that an ingressPolicy forbids" },
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
      "loopback4",
      "hostip_loopback4",
    ],
  },
  uses: {
    masquerade: { postrouting: 6 },
    ingress: { before_filter: 5, after_filter: 2, [INGRESS_CHAIN]: 5, forward_mark: 5, forward_mark_set: 7 },
    ports: {
      hostports: 7,
      [ANY_ADDRESS_CHAIN]: 5,
      postrouting: 6,
    },
  },
  rules: () => toStaticRules(staticRules()),
  former: { chains: ["forward"], rules: () => toStaticRules(formerRules()) },
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
  const comment = "Published ports, with the source that calls from 127.0.0.0/8 get";
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
    ["prerouting", "nat", uapi.NF_INET_PRE_ROUTING, uapi.NF_IP_PRI_NAT_DST, "Calls from elsewhere to published ports"],
    ["output", "nat", uapi.NF_INET_LOCAL_OUT, uapi.NF_IP_PRI_NAT_DST, "Calls from this host to published ports"],
    [
      "postrouting",
      "nat",
      uapi.NF_INET_POST_ROUTING,
      uapi.NF_IP_PRI_NAT_SRC,
      "Masquerading",
    ],
  ] as const).map(([name, type, number, priority, comment]) => ({ name, type, hook: { number, priority }, comment }));

type ChainRule = [chain: string, ...RuleStatement[]];

const toStaticRules = (rules: readonly ChainRule[]) =>
  rules.map(([chain, ...parts]) => ({ chain, expressions: rule(...parts) }));

const bothFamilies = (toRules: (family: 4 | 6) => ChainRule[]): ChainRule[] => [...toRules(4), ...toRules(6)];

/** The bridge decides: a container cannot escape by changing its address. */
const ingressRules = (chain: string): ChainRule[] => [
  ...INGRESS_POLICIES.map((policy): ChainRule => [chain, vmap([oifname()], bridgeSetName(policy))]),
  ...bothFamilies((family) => [[chain, vmap([daddr(family)], `ingress${family}`)]]),
];

export const LOOPBACK = { 4: parseCidr("127.0.0.0/8"), 6: parseCidr("::1/128") } as const;

function staticRules(): ChainRule[] {
  const port = [l4proto(), dport()];
  // Ports with conditions come first.
  const portRules = (chain: string, prefix: string, fields: (family: 4 | 6) => typeof port) =>
    bothFamilies((family) => [
      [chain, metaNfproto(family), vmap(fields(family), `${prefix}conditions${family}`)],
      [chain, dnatMap(family, fields(family), `${prefix}hostports${family}`)],
    ]);
  return [
    ...forwardMarkRules(),
    // Only this host calls these addresses. The kernel drops packets to ::1 from links before any rule.
    ["prerouting", daddrIn(LOOPBACK[4]), returnFromChain()],
    // Only packets to this host reach published ports.
    ["prerouting", fibDaddrLocal(), jump("hostports")],
    ["output", fibDaddrLocal(), jump("hostports")],
    ...portRules("hostports", "hostip_", (family) => [daddr(family), ...port]),
    ["hostports", gotoChain(ANY_ADDRESS_CHAIN)],
    ...portRules(ANY_ADDRESS_CHAIN, "", () => port),
    // What was accepted goes on, without a lookup. A chain of its own would cost each packet as much as three lookups.
    ["after_filter", ctStateEstablishedRelated(true), gotoChain(INGRESS_CHAIN)],
    ...ingressRules(INGRESS_CHAIN),
    // Over a link, a container cannot answer a loopback address.
    ...bothFamilies((family) => [
      ["postrouting", ctStatusDnat(), oifnameIs("lo", true), ctOriginalSaddrIn(LOOPBACK[family]), masquerade()],
    ]),
    ...bothFamilies((family) => [["postrouting", ctStatusDnat(), vmap([daddr(family)], `hairpin${family}`)]]),
    ...bothFamilies((family) => [["postrouting", vmap([saddr(family)], `masquerade${family}`)]]),
  ];
}

/**
 * Rules before 0.1.0. Who may call was asked in a chain that each forwarded packet met.
 */
function formerRules(): ChainRule[] {
  return [
    ["output", daddrIn(LOOPBACK[6]), returnFromChain()],
    ...formerForwardMarkRules(),
    ["forward", ctStateEstablishedRelated(), accept()],
    ...ingressRules("forward"),
  ];
}
