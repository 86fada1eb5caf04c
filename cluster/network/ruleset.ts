/**
 * The table of the cluster's network: what is masqueraded, and who may use the tunnel.
 *
 * Its rules depend on settings and on the lengths of prefixes only. Nodes are elements.
 */
import {
  type Cidr,
  familyOf,
  type Ip,
  ipBytes,
  ipOf,
  networkOf,
  networksOverlap,
  prefixLengthOf,
} from "../../ffi/address.ts";
import { ifindexType, ipv4Addr, ipv6Addr, namedSet, setOf } from "../../ffi/nft/datatypes.ts";
import * as nft from "../../ffi/nft/objects.ts";
import {
  accept,
  concatenation,
  ctDirectionReply,
  ctStatusDnat,
  daddr,
  dport,
  drop,
  equals,
  fibDaddrOfInputLink,
  fibReversePathMissing,
  gotoChain,
  iif,
  inSet,
  l4proto,
  markHas,
  masked,
  masquerade,
  notrack,
  portField,
  returnFromChain,
  rule,
  type RuleStatement,
  saddr,
  setMark,
  transportBytes,
  u32HostOrder,
} from "../../ffi/nft/statements.ts";
import { type Transaction, transaction } from "../../ffi/nft/transaction.ts";
import * as uapi from "../../ffi/nft/uapi.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { ETH_P_IP, ETH_P_IPV6, ICMPV6_PKT_TOOBIG, IPPROTO_ICMPV6, IPPROTO_UDP } from "../../ffi/sys/uapi.ts";
import { isSameRule } from "../../plugins/lib/ruleset/chain_rules.ts";
import { CLUSTER_TABLE } from "../../plugins/lib/ruleset/foreign_tables.ts";
import { FORWARD_MARK, FORWARD_MARK_PRIORITY } from "../../plugins/lib/ruleset/forward_mark.ts";
import type { StaticRule } from "../../plugins/lib/ruleset/table.ts";
import { collectRecent, Garbage } from "../garbage.ts";
import type { ClusterNode } from "../node.ts";
import { intervalElements, widestRanges } from "./intervals.ts";
import { underlayOf } from "./plan.ts";
import { type SetElement, setElementId } from "./set_element.ts";
import type { ClusterSettings } from "./settings.ts";

const ELEMENTS_OF_A_MEGABYTE = 2000;
const COMMENT = "Network between the nodes of the cluster; managed by cni";
const FAMILIES = [4, 6] as const;
type Family = typeof FAMILIES[number];

/** What the rules depend on, beside the settings. */
export type PrefixLengths = Readonly<Record<Family, ReadonlySet<number>>>;

interface TableObjects {
  readonly sets: readonly (nft.SetIn & { readonly name: string })[];
  readonly chains: readonly (nft.ChainIn & { readonly name: string })[];
  readonly rules: readonly StaticRule[];
}

/** Whether other nodes have an address or a range, too. */
export type IsShared = (addressOrRange: Ip | Cidr) => boolean;

/** Whether a range of another node overlaps with one of this node: this one is younger, so the other one keeps it. */
export const isContested = (own: ClusterNode, cidr: Cidr): boolean =>
  own.podCidrs.some((each) => familyOf(each) === familyOf(cidr) && networksOverlap(each, cidr));

/** Elements that a node puts into the sets, the own one too. Those of {@linkcode ownElements} are beside them. */
export function elementsOfNode(own: ClusterNode, node: ClusterNode, isShared: IsShared = () => false): SetElement[] {
  const podCidrs = node.podCidrs.filter((cidr) => !isShared(cidr));
  const addresses = node.addresses.filter((ip) => !isShared(ip))
    .map((ip) => ({ set: `nodes${familyOf(ip)}`, key: ipBytes(ip) }));
  if (node.uid === own.uid) return addresses;
  const ranges = podCidrs.filter((cidr) => !isContested(own, cidr))
    .flatMap((cidr) => intervalElements(`cluster${familyOf(cidr)}`, cidr));
  const underlay = underlayOf(own, node);
  const sources = underlay === undefined ? [] : podCidrs.map((cidr) => ({
    set: tunnelSet(familyOf(underlay.source), familyOf(cidr)),
    key: concatenation(...[underlay.source, underlay.destination, ipOf(networkOf(cidr))].map(ipBytes)),
  }));
  return [...addresses, ...ranges, ...sources];
}

