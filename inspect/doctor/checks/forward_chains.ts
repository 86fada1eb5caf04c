import { PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { FAMILY_NAMES } from "../../../ffi/nft/family_names.ts";
import { familyOf, type Ip, ipBytes, ipOf } from "../../../ffi/address.ts";
import * as nft from "../../../ffi/nft/objects.ts";
import { NF_INET_FORWARD, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6 } from "../../../ffi/nft/uapi.ts";
import type { Link } from "../../../ffi/route/link.ts";
import { IPPROTO_TCP } from "../../../ffi/sys/uapi.ts";
import { describeLegacyFilters } from "../../../plugins/lib/ruleset/iptables_legacy.ts";
import { bridgeNetfilterSysctl } from "../../../plugins/lib/links/bridge_netfilter.ts";
import {
  EARLY_CHAIN,
  FORWARD_MARK,
  FORWARD_MARK_PRIORITY,
  forwardSetName,
} from "../../../plugins/lib/ruleset/forward_mark.ts";
import { inetTable } from "../../../plugins/lib/ruleset/inet_table.ts";
import { familiesOf, isOnLoopback, PROTOCOLS } from "../../../spec/port_mapping.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { acceptMarkedCommand, deleteRuleCommand } from "../nft_command.ts";
import { reattach } from "../reattach.ts";
import { abbreviate, advise, broken, type Finding, ok, type Remedy, type Repair, warning } from "../finding.ts";
import { findDrop, type RulePlace, RulesetReader } from "../packet_walk.ts";
import type { WalkedPacket } from "../walked_packet.ts";
import { type ForeignChain, listForeignBaseChains } from "../foreign_chains.ts";
import { describeRulePlace } from "../rule_place_text.ts";
import { publishedAddress } from "../published_address.ts";
import { acceptsAfterRestore, takesAcceptRule } from "../restored_ruleset.ts";
import {
  addressesOfFamily,
  type ExaminedContainer,
  findOutgoingLink,
  findPortTarget,
  type Subject,
} from "../subject.ts";
import { hasTable } from "./ruleset.ts";

/** Chains of other tables that drop what the containers send, or what published ports lead to them. */
export function checkForwardChains(subject: Subject): Finding[] {
  const { host, containers, families } = subject;
  const packets = containers.flatMap((container) => forwardedPackets(subject, container));
  // Without our own table nobody has the mark: that is reported elsewhere.
  if (packets.length === 0 || subject.forwardAccept && !hasTable(subject)) return [];
  const chains = listForeignBaseChains(host.netns.nft, [NF_INET_FORWARD]);
  const ruleset = new RulesetReader(host.netns.nft);
  const drops = chains.flatMap((chain) => findDrops(ruleset, chain, packets));
  const problems = [
    ...[...Map.groupBy(drops, ({ place }) => place)].map(([place, all]) => describeDrop(subject, place, all)),
    ...families.flatMap((family) =>
      describeLegacyFilters(host.netns, [family]).map((text) => warning(text, legacyMend(subject, family)))
    ),
  ];
  if (problems.length > 0) return problems;
  const names = chains.map(({ family, table, name }) => `"${name}" of table "${FAMILY_NAMES[family]} ${table}"`);
  const accepting = `forwarded packets are accepted by ${names.length === 1 ? "chain" : "chains"} ${abbreviate(names)}`;
  return [ok(names.length === 0 ? "no other table filters forwarded packets" : accepting)];
}

/** Its rules cannot be read here. */
function legacyMend({ subnets, containers }: Subject, family: 4 | 6): Remedy {
  const addresses = containers.flatMap((container) => addressesOfFamily(container, family));
  const own = [...subnets.filter((subnet) => familyOf(subnet) === family), ...addresses][0]!;
  const program = family === 4 ? "iptables-legacy" : "ip6tables-legacy";
  const answers = ["-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED,DNAT"];
  const commands = [
    [program, "-I", "FORWARD", "-s", own, "-j", "ACCEPT"],
    [program, "-I", "FORWARD", "-d", own, ...answers, "-j", "ACCEPT"],
  ];
  return advise(`if ${program} -S FORWARD shows that it drops`, commands.map(shellCommand).join(" && "));
}

export interface ForwardedPacket extends WalkedPacket {
  readonly container: ExaminedContainer;
  readonly direction: "from" | "to";
  readonly address: Ip;
  /** What the packet had before the translation of a published port. */
  readonly called?: Pick<WalkedPacket, "destination" | "destinationPort">;
}

/** What leaves the container for outside, and what published ports lead to it. */
export function forwardedPackets(subject: Subject, container: ExaminedContainer): ForwardedPacket[] {
  const { host, bridge, gatewayDevice, isRouted, masquerades } = subject;
  const inner = bridge ? gatewayDevice ?? findBridge(subject) : container.hostVeth;
  if (!inner?.name) return [];
  const innerName = inner.name;
  const mappings = container.publishedPorts?.mappings ?? [];
  return container.ips.flatMap(({ address }) => {
    const ip = ipOf(address);
    const family = familyOf(ip);
    // Without an uplink, packets may still go to other networks of the host: an empty name matches no rule.
    const uplink = findOutgoingLink(host, PUBLIC_ADDRESS[family])?.name ?? "";
    const base = { container, address: ip, mark: 0, protocol: IPPROTO_TCP, destinationPort: 443, isDnat: false };
    const out: ForwardedPacket[] = isRouted || masquerades
      ? [{
        ...base,
        direction: "from",
        iifname: innerName,
        oifname: uplink,
        source: ip,
        destination: PUBLIC_ADDRESS[family],
      }]
      : [];
    const published = mappings.filter((mapping) =>
      findPortTarget(container, family) === ip && familiesOf(mapping).includes(family) && !isOnLoopback(mapping)
    )
      .map((mapping): ForwardedPacket => {
        const called = publishedAddress(subject, mapping, family);
        return {
          ...base,
          direction: "to",
          iifname: uplink,
          oifname: innerName,
          source: PUBLIC_ADDRESS[family],
          destination: ip,
          protocol: PROTOCOLS[mapping.protocol],
          destinationPort: mapping.containerPort,
          isDnat: true,
          ...called && { called: { destination: called, destinationPort: mapping.hostPort } },
        };
      });
    return [...out, ...published, ...bridgedPackets(subject, container, ip, base)];
  });
}

const findBridge = ({ host, bridge }: Subject): Link | undefined =>
  host.links.find(({ name }) => name === bridge?.name);

/** With br_netfilter, packets between containers of one bridge pass the forward chains too. */
function bridgedPackets(
  subject: Subject,
  container: ExaminedContainer,
  source: Ip,
  base: Omit<ForwardedPacket, "iifname" | "oifname" | "source" | "destination" | "direction">,
): ForwardedPacket[] {
  const family = familyOf(source);
  const setting = bridgeNetfilterSysctl(family);
  const name = findBridge(subject)?.name;
  const [destination] = subject.neighbours.filter((other) => other !== container)
    .flatMap((other) => addressesOfFamily(other, family));
  if (!name || !destination || subject.host.sysctl(setting) !== "1") return [];
  return [{ ...base, direction: "from", iifname: name, oifname: name, source, destination }];
}

interface Drop {
  readonly packet: ForwardedPacket;
  readonly place: string;
  readonly found: RulePlace;
  readonly chain: ForeignChain;
}

function findDrops(
  ruleset: RulesetReader,
  chain: ForeignChain,
  packets: readonly ForwardedPacket[],
): Drop[] {
  const table = { family: chain.family, table: chain.table };
  return packets.flatMap((packet) => {
    const protocol = familyOf(packet.address) === 4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
    if (chain.family !== NFPROTO_INET && chain.family !== protocol) return [];
    const found = findDrop(ruleset, table, chain, { ...packet, mark: markOf(ruleset.nl, chain, packet.address) });
    return found ? [{ packet, place: describeRulePlace(table, chain, found), found, chain }] : [];
  });
}

/** The mark that our table gives a container's packets before this chain. */
function markOf(nl: Subject["host"]["netns"]["nft"], { hook }: nft.Chain, address: Ip): number {
  const sees = (hook?.priority ?? 0) > FORWARD_MARK_PRIORITY || nft.findChain(nl, inetTable, EARLY_CHAIN.name);
  if (!sees) return 0;
  const [element] = nft.getAll(nl, [nft.elementQuery(inetTable, forwardSetName(familyOf(address)), ipBytes(address))]);
  return element ? FORWARD_MARK : 0;
}

function describeDrop(subject: Subject, place: string, drops: readonly Drop[]): Finding {
  const [{ packet, found }] = drops as [Drop, ...Drop[]];
  const others = new Set(drops.map((drop) => drop.packet.address)).size - 1;
  const directions = new Set(drops.map((drop) => drop.packet.direction));
  const whom = `${[...directions].join(" and ")} ${packet.address}${others > 0 ? ` and ${others} more` : ""}`;
  const what = `forwarded packets ${whom} are${found.isCertain ? "" : " perhaps"} dropped by ${place}`;
  const { remedy, repair } = dropRemedy(subject, drops);
  return found.isCertain ? broken(what, remedy, repair) : warning(what, remedy);
}

function dropRemedy(
  subject: Subject,
  drops: readonly Drop[],
): { readonly remedy: Remedy; readonly repair?: Repair } {
  const { network, forwardAccept, host: { netns: { nft: nl } } } = subject;
  const [{ packet: { container, address }, found: { chain: dropping, rule }, chain: base }] = drops as [
    Drop,
    ...Drop[],
  ];
  if (base.table === "firewalld") return { remedy: trustCommand(drops) };
  if (!forwardAccept) {
    const file = network.source ?? "the configuration";
    return { remedy: reattach(container.attachment, `append { "type": "firewall" } to "plugins" in ${file}`) };
  }
  if (container.hasOldConfiguration) return { remedy: reattach(container.attachment) };
  if (drops.every(({ packet }) => acceptsAfterRestore(nl, base, forwardAccept, packet))) {
    return { remedy: `cni run restore ${network.name}`, repair: { kind: "restore", network: network.name } };
  }
  const isAcceptable = markOf(nl, base, address) !== 0 && takesAcceptRule(nl, base, forwardAccept);
  const table = { family: base.family, table: base.table };
  if (rule && !isAcceptable) {
    const command = deleteRuleCommand({ ...table, chain: dropping }, rule.handle);
    return { remedy: advise("unless somebody means this rule, remove it", command) };
  }
  const scope = 'this accepts the packets of all containers of networks with "firewall", before all rules of the chain';
  return { remedy: advise(scope, acceptMarkedCommand({ ...table, chain: base.name ?? "" })) };
}

/** The command holds now, and after the next start of firewalld. */
function trustCommand(drops: readonly Drop[]): string {
  const sources = [...new Set(drops.map(({ packet }) => `--add-source=${packet.address}`))];
  const words = ["firewall-cmd", "--zone=trusted", ...sources];
  return `${shellCommand(words)} && ${shellCommand([...words, "--permanent"])}`;
}
