import { familyOf, ipOf, networkOf, prefixLengthOf } from "../../../ffi/address.ts";
import { isDefaultRoute } from "../../networks/subnets.ts";
import * as link from "../../../ffi/route/link.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import type { RouteConfig } from "../../../spec/schema.ts";
import { routesWithGateways } from "../../../plugins/lib/links/configure_interface.ts";
import { abbreviate, broken, type Finding, ok, warning } from "../finding.ts";
import {
  addressesOfFamily,
  describeContainer,
  type ExaminedContainer,
  hasAddress,
  ipCommand,
  type Subject,
} from "../subject.ts";

/** Routes in the containers, as the ADD set them. */
export function checkContainerRoutes(subject: Subject): Finding[] {
  const { containers } = subject;
  const problems = [
    ...containers.flatMap(checkRoutes),
    ...checkDefaultRoutesConfigured(subject),
  ];
  if (problems.length > 0 || containers.length === 0) return problems;
  return [ok("routes in the containers are those of the ADD")];
}

function checkRoutes(container: ExaminedContainer): Finding[] {
  const { device, state, ips, attachment: { result } } = container;
  // Without its address or its link, a container has no routes: that is reported elsewhere.
  if (!device || !link.isUp(device) || !result) return [];
  const present = ips.filter(({ address }) => hasAddress(state, device, ipOf(address)));
  return routesWithGateways(result, ips)
    .filter(({ dst }) => present.some(({ address }) => familyOf(address) === familyOf(dst)))
    .flatMap((wanted) => checkRoute(container, device, wanted));
}

function checkRoute(container: ExaminedContainer, device: link.Link, wanted: RouteConfig): Finding[] {
  const { state, attachment: { netns } } = container;
  const { dst, gw } = wanted;
  // A later plugin may have moved the route to another table.
  const candidates = state.routes.filter((route) => route.dst === networkOf(dst) && route.oif === device.index);
  if (candidates.some(({ gateway }) => gateway === gw)) return [];
  const name = describeRoute(dst);
  const via = gw === undefined ? "" : ` via ${gw}`;
  const mend = ipCommand(netns, "route", "replace", dst, ...gw === undefined ? [] : ["via", gw], "dev", device.name!);
  const repair = { kind: "route", netns, link: device.name!, dst, ...gw !== undefined && { gateway: gw } } as const;
  const [other] = candidates;
  const elsewhere = state.routes.find((route) => route.dst === networkOf(dst) && route.table === RT_TABLE_MAIN);
  if (!other && elsewhere) {
    const device = state.links.find(({ index }) => index === elsewhere.oif)?.name;
    return [warning(
      `the ${name} of ${describeContainer(container)} goes by "${device}", as another network wants it`,
      `if it must go by this network: ${mend}`,
    )];
  }
  if (!other) {
    return [broken(`no ${name} in ${netns}: it must go${via || " directly"} by "${device.name}"`, mend, repair)];
  }
  const actual = other.gateway === undefined ? "directly" : `via ${other.gateway}`;
  const what = `wrong gateway: the ${name} of ${describeContainer(container)} goes ${actual}, the ADD set it${via}`;
  return [broken(what, mend, repair)];
}

const describeRoute = (dst: RouteConfig["dst"]): string =>
  prefixLengthOf(dst) === 0 ? `IPv${familyOf(dst)} default route` : `route to ${dst}`;

/** People forget `routes`, and wonder that `ipMasq` has no effect. */
function checkDefaultRoutesConfigured({ masquerades, families, containers }: Subject): Finding[] {
  if (!masquerades) return [];
  return families.flatMap((family) => {
    const without = containers.filter((container) =>
      addressesOfFamily(container, family).length > 0 && !hasDefaultRoute(container, family)
    ).map(({ attachment }) => attachment.netns);
    if (without.length === 0) return [];
    return [warning(
      `the configuration asks for masquerading of IPv${family}, but for no default route in ${abbreviate(without)}`,
      `add { "dst": "${family === 4 ? "0.0.0.0/0" : "::/0"}" } to "routes" of "ipam", or set "isDefaultGateway"`,
    )];
  });
}

function hasDefaultRoute({ state, attachment: { result } }: ExaminedContainer, family: 4 | 6): boolean {
  const isDefault = ({ dst }: Pick<RouteConfig, "dst">) => isDefaultRoute(dst) && familyOf(dst) === family;
  return (result?.routes ?? []).some(isDefault) || state.routes.some(isDefault);
}
