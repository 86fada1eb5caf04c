/**
 * The static part of NetworkPolicy: guards against forged sources, and the maps that lead to a pod's policies.
 *
 * Chains, sets of peers and elements of the maps come and go with policies (plugins/lib/policy/).
 */
import { etherAddr, ifnameType, ipv4Addr, ipv6Addr, mapOf, namedSet, setOf } from "../../../ffi/nft/datatypes.ts";
import {
  accept,
  arpSenderIp,
  arpSenderMac,
  bridgedSaddr,
  counter,
  ctMarkHas,
  ctStateEstablishedRelated,
  daddr,
  daddrIn,
  drop,
  equals,
  etherDaddrFromMap,
  etherDaddrIsGroup,
  etherSaddr,
  gotoChain,
  hopLimit,
  iifgroup,
  iifname,
  inRange,
  inSet,
  jump,
  l4proto,
  metaProtocol,
  oifname,
  portField,
  rule,
  type RuleStatement,
  saddr,
  saddrFromTransport,
  saddrIn,
  setHopLimit,
  setPacketTypeHost,
  transportBytes,
  vmap,
} from "../../../ffi/nft/statements.ts";
import * as uapi from "../../../ffi/nft/uapi.ts";
import { ETH_P_ARP, ETH_P_IP, ETH_P_IPV6, IPPROTO_ICMPV6 } from "../../../ffi/sys/uapi.ts";
import { parseCidr } from "../../../ffi/address.ts";
import { recordSet } from "./owner_records.ts";
import { POLICY_TABLE } from "./policy_table_key.ts";
import type { StaticRule, TableDefinition } from "./table.ts";

const FAMILIES = [4, 6] as const;
const addressOf = (family: 4 | 6) => (family === 4 ? ipv4Addr : ipv6Addr);

/**
 * Bit of `ct mark`: packets of the connection are dropped, in both directions, while its entry lasts. A deleted entry
 * would come back with the other side's next packet, as a new connection in the reverse direction.
 */
export const CUT_MARK = 0x1000_0000;

export const POLICY_PURPOSE = "policy";

export const POD_LINKS = "pod_links";
/**
 * Pods' links are in another group than 0, mostly in this one: a look at a number costs a packet less than a search in
 * {@linkcode POD_LINKS}, which would take longer than all else that policies do with it.
 */
export const POD_LINK_GROUP = 25_454;
/** Links of group 0 are no pods'. */
const mayComeFromPod = (): RuleStatement => equals(iifgroup(), new Uint8Array(4), true);
const comesFromElsewhere = (): RuleStatement => inSet([iifname()], POD_LINKS, true);
export const podAddressSet = (family: 4 | 6): string => `pod_addresses${family}`;
/** In `table bridge`, which also looks at the MAC address: one search for both. */
export const podSourceSet = (family: 4 | 6): string => `pod_sources${family}`;
/** Of frames without an address of the pod's. */
export const POD_MACS = "pod_macs";
export const selfCalls = (family: 4 | 6): string => `self${family}`;
const DIRECTIONS = ["egress", "ingress"] as const;
export const directionMap = (direction: typeof DIRECTIONS[number], family: 4 | 6): string => `${direction}${family}`;
/** An address whose policies are not known leads there. */
export const CLOSED_CHAIN = "closed";
export const CUT_CHAIN = "cut";
export const GUARD_CHAIN = "guard";
const JUDGE_CHAIN = "judge";
const FORGED_CHAIN = "forged";
const BRIDGED_CHAIN = "bridged";
export const deniedChain = (direction: typeof DIRECTIONS[number]): string => `denied_${direction}`;

export type DropReason = typeof DIRECTIONS[number] | "closed" | "cut" | "forged" | "bridged";

/** All packets that are dropped end in one of these. What the part counts and logs of them is a rule there. */
export interface DropChain {
  readonly reason: DropReason;
  readonly name: string;
  readonly comment: string;
}

const FORGED_DROPS: DropChain = {
  reason: "forged",
  name: FORGED_CHAIN,
  comment: "What pods send from addresses of others",
};

const INET_DROPS: readonly DropChain[] = [
  FORGED_DROPS,
  { reason: "cut", name: CUT_CHAIN, comment: "Connections that a later policy forbids" },
  { reason: "closed", name: CLOSED_CHAIN, comment: "Pods whose policies are not known yet" },
  ...DIRECTIONS.map((direction) => ({
    reason: direction,
    name: deniedChain(direction),
    comment: `What no policy allows for ${direction}`,
  })),
];

