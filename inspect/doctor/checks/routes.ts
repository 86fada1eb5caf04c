import { familyOf, type Ip, ipOf, isHostPrefix, networkOf, nextIp, prefixLengthOf } from "../../../ffi/address.ts";
import { PUBLIC_ADDRESS } from "../../../plugins/lib/links/reachability.ts";
import { isDefaultRoute } from "../../../networks/subnets.ts";
import * as link from "../../../ffi/route/link.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import type { RouteConfig } from "../../../spec/schema.ts";
import { findModel } from "../../../plugins/registry.ts";
import { hasRoute } from "../../../plugins/lib/links/interface_differences.ts";
import { routesWithGateways } from "../../../plugins/lib/links/configure_interface.ts";
import { abbreviate, advise, broken, type Finding, ok, type Remedy, type Repair, warning } from "../finding.ts";
import { reattach } from "../reattach.ts";
import { Routing } from "../routing.ts";
import {
  addressesOfFamily,
  containerPlace,
  describeContainer,
  type ExaminedContainer,
  hasAddress,
  interfaceState,
  ipCommand,
  type Subject,
} from "../subject.ts";

export function checkContainerRoutes(subject: Subject): Finding[] {
  const { containers } = subject;
  const problems = [
    ...containers.flatMap((container) => checkRoutes(subject, container)),
    ...checkDefaultRoutesConfigured(subject),
  ];
  const isExamined = containers.some((container) => listWantedRoutes(container).length > 0);
  if (problems.length > 0 || !isExamined) return problems;
  return [ok("routes in the containers are those of the ADD")];
}

function checkRoutes(subject: Subject, container: ExaminedContainer): Finding[] {
  const routing = new Routing(container.state, container.attachment.netns);
  const wanted = listWantedRoutes(container);
  const missing = wanted.flatMap((each) => checkRoute(subject, container, container.device!, each, routing));
  // Else they would report the consequences.
  return missing.length > 0 ? missing : checkBlocking(container, wanted, routing);
}

/** Rules and routes that keep packets from the routes that are there. */
function checkBlocking(container: ExaminedContainer, wanted: readonly RouteConfig[], routing: Routing): Finding[] {
  if (routing.isPlain) return [];
  const { device, ips } = container;
  const sources = new Map(ips.map(({ address }) => [familyOf(address), ipOf(address)]));
  const stopped = wanted.flatMap(({ dst, gw }) => [sampleOf(dst), ...gw === undefined ? [] : [gw]]).flatMap(
    (destination) => {
      const way = routing.find({ source: sources.get(familyOf(destination))!, destination });
      const cause = way.oif === device!.index ? undefined : way.cause();
      return [
        ...cause ? [{ destination, way, cause, isOfSome: false }] : [],
        ...way.causesForSome().map((cause) => ({ destination, way, cause, isOfSome: true })),
      ];
    },
  );
  const first = [...Map.groupBy(stopped, ({ cause }) => cause.what).values()].map((all) => all[0]!);
  const findings = first.map(({ destination, way, cause, isOfSome }) => {
    const whose = `packets of ${describeContainer(container)} to ${destination}`;
    if (isOfSome) return warning(`some ${whose} are stopped or sent elsewhere by ${cause.what}`, cause.remedy);
    if (way.oif === undefined) return broken(`${whose} are stopped by ${cause.what}`, cause.remedy);
    const other = container.state.links.find(({ index }) => index === way.oif)?.name;
    return warning(`${whose} are sent to "${other}" by ${cause.what}`, cause.remedy);
  });
  const others = routing.blockingRoutes().map((route) => routing.describeBlockingRoute(route))
    .filter(({ what }) => !first.some(({ cause }) => cause.what === what));
  return [
    ...findings,
    ...others.map(({ what, remedy }) =>
      warning(`some packets of ${describeContainer(container)} are stopped by ${what}`, remedy)
    ),
  ];
}

function sampleOf(dst: RouteConfig["dst"]): Ip {
  if (prefixLengthOf(dst) === 0) return PUBLIC_ADDRESS[familyOf(dst)];
  const ip = ipOf(networkOf(dst));
  return isHostPrefix(dst) ? ip : nextIp(ip)!;
}

/** Without its address or its link, a container has no routes: that is reported elsewhere. */
function listWantedRoutes({ device, state, ips, attachment: { result } }: ExaminedContainer): RouteConfig[] {
  if (!device || !link.isUp(device) || !result) return [];
  const present = ips.filter(({ address }) => hasAddress(state, device, ipOf(address)));
  return routesWithGateways(result, ips)
    .filter(({ dst }) => present.some(({ address }) => familyOf(address) === familyOf(dst)));
}

