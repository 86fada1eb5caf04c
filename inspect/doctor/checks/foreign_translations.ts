import { familyOf, type Ip } from "../../../ffi/address.ts";
import { FAMILY_NAMES } from "../../../ffi/nft/family_names.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import {
  NF_INET_LOCAL_OUT,
  NF_INET_PRE_ROUTING,
  NF_IP_PRI_NAT_DST,
  NFPROTO_INET,
  NFPROTO_IPV4,
  NFPROTO_IPV6,
} from "../../../ffi/nft/uapi.ts";
import { PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { inetTable } from "../../../plugins/lib/ruleset/inet_table.ts";
import { describeHostPort, familiesOf, type PortMapping, PROTOCOLS } from "../../../spec/port_mapping.ts";
import { advise, broken, careful, type Finding, warning } from "../finding.ts";
import { type ForeignChain, listForeignBaseChains } from "../foreign_chains.ts";
import { deleteRuleCommand } from "../nft_command.ts";
import { findTranslation, type RulePlace, RulesetReader } from "../packet_walk.ts";
import type { WalkedPacket } from "../walked_packet.ts";
import { publishedAddress } from "../published_address.ts";
import { addressesOfFamily, type ExaminedContainer, findOutgoingLink, type Subject } from "../subject.ts";

/** Rules of other tables that translate calls of published ports before ours do: the first translation counts. */
export function checkForeignTranslations(subject: Subject): Finding[] {
  const { containers, host: { netns: { nft: nl } } } = subject;
  const calls = containers.flatMap((container) => callsOf(subject, container));
  const order = calls.length > 0 ? readOrder(nl) : undefined;
  if (!order) return [];
  const ruleset = new RulesetReader(nl);
  const found = listForeignBaseChains(nl, [NF_INET_PRE_ROUTING, NF_INET_LOCAL_OUT])
    .filter(({ type, hook }) => type === "nat" && (hook?.priority ?? 0) <= NF_IP_PRI_NAT_DST)
    .flatMap((chain) => calls.flatMap((call) => findTaken(ruleset, chain, call, order)));
  // Chains of several hooks call one chain.
  const byRule = Map.groupBy(found, ({ key }) => key);
  return [...byRule.values()].map(([first]) => describeTaken(first!));
}

interface PublishedCall extends WalkedPacket {
  readonly container: ExaminedContainer;
  readonly mapping: PortMapping;
  readonly hook: number;
}

function callsOf(subject: Subject, container: ExaminedContainer): PublishedCall[] {
  const { host } = subject;
  return (container.publishedPorts?.mappings ?? []).flatMap((mapping) =>
    familiesOf(mapping).flatMap((family) => {
      const destination = publishedAddress(subject, mapping, family);
      if (destination === undefined || addressesOfFamily(container, family).length === 0) return [];
      const base = { container, mapping, destination, mark: 0, isDnat: false, isToHost: true };
      const port = { protocol: PROTOCOLS[mapping.protocol], destinationPort: mapping.hostPort };
      const uplink = findOutgoingLink(host, PUBLIC_ADDRESS[family])?.name ?? "";
      const outside = { hook: NF_INET_PRE_ROUTING, source: PUBLIC_ADDRESS[family], iifname: uplink, oifname: "" };
      const own = { hook: NF_INET_LOCAL_OUT, source: destination, iifname: "", oifname: "lo" };
      return [{ ...base, ...port, ...outside }, { ...base, ...port, ...own }];
    })
  );
}

/** The handle counts up, so it tells the kernel's order of chains with one priority: the newest comes first. */
type TableOrder = ReadonlyMap<string, bigint>;

const keyOf = (family: number, table: string): string => `${family} ${table}`;

function readOrder(nl: Subject["host"]["netns"]["nft"]): TableOrder | undefined {
  const order = new Map(nft.listTables(nl).map(({ family, name = "", handle = 0n }) => [keyOf(family, name), handle]));
  return order.has(keyOf(inetTable.family, inetTable.table)) ? order : undefined;
}

interface TakenCall {
  readonly key: string;
  readonly call: PublishedCall;
  readonly chain: ForeignChain;
  readonly place: RulePlace;
  readonly isFirst: boolean;
}

function findTaken(
  ruleset: RulesetReader,
  chain: ForeignChain,
  call: PublishedCall,
  order: TableOrder,
): TakenCall[] {
  const { family, table, hook } = chain;
  const protocol = familyOf(call.destination) === 4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
  if (hook?.number !== call.hook || (family !== NFPROTO_INET && family !== protocol)) return [];
  const place = findTranslation(ruleset, { family, table }, chain.name ?? "", call);
  if (!place || leadsToContainer(place, call.container)) return [];
  const ownHandle = order.get(keyOf(inetTable.family, inetTable.table)) ?? 0n;
  const isNewer = (order.get(keyOf(family, table)) ?? 0n) > ownHandle;
  const isFirst = (hook.priority ?? 0) < NF_IP_PRI_NAT_DST || isNewer;
  const key = [family, table, place.rule?.handle, call.container.attachment.netns, describeHostPort(call.mapping)];
  return [{ key: key.join(" "), call, chain, place, isFirst }];
}

/** Such as a rule of the reference plugin, or of an engine that publishes the same port. */
function leadsToContainer({ translation }: RulePlace, container: ExaminedContainer): boolean {
  const target: Ip | undefined = translation?.target;
  return target !== undefined && addressesOfFamily(container, familyOf(target)).includes(target);
}

function describeTaken({ call, chain: { family, table }, place, isFirst }: TakenCall): Finding {
  const rule = place.rule!;
  const where = `rule ${rule.number} (${rule.text}; handle ${rule.handle}) of chain "${place.chain}" of table ` +
    `"${FAMILY_NAMES[family]} ${table}"`;
  const leads = place.translation?.target === undefined ? "" : `, which leads to ${place.translation.target}`;
  const port = describeHostPort(call.mapping);
  const removal = deleteRuleCommand({ family, table, chain: place.chain }, rule.handle);
  const mend = careful(advise("publish another port, or remove the rule unless somebody means it", removal));
  if (!isFirst) return warning(`calls of ${port} may be translated by ${where}${leads}`, mend);
  if (!place.isCertain) return warning(`calls of ${port} are perhaps taken by ${where}${leads}`, mend);
  return broken(`calls of ${port} are taken by ${where}${leads}`, mend);
}
