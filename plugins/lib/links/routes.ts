/**
 * Routes that move from one table to another.
 *
 * @module
 */
import { RT_TABLE_DEFAULT, RT_TABLE_LOCAL, RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import { linksOf, nextHopGateways, type RawRoute, tableOf } from "../../../ffi/route/raw_route.ts";
import type { FibRule } from "../../../ffi/route/rule.ts";

/** True for a route by this link and no other. */
export function usesOnlyLink(route: RawRoute, index: number): boolean {
  const links = linksOf(route);
  return links.length > 0 && links.every((linkIndex) => linkIndex === index);
}

/** Sorts the route to a gateway before routes by the gateway. */
export function compareGatewayDependence(a: RawRoute, b: RawRoute): number {
  return nextHopGateways(a).length - nextHopGateways(b).length;
}

/** True for a table other than the system's. */
export function isCustomTable(table: number | undefined): table is number {
  return table !== undefined && ![RT_TABLE_DEFAULT, RT_TABLE_MAIN, RT_TABLE_LOCAL].includes(table);
}

/** Numbers of tables from `first` on that no rule names and that are empty: routes of others would mix with ours. */
export function* freeTableIds(
  first: number,
  rules: readonly FibRule[],
  routes: readonly RawRoute[],
): Generator<number, never> {
  const used = new Set([...rules.map(({ table }) => table), ...routes.map(tableOf)]);
  for (let table = first;; table++) if (!used.has(table) && isCustomTable(table)) yield table;
}