const BRIDGE_DROPS: readonly DropChain[] = [
  FORGED_DROPS,
  { reason: "bridged", name: BRIDGED_CHAIN, comment: "Frames to and from isolated pods that are not routed" },
];

const dropChainObjects = (drops: readonly DropChain[]) => drops.map(({ name, comment }) => ({ name, comment }));
const dropRules = (drops: readonly DropChain[]): StaticRule[] =>
  rulesOf((add) => {
    for (const { name } of drops) add(name, counter(), drop());
  });

const podLinkSet = () => namedSet(POD_LINKS, setOf([ifnameType]), "Pods' links on the host");

type AddRule = (chain: string, ...parts: readonly RuleStatement[]) => void;

function rulesOf(build: (add: AddRule) => void): StaticRule[] {
  const rules: StaticRule[] = [];
  build((chain, ...parts) => void rules.push({ chain, expressions: rule(...parts) }));
  return rules;
}

const FIRST_DISCOVERY = 133;
const LAST_DISCOVERY = 136;
const FULL_HOP_LIMIT = 255;
const icmp6Types = (first: number, last: number) =>
  inRange(transportBytes(0, 1), Uint8Array.of(first), Uint8Array.of(last));
const isNeighbourDiscovery = (): RuleStatement => [
  ...equals(l4proto(), Uint8Array.of(IPPROTO_ICMPV6)),
  ...equals(hopLimit(), Uint8Array.of(FULL_HOP_LIMIT)),
  ...icmp6Types(FIRST_DISCOVERY, LAST_DISCOVERY),
];

// A pod's own, before it has an address and for its neighbours. On a bridge, the host would route them back to it.
const LINK_LOCAL = "fe80::/10";
const UNSPECIFIED = "::/128";

/** Sets of peers have names that begin so. */
export const PEERS_PREFIX = "peers";

export const policyTable: TableDefinition = {
  ...POLICY_TABLE,
  comment: "NetworkPolicy; managed by cni",
  isTransient: (set) => set.startsWith(PEERS_PREFIX),
  // It closes pods, unless the server's part keeps them.
  isRestoredByPlugin: true,
  objects: () => ({
    sets: [
      podLinkSet(),
      ...FAMILIES.map((family) =>
        namedSet(podAddressSet(family), setOf([ifnameType, addressOf(family)]), "Pods' links, and their addresses")
      ),
      ...FAMILIES.map((family) =>
        namedSet(selfCalls(family), setOf([addressOf(family), addressOf(family)]), "Pods that call themselves")
      ),
      ...DIRECTIONS.flatMap((direction) =>
        FAMILIES.map((family) =>
          namedSet(
            directionMap(direction, family),
            mapOf([addressOf(family)], "verdict"),
            `Pods that policies isolate for ${direction}`,
          )
        )
      ),
      recordSet(),
    ],
    chains: [
      {
        name: "prerouting",
        type: "filter",
        hook: { number: uapi.NF_INET_PRE_ROUTING, priority: uapi.NF_IP_PRI_RAW },
        comment: "Drops what pods send from addresses of others",
      },
      {
        name: "forward",
        type: "filter",
        hook: { number: uapi.NF_INET_FORWARD, priority: uapi.NF_IP_PRI_FILTER },
        comment: "Drops what no policy allows; a pod's own node is not asked",
      },
      { name: JUDGE_CHAIN, comment: "What belongs to no established connection" },
      { name: GUARD_CHAIN, comment: "What comes from pods, and is dropped unless the address is theirs" },
      ...dropChainObjects(INET_DROPS),
    ],
  }),
  purposes: {
    [POLICY_PURPOSE]: [POD_LINKS, ...FAMILIES.flatMap((family) => [podAddressSet(family), selfCalls(family)])],
  },
  uses: {
    [POLICY_PURPOSE]: {
      prerouting: 1,
      forward: 2,
      [JUDGE_CHAIN]: 9,
      [GUARD_CHAIN]: 7,
      [FORGED_CHAIN]: 2,
      [CUT_CHAIN]: 3,
      [CLOSED_CHAIN]: 1,
      [deniedChain("ingress")]: 1,
      [deniedChain("egress")]: 1,
    },
  },
  rules: () => [
    ...rulesOf((add) => {
      add("prerouting", mayComeFromPod(), gotoChain(GUARD_CHAIN));
      for (const family of FAMILIES) {
        add(GUARD_CHAIN, inSet([iifname(), saddr(family)], podAddressSet(family)), accept());
      }
      add(GUARD_CHAIN, comesFromElsewhere(), accept());
      // The kernel forwards none of these.
      for (const own of [LINK_LOCAL, UNSPECIFIED]) add(GUARD_CHAIN, saddrIn(parseCidr(own)), accept());
      add(GUARD_CHAIN, gotoChain(FORGED_CHAIN));
      // Most packets match neither: a verdict would cost as much as another look.
      add("forward", ctStateEstablishedRelated(true), gotoChain(JUDGE_CHAIN));
      add("forward", ctMarkHas(CUT_MARK), gotoChain(CUT_CHAIN));
      add(JUDGE_CHAIN, ctMarkHas(CUT_MARK), gotoChain(CUT_CHAIN));
      addJudgement(add, JUDGE_CHAIN);
    }),
    ...dropRules(INET_DROPS),
  ],
  former: { chains: [], rules: formerRules },
};

