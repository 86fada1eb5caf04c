import { RT_TABLE_DEFAULT, RT_TABLE_LOCAL, RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { linksOf, nextHopGateways, type RawRoute, tableOf } from "../../../ffi/route/raw_route.ts";
import type { FibRule } from "../../../ffi/route/rule.ts";

export function usesOnlyLink(route: RawRoute, index: number): boolean {
  const links = linksOf(route);
  return links.length > 0 && links.every((linkIndex) => linkIndex === index);
}

/** Sorts the route to a gateway before routes by the gateway. */
export function compareGatewayDependence(a: RawRoute, b: RawRoute): number {
  return nextHopGateways(a).length - nextHopGateways(b).length;
}

export function isCustomTable(table: number | undefined): table is number {
  return table !== undefined && ![RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL].includes(table);
}

/** Free tables from `first` on: no rule names them and they are empty, so routes cannot mix. */
export function* freeTableIds(
  first: number,
  rules: readonly FibRule[],
  routes: readonly RawRoute[],
): Generator<number, never> {
  const used = new Set([...rules.map(({ table }) => table), ...routes.map(tableOf)]);
  for (let table = first;; table++) if (!used.has(table) && isCustomTable(table)) yield table;
}
