/** The table for IPv4 and IPv6: static chains and rules, and maps with elements of attachments. */
import { parseCidr, parseIp } from "../../../ffi/address.ts";
import {
  ifnameType,
  inetProto,
  inetService,
  ipv4Addr,
  ipv6Addr,
  mapOf,
  mark,
  setOf,
  withComment,
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
import {
  NF_INET_FORWARD,
  NF_INET_LOCAL_IN,
  NF_INET_LOCAL_OUT,
  NF_INET_POST_ROUTING,
  NF_INET_PRE_ROUTING,
  NF_IP_PRI_FILTER,
  NF_IP_PRI_NAT_DST,
  NF_IP_PRI_NAT_SRC,
  NF_IP_PRI_RAW,
  NFPROTO_INET,
} from "../../../ffi/nft/uapi.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import { RECORD_SET, recordSet } from "./owner_records.ts";
import { requireTable } from "./table.ts";
import type { TableBuilder, TableDefinition } from "./table_definition.ts";
import { forwardMarkChains, forwardMarkRules } from "./forward_mark.ts";
import { bridgeSetName, INGRESS_POLICIES, ingressChainElements } from "./inet_shared_chains.ts";

const INET_TABLE = { family: NFPROTO_INET, table: "cni" };

const bothFamilies = (name: string): string[] => [`${name}4`, `${name}6`];

/** Published ports of all addresses. Conditions on a port of one address continue here. */
export const ANY_ADDRESS_CHAIN = "hostports_any_address";

export const inetTable: TableDefinition = {
  ...INET_TABLE,
  create(tx) {
    tx.addTable({ family: INET_TABLE.family, name: INET_TABLE.table, comment: "Container networks; managed by cni" });
    for (const family of [4, 6] as const) addMaps(tx, family);
    const loopbackMaps = { loopback4: [], hostip_loopback4: [ipv4Addr] };
    for (const [name, hostAddress] of Object.entries(loopbackMaps)) {
      const shape = mapOf([...hostAddress, inetProto, inetService], [ipv4Addr]);
      tx.addSet({ ...INET_TABLE, name, ...withComment(shape, "Published ports, and who calls them for 127.0.0.1") });
    }
    const bridges = withComment(setOf([ifnameType]), "Bridges with an ingressPolicy, which keep each other out");
    tx.addSet({ ...INET_TABLE, name: "ingress_bridges", ...bridges });
    for (const policy of INGRESS_POLICIES) {
      const shape = withComment(mapOf([ifnameType], "verdict"), `Bridges with ingressPolicy ${policy}`);
      tx.addSet({ ...INET_TABLE, name: bridgeSetName(policy), ...shape });
    }
    tx.addSet({ ...INET_TABLE, name: RECORD_SET, ...recordSet() });
    tx.addChain({
      ...INET_TABLE,
      name: "hostports",
      comment: "Published ports, first those of one address of the host",
    });
    tx.addChain({ ...INET_TABLE, name: ANY_ADDRESS_CHAIN, comment: "Published ports of all addresses of the host" });
    for (const chain of [...forwardMarkChains(), ...baseChains()]) tx.addChain({ ...INET_TABLE, ...chain });
  },
  purposes: {
    masquerade: ["masquerade", "masquerade_standby"].flatMap(bothFamilies),
    ingress: ["ingress", "forward"].flatMap(bothFamilies),
    ports: [
      ...["hostports", "hostip_hostports", "conditions", "hostip_conditions", "hairpin", "hostports_standby"]
        .flatMap(bothFamilies),
      ...["loopback4", "hostip_loopback4"],
    ],
  },
  sentinel: { chain: "after_filter", rules: 1 },
  rules: () => staticRules().map(([chain, ...parts]) => ({ chain, expressions: rule(...parts) })),
  chainElementsOf: ingressChainElements,
};

function addMaps(tx: TableBuilder, family: 4 | 6): void {
  const address = family === 4 ? ipv4Addr : ipv6Addr;
  const port = [inetProto, inetService];
  const maps = {
    hostports: [mapOf(port, [address, inetService]), "Published ports, and the containers that they lead to"],
    hostip_hostports: [mapOf([address, ...port], [address, inetService]), "Published ports of one address of the host"],
    conditions: [mapOf(port, "verdict"), "Published ports with conditions"],
    hostip_conditions: [
      mapOf([address, ...port], "verdict"),
      "Published ports of one address of the host, with conditions",
    ],
    hairpin: [
      mapOf([address], "verdict"),
      "Containers that answer some callers of published ports past the host",
    ],
    masquerade: [mapOf([address], "verdict"), "Containers that are hidden behind the host"],
    ingress: [mapOf([address], "verdict"), "Containers, and who may call them"],
    forward: [setOf([address]), "Containers whose packets other firewalls are to accept"],
    // Failover elements: no rule uses these sets.
    masquerade_standby: [
      mapOf([address, mark], "verdict"),
      "Containers whose address another one has, out of their reach, that is masqueraded for both",
    ],
    hostports_standby: [
      setOf([address, ...port, address, inetService]),
      "Ports of containers on two networks, which are published over the first one",
    ],
  } as const;
  for (const [name, [shape, comment]] of Object.entries(maps)) {
    tx.addSet({ ...INET_TABLE, name: `${name}${family}`, ...withComment(shape, comment) });
  }
}

const baseChains = () =>
  [
    {
      name: "loopback_output",
      type: "route",
      hook: { number: NF_INET_LOCAL_OUT, priority: NF_IP_PRI_RAW },
      comment: "Calls from 127.0.0.1 to published ports, which get another source",
    },
    {
      name: "loopback_input",
      type: "filter",
      hook: { number: NF_INET_LOCAL_IN, priority: NF_IP_PRI_NAT_SRC + 10 },
      comment: "Answers to them, behind the translation",
    },
    {
      name: "prerouting",
      type: "nat",
      hook: { number: NF_INET_PRE_ROUTING, priority: NF_IP_PRI_NAT_DST },
      comment: "Calls from elsewhere to published ports",
    },
    {
      name: "output",
      type: "nat",
      hook: { number: NF_INET_LOCAL_OUT, priority: NF_IP_PRI_NAT_DST },
      comment: "Calls from this host to published ports",
    },
    {
      name: "forward",
      type: "filter",
      hook: { number: NF_INET_FORWARD, priority: NF_IP_PRI_FILTER },
      comment: "Who may call containers",
    },
    {
      name: "postrouting",
      type: "nat",
      hook: { number: NF_INET_POST_ROUTING, priority: NF_IP_PRI_NAT_SRC },
      comment: "Whose address is hidden behind the host's",
    },
  ] as const;

function staticRules(): [chain: string, ...RuleStatement[]][] {
  const loopback = parseCidr("127.0.0.0/8");
  const localhost = parseCidr("127.0.0.1/32");
  return [
    // The kernel sends nothing from 127.0.0.1 over a link and takes no answer to it, unless route_localnet exposes these addresses to
    // neighbours. So such a call gets an address of the host as its source before conntrack sees it, and the answer gets 127.0.0.1 back.
    ["loopback_output", saddrIn(localhost), saddrFromMap([daddr(4), l4proto(), dport()], "hostip_loopback4")],
    ["loopback_output", saddrIn(localhost), daddrIn(loopback), saddrFromMap([l4proto(), dport()], "loopback4")],
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
    // The kernel delivers no answer to ::1 from a link. Without a translation, a caller of "localhost" fails at once and tries 127.0.0.1.
    ["output", daddrIn(parseCidr("::1/128")), returnFromChain()],
    ["output", fibDaddrLocal(), jump("hostports")],
    ...portRules((family) => [daddr(family), l4proto(), dport()], "hostports", "hostip_"),
    ["hostports", gotoChain(ANY_ADDRESS_CHAIN)],
    ...portRules(() => [l4proto(), dport()], ANY_ADDRESS_CHAIN, ""),
    // By bridge: a container cannot escape by changing its address.
    ...INGRESS_POLICIES.map((
      policy,
    ): [string, ...RuleStatement[]] => ["forward", vmap([oifname()], bridgeSetName(policy))]),
    ...([4, 6] as const).map((family): [string, ...RuleStatement[]] => [
      "forward",
      vmap([daddr(family)], `ingress${family}`),
    ]),
    ...([4, 6] as const).map((family): [string, ...RuleStatement[]] => [
      "postrouting",
      ctStatusDnat(),
      vmap([daddr(family)], `hairpin${family}`),
    ]),
    ...([4, 6] as const).map((family): [string, ...RuleStatement[]] => [
      "postrouting",
      vmap([saddr(family)], `masquerade${family}`),
    ]),
  ];
}

type LookupFields = Parameters<typeof dnatMap>[1];

/** Those with conditions come first. */
function portRules(
  fields: (family: 4 | 6) => LookupFields,
  chain: string,
  prefix: string,
): [chain: string, ...RuleStatement[]][] {
  return ([4, 6] as const).flatMap((family): [string, ...RuleStatement[]][] => [
    [chain, metaNfproto(family), vmap(fields(family), `${prefix}conditions${family}`)],
    [chain, dnatMap(family, fields(family), `${prefix}hostports${family}`)],
  ]);
}

/** Checks that the table is whole, or could be made. @throws {CniError} code 50 */
export function requireInetTable(nl: Netlink): void {
  requireTable(nl, inetTable);
}