/** Elements that no other node changes, unless its range is contested. @param contested such ranges of other nodes */
export function ownElements(
  own: ClusterNode,
  formerCidrs: readonly Cidr[],
  contested: readonly Cidr[],
  { nonMasqueradeCidrs }: ClusterSettings,
): SetElement[] {
  const former = widestRanges([...own.podCidrs, ...formerCidrs]).filter((cidr) => !own.podCidrs.includes(cidr));
  const inSets = (name: string, cidrs: readonly Cidr[]) =>
    widestRanges(cidrs).flatMap((cidr) => intervalElements(`${name}${familyOf(cidr)}`, cidr));
  return [
    ...inSets("own", [...own.podCidrs, ...formerCidrs]),
    ...inSets("former", former),
    ...inSets("cluster", [...own.podCidrs, ...contested]),
    ...inSets("outside", [...MULTICAST, ...nonMasqueradeCidrs]),
  ];
}

/** Links by which nodes may send, beside those that answers leave by. @param indices in any order */
export const uplinkElements = (indices: Iterable<number>): SetElement[] =>
  Array.from(indices, (index) => ({ set: UPLINKS, key: u32HostOrder(index) }));

/** Those that the kernel has now. */
export function listUplinks(nl: Netlink): ReadonlySet<number> {
  const elements = ignoreErrors(["ENOENT"], () => nft.listElements(nl, CLUSTER_TABLE, UPLINKS)) ?? [];
  return new Set(elements.map(({ key }) => new Uint32Array(key.slice().buffer)[0]!));
}

const UPLINKS = "uplinks";
const MULTICAST = ["224.0.0.0/4", "ff00::/8"] as Cidr[];
const tunnelSet = (outer: Family, inner: Family): string => `tunnel${outer}${inner}`;

export function prefixLengthsOf(nodes: Iterable<ClusterNode>): PrefixLengths {
  const lengths = { 4: new Set<number>(), 6: new Set<number>() };
  for (const { podCidrs } of nodes) for (const cidr of podCidrs) lengths[familyOf(cidr)].add(prefixLengthOf(cidr));
  return lengths;
}

export function isCovered(lengths: PrefixLengths, others: PrefixLengths): boolean {
  return FAMILIES.every((family) => others[family].isSubsetOf(lengths[family]));
}

/** @param hasPort whether the tunnel's port is this program's: rules for it would cut off another's packets */
function tableObjects(settings: ClusterSettings, lengths: PrefixLengths, hasPort: boolean): TableObjects {
  const chains = [
    base("prerouting", "filter", uapi.NF_INET_PRE_ROUTING, uapi.NF_IP_PRI_RAW, "Packets of the tunnel"),
    base("output", "filter", uapi.NF_INET_LOCAL_OUT, uapi.NF_IP_PRI_RAW, "Packets of the tunnel"),
    base("input", "filter", uapi.NF_INET_LOCAL_IN, uapi.NF_IP_PRI_FILTER, "Packets of the tunnel"),
    base("forward", "filter", uapi.NF_INET_FORWARD, FORWARD_MARK_PRIORITY + 1, "Packets between nodes"),
    base("postrouting", "nat", uapi.NF_INET_POST_ROUTING, uapi.NF_IP_PRI_NAT_SRC, "Masquerading"),
    { name: "tunnel_input", comment: "Known nodes with sources in their own ranges" },
    { name: "tunnel_forward", comment: "Packets to the tunnel's port of anybody" },
    { name: "tunnel_nodes", comment: "Nodes only: pods would look like one" },
    { name: "forward_mark_services", comment: "Packets of Services, which may have their pods on other nodes" },
    { name: "forward_mark_inbound", comment: "Packets to this node's pods, of other nodes and of their pods" },
  ];
  const rules = [
    ...masqueradingRules(),
    ...hasPort ? [...untrackedRules(settings), ...inputRules(settings, lengths)] : [],
    // Other nodes have tunnels, whatever is in the way of this node's.
    ...settings.tunnel === "never" ? [] : tunnelForwardRules(settings),
    ...markRules(),
  ];
  return {
    sets: [
      ...FAMILIES.flatMap((family) => setsOf(family)),
      namedSet(UPLINKS, setOf([ifindexType]), "Links with a default route, the best or not"),
    ],
    chains: chains.filter(({ name }) => rules.some(({ chain }) => chain === name)),
    rules,
  };
}

const base = (name: string, type: string, number: number, priority: number, comment: string) => ({
  name,
  type,
  hook: { number, priority },
  policy: uapi.NF_ACCEPT,
  comment,
});

