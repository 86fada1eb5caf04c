import { familyOf, type Ip, ipOf } from "../../../ffi/address.ts";
import { NF_INET_PRE_ROUTING, NFPROTO_INET, NFPROTO_IPV4, NFPROTO_IPV6 } from "../../../ffi/nft/uapi.ts";
import type { Link } from "../../../ffi/route/link.ts";
import { IPPROTO_TCP } from "../../../ffi/sys/uapi.ts";
import { PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { type ForeignChain, listForeignBaseChains } from "../foreign_chains.ts";
import { broken, type Finding, warning } from "../finding.ts";
import { markBehind, RulesetReader } from "../packet_walk.ts";
import { type Cause, Routing, type Way } from "../routing.ts";
import { type ExaminedContainer, gatewayLink, type Subject } from "../subject.ts";
import { addressesBehind } from "./routes_back.ts";

/** Rules of policy routing, and routes that drop or refuse, on the host: they lead packets of containers astray. */
export function checkRouting(subject: Subject): Finding[] {
  if (!subject.isRouted) return [];
  const routing = new Routing(subject.host);
  if (routing.isPlain) return [];
  const marking = readMarking(subject);
  const outside = new Map(
    subject.families.map((family) => [family, routing.find({ destination: PUBLIC_ADDRESS[family] })]),
  );
  const own = [...outside.values()].flatMap((way) => describeOwn(subject, way));
  const diverted = subject.containers.flatMap((container) =>
    addressesBehind(subject, container).flatMap((address): Diversion[] => {
      const ip = ipOf(address);
      return [
        ...divertedFrom(subject, routing, marking, container, ip, outside.get(familyOf(ip))!),
        ...divertedTo(subject, routing, container, ip, outside.get(familyOf(ip))!),
      ];
    })
  );
  const byCause = Map.groupBy(diverted, ({ cause, direction }) => `${direction} ${cause.what}`);
  return [...own, ...[...byCause.values()].map((all) => describeDiversion(subject, all))];
}

function describeOwn({ masquerades }: Subject, way: Way): Finding[] {
  const cause = way.oif === undefined ? way.cause() : undefined;
  if (!cause) return [];
  const what = `packets of the host and of containers to outside are stopped by ${cause.what}`;
  return [masquerades ? broken(what, cause.remedy) : warning(what, cause.remedy)];
}

interface Diversion {
  readonly direction: "from" | "to";
  readonly ip: Ip;
  readonly way: Way;
  readonly cause: Cause;
  /** True if only some packets are meant, by ports, protocols and the like. */
  readonly isOfSome: boolean;
}

/** What the container sends to outside, unlike what the host itself sends. */
function divertedFrom(
  subject: Subject,
  routing: Routing,
  marking: Marking,
  container: ExaminedContainer,
  ip: Ip,
  own: Way,
): Diversion[] {
  const destination = PUBLIC_ADDRESS[familyOf(ip)];
  const inLink = gatewayLink(subject, container)!;
  const mark = routing.selectsByMark ? markOf(marking, inLink, ip, destination) : 0;
  const way = routing.find({ source: ip, destination, inLink, mark });
  const ofSome = way.causesForSome().map((cause): Diversion => ({ direction: "from", ip, way, cause, isOfSome: true }));
  if (way.oif === own.oif && way.gateway === own.gateway) return ofSome;
  const cause = way.cause();
  const isOwn = !cause || cause.what === own.cause()?.what;
  return [...ofSome, ...isOwn ? [] : [{ direction: "from", ip, way, cause, isOfSome: false } as const]];
}

interface Marking {
  readonly ruleset: RulesetReader;
  /** The order is that in which packets pass them. */
  readonly chains: readonly ForeignChain[];
}

/** What marks packets before their route is looked up. */
function readMarking({ host: { netns: { nft } } }: Subject): Marking {
  const priorityOf = ({ hook }: ForeignChain) => hook?.priority ?? 0;
  return {
    ruleset: new RulesetReader(nft),
    chains: listForeignBaseChains(nft, [NF_INET_PRE_ROUTING]).toSorted((a, b) => priorityOf(a) - priorityOf(b)),
  };
}

function markOf({ ruleset, chains }: Marking, { name: iifname = "" }: Link, source: Ip, destination: Ip): number {
  const protocol = familyOf(source) === 4 ? NFPROTO_IPV4 : NFPROTO_IPV6;
  const tcp = { protocol: IPPROTO_TCP, destinationPort: 443 };
  return chains.filter(({ family }) => [NFPROTO_INET, protocol].includes(family)).reduce(
    (mark, { family, table, name = "" }) =>
      markBehind(ruleset, { family, table }, name, {
        ...tcp,
        iifname,
        oifname: "",
        source,
        destination,
        mark,
        isDnat: false,
      }),
    0,
  );
}

/** What the host sends to the container, and what it forwards to it. */
function divertedTo(
  subject: Subject,
  routing: Routing,
  container: ExaminedContainer,
  ip: Ip,
  outside: Way,
): Diversion[] {
  const device = gatewayLink(subject, container)!;
  const source = PUBLIC_ADDRESS[familyOf(ip)];
  const uplink = subject.host.links.find(({ index }) => index === outside.oif);
  const packets = [{ destination: ip }, ...uplink ? [{ destination: ip, source, inLink: uplink }] : []];
  return packets.flatMap((packet): Diversion[] => {
    const way = routing.find(packet);
    const cause = way.oif === device.index ? undefined : way.cause();
    return [
      ...cause ? [{ direction: "to", ip, way, cause, isOfSome: false } as const] : [],
      ...way.causesForSome().map((cause) => ({ direction: "to", ip, way, cause, isOfSome: true } as const)),
    ];
  }).slice(0, 1);
}

function describeDiversion({ host }: Subject, all: readonly Diversion[]): Finding {
  const [{ direction, ip, way, cause, isOfSome }] = all as [Diversion, ...Diversion[]];
  const others = new Set(all.map((each) => each.ip)).size - 1;
  const whose = `packets ${direction} ${ip}${others > 0 ? ` and ${others} more` : ""}`;
  if (isOfSome) return warning(`some ${whose} are stopped or sent elsewhere by ${cause.what}`, cause.remedy);
  if (way.oif === undefined) return broken(`${whose} are stopped by ${cause.what}`, cause.remedy);
  const device: Link | undefined = host.links.find(({ index }) => index === way.oif);
  const what = `${whose} are sent to "${device?.name}" by ${cause.what}`;
  // Somebody may want another way to outside for containers.
  return direction === "to" ? broken(what, cause.remedy) : warning(`${what}, unlike the host's own`, cause.remedy);
}
