import { familyOf, type Ip, ipOf, type Mac } from "../../../ffi/address.ts";
import type { Netlink } from "../../../ffi/netlink/socket.ts";
import * as neighbour from "../../../ffi/route/neighbour.ts";
import { NUD_FAILED, NUD_INCOMPLETE, NUD_STALE } from "../../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../../ffi/sys/uapi.ts";
import { advise, broken, type Finding, ok, type Remedy, warning } from "../finding.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { describeContainer, type ExaminedContainer, gatewayLink, ipCommand, type Subject } from "../subject.ts";

export function checkNeighbours(subject: Subject): Finding[] {
  const { containers, host, families } = subject;
  if (containers.length === 0) return [];
  const onHost = listNeighbours(host.netns.route);
  const problems = [
    ...containers.flatMap((each) => checkEntriesOfContainer(subject, each)),
    ...containers.flatMap((each) => checkEntriesOfHost(subject, each, onHost)),
    ...families.flatMap((family) => {
      const use = neighbour.findTableUse(host.netns.route, family === 4 ? AF_INET : AF_INET6);
      return use ? describeTableUse(family, use) : [];
    }),
  ];
  const isExamined = containers.some(({ device, ips }) => device && ips.length > 0);
  if (problems.length > 0 || !isExamined) return problems;
  return [ok("no neighbour entry of the containers is wrong or has failed")];
}

function listNeighbours(nl: Netlink): neighbour.Neighbour[] {
  return [AF_INET, AF_INET6].flatMap((family) => neighbour.list(nl, family));
}

function checkEntriesOfContainer(subject: Subject, container: ExaminedContainer): Finding[] {
  const { device, state, ips, attachment: { netns } } = container;
  const gateways = new Set(ips.flatMap(({ gateway }) => gateway ?? []));
  if (!device?.name || gateways.size === 0) return [];
  const expected = subject.isRouted ? gatewayLink(subject, container)?.mac : undefined;
  const entries = listNeighbours(state.netns.route).filter(({ index }) => index === device.index);
  return entries.filter(({ address }) => gateways.has(address)).flatMap((entry) =>
    describeEntry(entry, {
      holder: describeContainer(container),
      whose: `gateway ${entry.address}`,
      expected,
      removal: ipCommand(netns, "neigh", "del", entry.address, "dev", device.name!),
      place: { netns, link: device.name! },
    })
  );
}

function checkEntriesOfHost(
  subject: Subject,
  container: ExaminedContainer,
  entries: readonly neighbour.Neighbour[],
): Finding[] {
  const device = gatewayLink(subject, container);
  if (!device?.name) return [];
  const addresses = new Set<Ip>(container.ips.map(({ address }) => ipOf(address)));
  const own = entries.filter(({ index, address }) => index === device.index && addresses.has(address));
  return own.flatMap((entry) =>
    describeEntry(entry, {
      holder: "the host",
      whose: `${entry.address} of ${describeContainer(container)}`,
      expected: container.device?.mac,
      removal: shellCommand(["ip", "neigh", "del", entry.address, "dev", device.name!]),
      place: { link: device.name! },
    })
  );
}

interface EntryContext {
  readonly holder: string;
  readonly whose: string;
  readonly expected: Mac | undefined;
  readonly removal: string;
  readonly place: { readonly netns?: string; readonly link: string };
}

function describeEntry({ state, mac, address }: neighbour.Neighbour, context: EntryContext): Finding[] {
  const { holder, whose, expected, removal, place } = context;
  if (state & (NUD_INCOMPLETE | NUD_FAILED)) {
    const protocol = familyOf(address) === 4 ? "ARP" : "neighbour discovery";
    return [warning(`${whose} has not answered ${protocol} of ${holder}`, resolutionMend(address))];
  }
  if (mac === undefined || expected === undefined || mac === expected) return [];
  const what = `wrong neighbour entry: ${holder} has ${mac} for ${whose}, which is ${expected}`;
  const repair = { kind: "neighbour", ...place, address } as const;
  const mend = `${removal} # if it comes back, another machine has the address`;
  // The kernel asks before it relies on such an entry.
  return [state & NUD_STALE ? warning(what, mend, repair) : broken(what, mend, repair)];
}

export function resolutionMend(address: Ip): Remedy {
  return familyOf(address) === 4
    ? advise("look for rules and VLANs that drop ARP: nft list ruleset; bridge vlan show")
    : advise("if a rule drops neighbour discovery", "ip6tables -I INPUT -p ipv6-icmp -j ACCEPT");
}

/** All namespaces of the host share the table. */
export function describeTableUse(
  family: 4 | 6,
  { entries, limit, refused }: neighbour.NeighbourTableUse,
): Finding[] {
  // Some entries do not count, so that their number alone tells nothing.
  if (refused === 0n || entries < limit * 0.9) return [];
  const what =
    `the IPv${family} neighbour table is full: it has ${entries} entries with a limit of ${limit}, and has ` +
    `refused ${refused} since the host started`;
  return [warning(what, `sysctl -w net.ipv${family}.neigh.default.gc_thresh3=${2 * limit}`)];
}