function setsOf(family: Family) {
  const address = family === 4 ? ipv4Addr : ipv6Addr;
  const ranges = { ...setOf([address]), flags: uapi.NFT_SET_INTERVAL };
  return [
    namedSet(`own${family}`, ranges, "Ranges of this node's pods, former ones too"),
    namedSet(`former${family}`, ranges, "Ranges that this node had before"),
    namedSet(`cluster${family}`, ranges, "Ranges of all nodes' pods"),
    namedSet(`outside${family}`, ranges, "Other destinations that see pods' addresses"),
    namedSet(`nodes${family}`, setOf([address]), "Addresses of all nodes"),
    ...FAMILIES.map((inner) =>
      namedSet(
        tunnelSet(family, inner),
        setOf([address, address, inner === 4 ? ipv4Addr : ipv6Addr]),
        "This node's address, each other node's, and that one's range of pods",
      )
    ),
  ];
}

const ruleIn = (chain: string, ...parts: RuleStatement[]): StaticRule => ({ chain, expressions: rule(...parts) });

const masqueradingRules = (): StaticRule[] =>
  FAMILIES.flatMap((family) => {
    const isOwn = inSet([saddr(family)], `own${family}`);
    const notIn = (name: string) => inSet([daddr(family)], `${name}${family}`, true);
    return [
      ruleIn("postrouting", isOwn, notIn("cluster"), notIn("outside"), masquerade()),
      // Other nodes have no route to a former range.
      ruleIn("postrouting", inSet([saddr(family)], `former${family}`), notIn("own"), masquerade()),
    ];
  });

const toTunnel = ({ port }: ClusterSettings): RuleStatement => [
  ...equals(l4proto(), Uint8Array.of(IPPROTO_UDP)),
  ...equals(dport(), portField(port)),
];

/** Each connection between pods would have two more of its own: the outer source port depends on the inner flow. */
const untrackedRules = (settings: ClusterSettings): StaticRule[] => [
  ...["prerouting", "output"].flatMap((chain) =>
    FAMILIES.map((family) =>
      ruleIn(
        chain,
        toTunnel(settings),
        inSet([saddr(family)], `nodes${family}`),
        inSet([daddr(family)], `nodes${family}`),
        notrack(),
      )
    )
  ),
  // Conntrack would call them invalid, which many firewalls drop first. Packets of IPv4 may be fragmented on the way.
  ruleIn(
    "prerouting",
    equals(l4proto(), Uint8Array.of(IPPROTO_ICMPV6)),
    equals(transportBytes(0, 1), Uint8Array.of(ICMPV6_PKT_TOOBIG)),
    equals(transportBytes(REPORTED_PROTOCOL, 1), Uint8Array.of(IPPROTO_UDP)),
    equals(transportBytes(REPORTED_PORT, 2), portField(settings.port)),
    inSet([daddr(6)], "nodes6"),
    notrack(),
  ),
];

// After ICMPv6's header of 8 bytes comes the packet that was too large. IPv6's has 40, UDP's the port at 2.
const REPORTED_PROTOCOL = 8 + 6;
const REPORTED_PORT = 8 + 40 + 2;

/**
 * Marks for other firewalls, whose policy may drop, what `inet cni` does not know: that table has marked what this
 * node's pods send, and answers to them.
 */
const markRules = (): StaticRule[] => [
  ruleIn("forward", markHas(FORWARD_MARK), accept()),
  ruleIn("forward", ctStatusDnat(), gotoChain("forward_mark_services")),
  // A container of another network may use the address of a node or pod, and so may somebody outside.
  ruleIn("forward_mark_inbound", fibReversePathMissing(), accept()),
  ...FAMILIES.flatMap((family) => [
    ruleIn("forward", inSet([daddr(family)], `own${family}`), gotoChain("forward_mark_inbound")),
    ruleIn("forward_mark_services", inSet([daddr(family)], `cluster${family}`), setMark(FORWARD_MARK), accept()),
    // Answers of a pod on another node. Calls may lead to containers that others publish.
    ruleIn(
      "forward_mark_services",
      ctDirectionReply(),
      inSet([saddr(family)], `cluster${family}`),
      setMark(FORWARD_MARK),
      accept(),
    ),
    ...["cluster", "nodes"].map((callers) =>
      ruleIn("forward_mark_inbound", inSet([saddr(family)], `${callers}${family}`), setMark(FORWARD_MARK), accept())
    ),
  ]),
];