function addJudgement(add: AddRule, chain: string): void {
  // Bridged ones pass here with bridge-nf-call-ip6tables. A routed packet has had a hop.
  add(chain, isNeighbourDiscovery(), accept());
  for (const family of FAMILIES) add(chain, inSet([saddr(family), daddr(family)], selfCalls(family)), accept());
  for (const family of FAMILIES) add(chain, vmap([saddr(family)], directionMap("egress", family)));
  for (const family of FAMILIES) add(chain, vmap([daddr(family)], directionMap("ingress", family)));
}

/** Established packets had a verdict of their own. */
function formerRules(): StaticRule[] {
  return rulesOf((add) => {
    add("forward", ctStateEstablishedRelated(), ctMarkHas(CUT_MARK, true), accept());
    addJudgement(add, "forward");
  });
}

/** Of a pod's link: the address of the bridge's port, which the bridge takes for its own. */
export const ROUTED_PORTS = "routed_ports";
/** Links of pods that policies isolate, or whose policies are not known yet. */
export const ISOLATED_PORTS = "isolated";

const FIRST_LISTENER = 130;
const LISTENER_REPORT_2 = 143;
const isType = (protocol: number) => equals(metaProtocol(), portField(protocol));
const isIcmp6 = () => [...isType(ETH_P_IPV6), ...equals(l4proto(), Uint8Array.of(IPPROTO_ICMPV6))];
const ADVERTISEMENT = 136;
const TARGET_OFFSET = 8;
/** Neighbour discovery, and who listens to which group. */
const neighbourly = (): RuleStatement[] => [
  [...isIcmp6(), ...icmp6Types(FIRST_LISTENER, LAST_DISCOVERY)],
  [...isIcmp6(), ...equals(transportBytes(0, 1), Uint8Array.of(LISTENER_REPORT_2))],
];

/**
 * For pods on bridges. What they send to one receiver is routed by the host, so that `table inet` judges it with and
 * without br_netfilter, and no set is needed twice.
 */
