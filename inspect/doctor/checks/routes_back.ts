import {
  describeOverlap,
  type HostNetwork,
  MIN_FOREIGN_PREFIX_LENGTH,
} from "../../../plugins/lib/links/host_networks.ts";
import {
  type ForeignRoute,
  listForeignRoutes,
  ownLinkTest,
  PUBLIC_ADDRESS,
} from "../../../plugins/lib/links/reachability.ts";
import {
  type Cidr,
  containsIp,
  familyOf,
  hostPrefix,
  type Ip,
  ipOf,
  networksOverlap,
  prefixLengthOf,
} from "../../../ffi/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { abbreviate, advise, broken, careful, type Finding, ok, warning } from "../finding.ts";
import { shellCommand } from "../../../spec/shell_command.ts";
import { type FindOtherNetwork, otherNetworkFinder } from "../other_networks.ts";
import { reattach } from "../reattach.ts";
import { Routing } from "../routing.ts";
import { findStrictRpFilter } from "../strict_rp_filter.ts";
import {
  describeContainer,
  type ExaminedContainer,
  findOutgoingLink,
  findSubjectOverlap,
  gatewayLink,
  hasAddress,
  hostNetworks,
  type Subject,
} from "../subject.ts";

export function checkRoutesBack(subject: Subject): Finding[] {
  const routing = new Routing(subject.host);
  if (!subject.isRouted) return checkUplink(subject, routing);
  const overlap = findSubjectOverlap(subject);
  const isOwn = ownLinkTest(subject.bridge, subject.network.name);
  const foreign = listForeignRoutes(hostNetworks(subject.host), subject.subnets, isOwn, overlap);
  const findOther = otherNetworkFinder(subject);
  const problems = [
    ...overlap ? describeSubjectOverlap(subject, overlap) : [],
    ...describeForeignRoutes(subject, foreign, findOther),
    ...subject.containers.flatMap((each) => checkRouteBack(subject, each, { foreign, overlap, routing, findOther })),
  ];
  const result = [...problems, ...checkUplink(subject, routing)];
  if (result.length > 0) return result;
  const targets = [
    ...subject.containers.some((container) => addressesBehind(subject, container).length > 0)
      ? ["to the containers"]
      : [],
    ...describeUplinks(subject),
  ];
  return targets.length > 0 ? [ok(`the host's routes lead ${targets.join(", and ")}`)] : [];
}

/** Such a route is never to be removed: a remote login may come by it. */
function describeSubjectOverlap({ network, subnets, allowsRouteOverlap }: Subject, overlap: HostNetwork): Finding[] {
  if (allowsRouteOverlap) return [];
  const file = network.source ?? "the configuration";
  return [
    broken(
      describeOverlap(overlap, subnets),
      advise(`choose another subnet in ${file}, then attach the containers anew`),
    ),
  ];
}

/** Packets of the other network's containers need its routes: to remove them is no advice. */
function describeForeignRoutes(
  subject: Subject,
  foreign: readonly ForeignRoute[],
  findOther: FindOtherNetwork,
): Finding[] {
  const shared = Map.groupBy(foreign, ({ device }) => findOther(device));
  const { network } = subject;
  return [...shared].flatMap(([other, routes]) => {
    if (other === undefined) return routes.flatMap((found) => describeForeignRoute(subject, found));
    const ranges = [...new Set(routes.map(({ subnet }) => subnet))].join(" and ");
    const links = [...new Set(routes.map(({ device }) => `"${device.name}"`))];
    return [warning(
      `network "${other}" has addresses of ${ranges} too, by ${abbreviate(links)}`,
      advise(`choose another subnet for "${network.name}" or "${other}", unless one takes the place of the other`),
    )];
  });
}

function describeForeignRoute({ network, containers }: Subject, { subnet, dst, device }: ForeignRoute): Finding[] {
  const { name } = device;
  const removal = shellCommand(["ip", "route", "del", dst, "dev", name!]);
  const file = network.source ?? "the configuration";
  const mend = careful(advise(`choose another subnet in ${file}, or remove the route`, removal));
  if (dst === subnet) return [warning(`the host routes subnet ${subnet} to "${name}" too`, mend)];
  if (prefixLengthOf(dst) < prefixLengthOf(subnet)) {
    return [warning(`subnet ${subnet} is part of ${dst}, which the host routes to "${name}"`, mend)];
  }
  const isUsed = containers.some(({ ips }) =>
    ips.some(({ address }) => familyOf(address) === familyOf(dst) && containsIp(dst, ipOf(address)))
  );
  return isUsed ? [] : [warning(`the host routes ${dst} of subnet ${subnet} to "${name}"`, mend)];
}