const tunnelForwardRules = (settings: ClusterSettings): StaticRule[] => [
  // One look at most packets.
  ruleIn("forward", toTunnel(settings), gotoChain("tunnel_forward")),
  ...FAMILIES.map((family) =>
    ruleIn("tunnel_forward", inSet([daddr(family)], `nodes${family}`), gotoChain("tunnel_nodes"))
  ),
  // A Service may lead there, too.
  ruleIn("tunnel_nodes", ctStatusDnat(), drop()),
  // A pod may use the address of a node.
  ruleIn("tunnel_nodes", fibReversePathMissing(), drop()),
  ...FAMILIES.map((family) => ruleIn("tunnel_nodes", inSet([saddr(family)], `nodes${family}`), returnFromChain())),
  ruleIn("tunnel_nodes", drop()),
];

const inputRules = (settings: ClusterSettings, lengths: PrefixLengths): StaticRule[] => [
  ruleIn("input", toTunnel(settings), gotoChain("tunnel_input")),
  ruleIn("tunnel_input", ctStatusDnat(), drop()),
  // Nodes send to the link that has this node's address, which answers may leave by another.
  // Where the address is on lo, they send to any uplink. A pod may use the address of a node.
  ruleIn("tunnel_input", fibDaddrOfInputLink(true), inSet([iif()], UPLINKS, true), fibReversePathMissing(), drop()),
  ruleIn("tunnel_input", equals(transportBytes(VXLAN_HEADER, 8), vxlanHeader(settings.vni), true), drop()),
  ...FAMILIES.flatMap((outer) =>
    FAMILIES.flatMap((inner) =>
      [...lengths[inner]].sort((a, b) => a - b).map((length) =>
        ruleIn(
          "tunnel_input",
          equals(transportBytes(INNER_ETHERTYPE, 2), portField(ETHERTYPE[inner])),
          // Towards other addresses of a node, pods are masqueraded: they would look like a node, too.
          inSet([daddr(outer), saddr(outer), masked(INNER_SADDR[inner], length)], tunnelSet(outer, inner)),
          accept(),
        )
      )
    )
  ),
  ruleIn("tunnel_input", drop()),
];

// Offsets from the start of the UDP header, which has 8 bytes as VXLAN's. Ethernet's has 14, the type at its end.
const VXLAN_HEADER = 8;
const INNER_ETHERTYPE = 28;
const ETHERTYPE = { 4: ETH_P_IP, 6: ETH_P_IPV6 };
const INNER_SADDR = { 4: transportBytes(30 + 12, 4), 6: transportBytes(30 + 8, 16) };

/** The flag says that there is an identifier. */
const vxlanHeader = (vni: number): Uint8Array => Uint8Array.of(8, 0, 0, 0, vni >> 16, vni >> 8, vni, 0);

/**
 * Makes the table what it should be, in one transaction. Elements that are right stay.
 *
 * @param hasPort see {@linkcode tableObjects}
 * @returns what was wrong; `undefined` if nothing was
 */
export function syncRuleset(
  nl: Netlink,
  settings: ClusterSettings,
  lengths: PrefixLengths,
  hasPort: boolean,
  desired: Iterable<SetElement>,
): string | undefined {
  const objects = tableObjects(settings, lengths, hasPort);
  const isPresent = nft.findTable(nl, CLUSTER_TABLE) !== undefined;
  const hasAll = isPresent && hasObjects(nl, objects);
  const missing = textsOf(objects, desired);
  const tx = transaction(nl);
  let count = 0;
  if (hasAll) count += deleteSurplus(nl, tx, missing);
  else addObjects(tx, objects, isPresent);
  for (const [set, texts] of missing) {
    tx.addElements(CLUSTER_TABLE, set, [...texts], elementOf);
    count += texts.size;
  }
  tx.commit();
  if (!hasAll) return isPresent ? "the rules differed" : "the table was missing";
  return count === 0 ? undefined : `${count} elements differed`;
}

function addObjects(tx: Transaction, { sets, chains, rules }: TableObjects, isPresent: boolean): void {
  const { family, table } = CLUSTER_TABLE;
  if (isPresent) tx.deleteTable(CLUSTER_TABLE);
  tx.addTable({ family, name: table, comment: COMMENT });
  for (const set of sets) tx.addSet({ ...set, family, table });
  for (const chain of chains) tx.addChain({ ...chain, family, table });
  for (const each of rules) tx.addRule({ ...each, family, table });
}

