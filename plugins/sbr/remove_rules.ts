import type { Cidr } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as rule from "../../ffi/route/rule.ts";
import { RT_TABLE_MAIN } from "../../ffi/route/uapi.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { runAllSteps } from "../lib/protocol/plugin.ts";
import { giveBackOrLog } from "../lib/links/container_refusal.ts";
import { compareGatewayDependence, isCustomTable, usesOnlyLink } from "../lib/links/routes.ts";

export interface RemovalScope {
  /** Addresses with the prefix length of a host. */
  readonly sources: ReadonlySet<Cidr>;
  /** The index of the interface, unless it is gone. */
  readonly index: number | undefined;
  readonly table: number | undefined;
}

/**
 * Removes the addresses' rules. Routes of tables without a rule return to the main table.
 *
 * @param log gets a line for each route that the container keeps from the main table
 * @throws {Error} naming all other failures
 */
export function removeSourceRules(netns: Netns, scope: RemovalScope, log: (message: string) => void): void {
  const routes = rawRoute.list(netns.route);
  const rules = rule.list(netns.route);
  const removed = rules.filter((rule) => isRemovable(rule, scope, routes));
  const keptTables = new Set(rules.filter((rule) => !removed.includes(rule)).map((rule) => rule.table));
  const emptiedTables = new Set(removed.map((rule) => rule.table).filter((table) => !keptTables.has(table)));
  const { index, table } = scope;
  const moved = index === undefined || table !== undefined
    ? []
    : routes.filter((route) => emptiedTables.has(rawRoute.tableOf(route)) && usesOnlyLink(route, index));
  runAllSteps(
    ...routesBackToMain(routes, moved).map((route) => () =>
      giveBackOrLog(log, () => {
        ignoreErrors(["EEXIST"], () => rawRoute.append(netns.route, rawRoute.withTable(route, RT_TABLE_MAIN)));
      })
    ),
    ...removed.map(({ from, table, priority }) => () =>
      void ignoreErrors(["ENOENT"], () => rule.remove(netns.route, { from: from!, table: table!, priority }))
    ),
    ...moved.map((route) => () => void ignoreErrors(["ESRCH"], () => rawRoute.remove(netns.route, route))),
  );
}

/** True for a rule from one of the addresses, to `table` or to a table without routes of other interfaces. */
function isRemovable(
  { from, isSourceOnly, table: ruleTable }: rule.FibRule,
  { sources, index, table }: RemovalScope,
  routes: readonly rawRoute.RawRoute[],
): boolean {
  if (!from || !isSourceOnly || !sources.has(from)) return false;
  if (table !== undefined) return ruleTable === table;
  if (!isCustomTable(ruleTable)) return false;
  return routes.filter((route) => rawRoute.tableOf(route) === ruleTable).flatMap(rawRoute.linksOf).every((link) =>
    link === index
  );
}

/** Excludes default routes: they may be from elsewhere, and would apply to all interfaces. */
function routesBackToMain(
  routes: readonly rawRoute.RawRoute[],
  moved: readonly rawRoute.RawRoute[],
): rawRoute.RawRoute[] {
  const inMain = routes.filter((route) => rawRoute.tableOf(route) === RT_TABLE_MAIN);
  const isInMain = (route: rawRoute.RawRoute) =>
    inMain.some((other) =>
      rawRoute.destinationOf(other) === rawRoute.destinationOf(route) &&
      rawRoute.linksOf(other).includes(rawRoute.linksOf(route)[0]!)
    );
  return moved.filter((route) => route.dstLen > 0 && !isInMain(route)).toSorted(compareGatewayDependence);
}