export const policyBridgeTable: TableDefinition = {
  family: uapi.NFPROTO_BRIDGE,
  table: POLICY_TABLE.table,
  comment: "NetworkPolicy; managed by cni",
  objects: () => ({
    sets: [
      podLinkSet(),
      ...FAMILIES.map((family) =>
        namedSet(
          podSourceSet(family),
          setOf([ifnameType, etherAddr, addressOf(family)]),
          "Pods' links, and their addresses",
        )
      ),
      namedSet(POD_MACS, setOf([ifnameType, etherAddr]), "Pods' links, and their MAC addresses"),
      namedSet(ROUTED_PORTS, mapOf([ifnameType], [etherAddr]), "Pods' links, and addresses that lead to the host"),
      namedSet(ISOLATED_PORTS, setOf([ifnameType]), "Links of pods that policies isolate"),
      recordSet(),
    ],
    chains: [
      {
        name: "prerouting",
        type: "filter",
        hook: { number: uapi.NF_INET_PRE_ROUTING, priority: uapi.NF_IP_PRI_RAW },
        comment: "Drops forged sources, and has the host route the others",
      },
      {
        name: "forward",
        type: "filter",
        hook: { number: uapi.NF_INET_FORWARD, priority: uapi.NF_BR_PRI_FILTER_BRIDGED },
        comment: "Frames that the host does not route",
      },
      { name: GUARD_CHAIN, comment: "What comes from pods, and is dropped unless the address is theirs" },
      { name: "route", comment: "Packets to one receiver go to the host" },
      { name: "link", comment: "Link-local packets, which no router may forward" },
      { name: "discovery", comment: "Neighbour discovery, and who listens to which group" },
      { name: "claims", comment: "Advertised addresses, as the source: dropped unless they are the pod's" },
      { name: ISOLATED_PORTS, comment: "What always passes" },
      ...dropChainObjects(BRIDGE_DROPS),
    ],
  }),
  purposes: { [POLICY_PURPOSE]: [POD_LINKS, ...FAMILIES.map(podSourceSet), POD_MACS, ROUTED_PORTS] },
  uses: {
    [POLICY_PURPOSE]: {
      prerouting: 1,
      forward: 2,
      [GUARD_CHAIN]: 10,
      route: 6,
      link: 6,
      discovery: 5,
      claims: 5,
      [ISOLATED_PORTS]: 6,
      [FORGED_CHAIN]: 4,
      [BRIDGED_CHAIN]: 2,
    },
  },
  rules: () => [
    ...rulesOf((add) => {
      add("prerouting", mayComeFromPod(), gotoChain(GUARD_CHAIN));
      for (const [family, type] of [[4, ETH_P_IP], [6, ETH_P_IPV6]] as const) {
        const isOwn = inSet([iifname(), etherSaddr(), bridgedSaddr(family)], podSourceSet(family));
        add(GUARD_CHAIN, isType(type), isOwn, gotoChain("route"));
      }
      add(GUARD_CHAIN, comesFromElsewhere(), accept());
      add(GUARD_CHAIN, inSet([iifname(), etherSaddr()], POD_MACS, true), gotoChain(FORGED_CHAIN));
      add(GUARD_CHAIN, isType(ETH_P_ARP), inSet([iifname(), arpSenderMac(), arpSenderIp()], podSourceSet(4)), accept());
      // A probe for a duplicate.
      add(GUARD_CHAIN, isType(ETH_P_ARP), equals(arpSenderIp(), new Uint8Array(4)), accept());
      for (const own of [LINK_LOCAL, UNSPECIFIED]) {
        add(GUARD_CHAIN, isType(ETH_P_IPV6), withoutFamily(saddrIn(parseCidr(own))), gotoChain("link"));
      }
      add(GUARD_CHAIN, gotoChain(FORGED_CHAIN));
      for (const chain of ["route", "link"]) {
        add(chain, isIcmp6(), jump("discovery"));
        add(chain, etherDaddrIsGroup(), accept());
      }
      add("discovery", isIcmp6(), equals(transportBytes(0, 1), Uint8Array.of(ADVERTISEMENT)), gotoChain("claims"));
      for (const passes of neighbourly()) add("discovery", passes, accept());
      // It is the source already, where the kernel advertises. No set of nft(8) has targets.
      add("claims", isType(ETH_P_IPV6), saddrFromTransport(TARGET_OFFSET));
      const isOwn = inSet([iifname(), etherSaddr(), bridgedSaddr(6)], podSourceSet(6));
      add("claims", isType(ETH_P_IPV6), isOwn, accept());
      add("claims", isType(ETH_P_IPV6), withoutFamily(saddrIn(parseCidr(LINK_LOCAL))), accept());
      add("claims", gotoChain(FORGED_CHAIN));
      // No map has these addresses: the chain "forward" keeps them from isolated pods.
      add("route", isType(ETH_P_IPV6), withoutFamily(daddrIn(parseCidr(LINK_LOCAL))), gotoChain("link"));
      add("route", etherDaddrFromMap([iifname()], ROUTED_PORTS), setPacketTypeHost());
      // The kernel checks sources only of packets that leave by another link than they came from.
      add("link", isType(ETH_P_IPV6), setHopLimit(1));
      add("forward", inSet([oifname()], ISOLATED_PORTS), gotoChain(ISOLATED_PORTS));
      add("forward", inSet([iifname()], ISOLATED_PORTS), gotoChain(ISOLATED_PORTS));
      add(ISOLATED_PORTS, isType(ETH_P_ARP), accept());
      for (const passes of neighbourly()) add(ISOLATED_PORTS, passes, accept());
      add(ISOLATED_PORTS, gotoChain(BRIDGED_CHAIN));
    }),
    ...dropRules(BRIDGE_DROPS),
  ],
};

export const DROP_CHAINS: readonly (readonly [TableDefinition, readonly DropChain[]])[] = [
  [policyTable, INET_DROPS],
  [policyBridgeTable, BRIDGE_DROPS],
];

/** For a table of family bridge, where the type says what a packet is. */
const withoutFamily = (statement: RuleStatement): RuleStatement => statement.slice(2);