/** The container's addresses to which the host must have a route. */
export function addressesBehind(subject: Subject, container: ExaminedContainer): Cidr[] {
  const device = gatewayLink(subject, container);
  // A VRF has its own table. A link that is down has no routes, which is reported elsewhere.
  if (!container.device || !device || !link.isUp(device) || device.master !== undefined) return [];
  return container.ips.filter(({ gateway }) => gateway && hasAddress(subject.host, device, gateway))
    .map(({ address }) => address);
}

function checkRouteBack(
  subject: Subject,
  container: ExaminedContainer,
  { foreign, overlap, routing, findOther }: {
    readonly foreign: readonly ForeignRoute[];
    readonly overlap: HostNetwork | undefined;
    readonly routing: Routing;
    readonly findOther: FindOtherNetwork;
  },
): Finding[] {
  return addressesBehind(subject, container).flatMap((address) => {
    const device = gatewayLink(subject, container)!;
    const isSubnetForeign = foreign.some(({ dst, subnet }) => dst === subnet && familyOf(dst) === familyOf(address));
    if (isSubnetForeign) return [];
    // Another subnet mends both.
    if (overlap && networksOverlap(overlap.prefix, address) && !subject.allowsRouteOverlap) return [];
    const way = routing.find({ destination: ipOf(address) });
    // What is more than a missing or another route is described by the check of routing.
    if (way.oif === device.index || way.cause()) return [];
    const outgoing = subject.host.links.find(({ index }) => index === way.oif);
    return [describeRouteBack(subject, container, ipOf(address), device, outgoing, findOther)];
  });
}

function hasNearRoute({ host }: Subject, ip: Ip, { index }: link.Link): boolean {
  return host.routes.some(({ dst, oif }) =>
    oif === index && prefixLengthOf(dst) >= MIN_FOREIGN_PREFIX_LENGTH && containsIp(dst, ip)
  );
}

function describeRouteBack(
  subject: Subject,
  container: ExaminedContainer,
  ip: Ip,
  device: link.Link,
  outgoing: link.Link | undefined,
  findOther: FindOtherNetwork,
): Finding {
  const { host } = subject;
  const other = outgoing && findOther(outgoing);
  const leads = outgoing ? `leads to "${outgoing.name}", not to "${device.name}"` : "is missing";
  const replacement = shellCommand(["ip", "route", "replace", hostPrefix(ip), "dev", device.name!]);
  // Another machine may have the address there.
  const mend = other === undefined
    ? careful(replacement, outgoing !== undefined && hasNearRoute(subject, ip, outgoing))
    : reattach(container.attachment, `network "${other}" has the address, too: choose another subnet`);
  const strict = familyOf(ip) === 4 ? findStrictRpFilter(host.sysctl, device) : undefined;
  if (!strict) return broken(`the host's route to ${ip} of ${describeContainer(container)} ${leads}`, mend);
  const what = `${strict} is 1 (strict), and the host's route to ${ip} of ${describeContainer(container)} ${leads}: ` +
    `all its packets are dropped`;
  return broken(what, mend);
}

/** Many hosts have only one family, some have no uplink at all. */
function checkUplink(subject: Subject, routing: Routing): Finding[] {
  const { families } = subject;
  if (!needsUplink(subject) || families.some((family) => hasUplink(subject, family))) return [];
  if (families.some((family) => routing.find({ destination: PUBLIC_ADDRESS[family] }).cause())) return [];
  return [
    warning(
      `the host has no ${describeFamilies(families)} default route, so containers reach only its own networks`,
      advise(
        `give the host a default route: ${
          families.map((family) => `ip ${family === 6 ? "-6 " : ""}route add default via ROUTER`).join("; ")
        }`,
      ),
    ),
  ];
}

/** A VRF has its own default route. */
function needsUplink({ masquerades, families, gatewayDevice }: Subject): boolean {
  return masquerades && families.length > 0 && gatewayDevice?.master === undefined;
}

const hasUplink = ({ host }: Subject, family: 4 | 6): boolean =>
  findOutgoingLink(host, PUBLIC_ADDRESS[family]) !== undefined;

const describeFamilies = (families: Subject["families"]): string =>
  families.map((family) => `IPv${family}`).join(" or ");

function describeUplinks(subject: Subject): string[] {
  if (!needsUplink(subject)) return [];
  const { present = [], absent } = Object.groupBy(
    subject.families,
    (family) => hasUplink(subject, family) ? "present" : "absent",
  );
  const outside = `outside for ${present.map((family) => `IPv${family}`).join(" and ")}`;
  return [absent ? `${outside}, not for ${describeFamilies(absent)}` : outside];
}