/** @param present identities of elements that are there */
function addElements(tx: Transaction, elements: Iterable<SetElement>, present: Set<string>): void {
  const missing = Map.groupBy(elementsBeside(elements, present), ({ set }) => set);
  for (const [set, ofSet] of missing) tx.addElements(CLUSTER_TABLE, set, ofSet);
}

/** Several nodes may want the same. */
function* elementsBeside(elements: Iterable<SetElement>, present: Set<string>): Iterable<SetElement> {
  for (const element of elements) {
    const id = setElementId(element);
    if (present.has(id)) continue;
    present.add(id);
    yield element;
  }
}

function hasObjects(nl: Netlink, { sets, chains, rules }: TableObjects): boolean {
  const presentSets = nft.listSets(nl, CLUSTER_TABLE);
  const presentChains = nft.listChains(nl, CLUSTER_TABLE);
  const presentRules = nft.listLazyRules(nl, CLUSTER_TABLE);
  return presentSets.length === sets.length && presentChains.length === chains.length &&
    presentRules.length === rules.length &&
    sets.every(({ name, flags, keyLength }) =>
      presentSets.some((each) => each.name === name && (each.flags ?? 0) === flags && each.keyLength === keyLength)
    ) &&
    chains.every(({ name, hook, type, policy }) =>
      presentChains.some((each) =>
        each.name === name && each.type === type && each.policy === policy && each.hook?.number === hook?.number &&
        each.hook?.priority === hook?.priority
      )
    ) &&
    chains.every(({ name }) => {
      const [present, wanted] = [presentRules, rules].map((list) => list.filter(({ chain }) => chain === name));
      return present!.length === wanted!.length &&
        wanted!.every(({ expressions }, i) =>
          isSameRule(present![i] as nft.LazyRule, expressions as StaticRule["expressions"])
        );
    });
}

/** The elements of each set. Tens of thousands of texts are small. */
function textsOf({ sets }: TableObjects, elements: Iterable<SetElement>): Map<string, Set<string>> {
  const texts = new Map(sets.map(({ name }) => [name, new Set<string>()]));
  const garbage = new Garbage(ELEMENTS_OF_A_MEGABYTE);
  for (const element of elements) {
    garbage.step();
    texts.get(element.set)!.add(textOf(element));
  }
  return texts;
}

/** @param wanted loses what is there @returns how many are deleted */
function deleteSurplus(nl: Netlink, tx: Transaction, wanted: ReadonlyMap<string, Set<string>>): number {
  let count = 0;
  for (const [set, texts] of wanted) {
    collectRecent();
    const surplus = nft.listElements(nl, CLUSTER_TABLE, set).filter((element) => !texts.delete(textOf(element)))
      .sort(compareElements);
    tx.deleteElements(CLUSTER_TABLE, set, surplus);
    count += surplus.length;
  }
  return count;
}

/** The kernel may refuse to delete the end of an interval before its start. Where two meet, the end comes first. */
const compareElements = (a: nft.Element, b: nft.Element): number =>
  Buffer.compare(a.key, b.key) || (b.flags ?? 0) - (a.flags ?? 0);

const textOf = ({ key, flags = 0 }: nft.Element): string => `${key.toHex()} ${flags}`;

function elementOf(text: string): nft.Element {
  const [key, flags] = text.split(" ");
  return { key: Uint8Array.fromHex(key!), ...flags === "0" ? {} : { flags: Number(flags) } };
}

function deleteElements(tx: Transaction, elements: Iterable<SetElement>): void {
  for (const [set, ofSet] of Map.groupBy(elements, ({ set }) => set)) tx.deleteElements(CLUSTER_TABLE, set, ofSet);
}

/** Changes elements of a table that has all of `former`, and of `wanted` nothing else. */
export function changeElements(nl: Netlink, former: readonly SetElement[], wanted: readonly SetElement[]): void {
  const [formerIds, wantedIds] = [former, wanted].map((elements) => new Set(elements.map(setElementId)));
  const tx = transaction(nl);
  deleteElements(tx, former.filter((element) => !wantedIds!.has(setElementId(element))));
  addElements(tx, wanted, formerIds!);
  tx.commit();
}

export function removeRuleset(nl: Netlink): boolean {
  if (!nft.findTable(nl, CLUSTER_TABLE)) return false;
  transaction(nl).deleteTable(CLUSTER_TABLE).commit();
  return true;
}