function checkRoute(
  subject: Subject,
  container: ExaminedContainer,
  device: link.Link,
  wanted: RouteConfig,
  routing: Routing,
): Finding[] {
  const { state } = container;
  const { dst, gw, table, priority } = wanted;
  const toDestination = state.routes.filter((route) => route.dst === networkOf(dst));
  const ofDevice = toDestination.filter((route) =>
    route.oif === device.index && route.table === (table ?? RT_TABLE_MAIN)
  );
  if (hasRoute(interfaceState(state), device, wanted)) return [];
  const candidates = ofDevice.filter((route) => !priority || route.priority === priority);
  const name = describeRoute(dst);
  const via = gw === undefined ? "" : ` via ${gw}`;
  const { remedy, repair } = routeRemedy(subject, container, device.name!, wanted);
  const [other = ofDevice[0]] = candidates;
  const elsewhere = toDestination.find((route) =>
    route.table === (table ?? RT_TABLE_MAIN) && (route.priority ?? 0) >= metricOf(wanted)
  );
  if (!other && elsewhere) {
    const device = state.links.find(({ index }) => index === elsewhere.oif)?.name;
    return [warning(
      `the ${name} of ${describeContainer(container)} goes by "${device}", as another network wants it`,
      typeof remedy === "string" ? advise("if it must go by this network", remedy) : remedy,
    )];
  }
  const blocking = other ? undefined : routing.findBlockingRoute(dst, table ?? RT_TABLE_MAIN);
  if (blocking) return [broken(`instead of the ${name}, there is a ${blocking}`, remedy, repair)];
  if (!other) {
    return [
      broken(
        `no ${name} in ${containerPlace(container.attachment)}: it must go${via || " directly"} by "${device.name}"`,
        remedy,
        repair,
      ),
    ];
  }
  if (candidates.length === 0) {
    const what = `wrong metric: the ${name} of ${describeContainer(container)} has ${other.priority ?? 0}, ` +
      `the ADD set ${priority}`;
    // Beside the other route, the right one would have no effect.
    return [broken(what, reattach(container.attachment))];
  }
  const actual = other.gateway === undefined ? "directly" : `via ${other.gateway}`;
  const what = `wrong gateway: the ${name} of ${describeContainer(container)} goes ${actual}, the ADD set it${via}`;
  return [broken(what, remedy, repair)];
}

/** The kernel's default metric of IPv6 (IP6_RT_PRIO_USER). */
const IPV6_METRIC = 1024;

const metricOf = ({ dst, priority }: RouteConfig): number => priority || (familyOf(dst) === 4 ? 0 : IPV6_METRIC);

function routeRemedy(
  { network }: Subject,
  { attachment }: ExaminedContainer,
  link: string,
  { gw, ...wanted }: RouteConfig,
): { readonly remedy: Remedy; readonly repair?: Repair } {
  if (network.plugins.some(({ type }) => findModel(type)?.changes === "routing tables")) {
    return { remedy: reattach(attachment) };
  }
  const { dst, table, priority, mtu, advmss, scope } = wanted;
  const words = Object.entries({ via: gw, dev: link, table, metric: priority, mtu, advmss, scope })
    .flatMap(([word, value]) => value === undefined ? [] : [word, `${value}`]);
  const { netns } = attachment;
  return {
    remedy: ipCommand(netns, "route", "replace", dst, ...words),
    repair: { kind: "route", netns, link, ...wanted, ...gw !== undefined && { gateway: gw } },
  };
}

const describeRoute = (dst: RouteConfig["dst"]): string =>
  prefixLengthOf(dst) === 0 ? `IPv${familyOf(dst)} default route` : `route to ${dst}`;

/** People forget `routes`, and wonder that `ipMasq` has no effect. */
function checkDefaultRoutesConfigured({ masquerades, families, containers }: Subject): Finding[] {
  if (!masquerades) return [];
  return families.flatMap((family) => {
    const without = containers.filter((container) =>
      addressesOfFamily(container, family).length > 0 && !hasDefaultRoute(container, family)
    ).map(({ attachment }) => containerPlace(attachment));
    if (without.length === 0) return [];
    return [warning(
      `the configuration asks for masquerading of IPv${family}, but for no default route in ${abbreviate(without)}`,
      advise(
        `add { "dst": "${family === 4 ? "0.0.0.0/0" : "::/0"}" } to "routes" of "ipam", or set "isDefaultGateway"`,
      ),
    )];
  });
}

function hasDefaultRoute({ state, attachment: { result } }: ExaminedContainer, family: 4 | 6): boolean {
  const isDefault = ({ dst }: Pick<RouteConfig, "dst">) => isDefaultRoute(dst) && familyOf(dst) === family;
  return (result?.routes ?? []).some(isDefault) || state.routes.some(isDefault);
}
