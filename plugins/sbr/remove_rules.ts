/**
 * Taking rules and tables away.
 *
 * @module
 */
import type { Cidr } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import * as rule from "../../ffi/route/rule.ts";
import { RT_TABLE_MAIN } from "../../ffi/route/uapi.ts";
import * as whole from "../../ffi/route/raw_route.ts";
import { unless } from "../../ffi/sys/error.ts";
import { cleanUp } from "../lib/protocol/plugin.ts";
import { byDependence, isOwnTable, leavesBy } from "../lib/links/routes.ts";

/** What of a namespace is to go. */
export interface Leftovers {
  /** Where packets are from: single addresses. */
  readonly sources: ReadonlySet<Cidr>;
  /** Index of the interface, if it is still there. */
  readonly index: number | undefined;
  /** The table that somebody else fills, if there is one. */
  readonly table: number | undefined;
}

/**
 * Removes the rules for the addresses, and takes the interface's routes back out of the tables that nothing leads to any more.
 *
 * @throws {Error} naming all that failed
 */
export function removeRules(netns: Netns, leftovers: Leftovers): void {
  const routes = whole.list(netns.route);
  const rules = rule.list(netns.route);
  const gone = rules.filter((each) => isToGo(each, leftovers, routes));
  const kept = new Set(rules.filter((each) => !gone.includes(each)).map((each) => each.table));
  const emptied = new Set(gone.map((each) => each.table).filter((each) => !kept.has(each)));
  const { index, table } = leftovers;
  const moved = index === undefined || table !== undefined
    ? []
    : routes.filter((each) => emptied.has(whole.tableOf(each)) && leavesBy(each, index));
  cleanUp(
    ...returning(routes, moved).map((each) => () =>
      void unless(["EEXIST"], () => whole.append(netns.route, whole.inTable(each, RT_TABLE_MAIN)))
    ),
    ...gone.map(({ from, table, priority }) => () =>
      void unless(["ENOENT"], () => rule.remove(netns.route, { from: from!, table: table!, priority }))
    ),
    ...moved.map((each) => () => void unless(["ESRCH"], () => whole.remove(netns.route, each))),
  );
}

/** True for a rule from one of the addresses to the table, or to one in which no other interface of the container has a route. */
function isToGo(
  { from, isBySource, table: to }: rule.Rule,
  { sources, index, table }: Leftovers,
  routes: readonly whole.WholeRoute[],
): boolean {
  if (!from || !isBySource || !sources.has(from)) return false;
  if (table !== undefined) return to === table;
  if (!isOwnTable(to)) return false;
  return routes.filter((each) => whole.tableOf(each) === to).flatMap(whole.linksOf).every((link) => link === index);
}

/** The routes that go back to the main table. Whether a default route came from there nobody knows, and it would be everybody's. */
function returning(all: readonly whole.WholeRoute[], moved: readonly whole.WholeRoute[]): whole.WholeRoute[] {
  const inMain = all.filter((each) => whole.tableOf(each) === RT_TABLE_MAIN);
  const isThere = (each: whole.WholeRoute) =>
    inMain.some((other) =>
      whole.destinationOf(other) === whole.destinationOf(each) && whole.linksOf(other).includes(whole.linksOf(each)[0]!)
    );
  return moved.filter((each) => each.dstLength > 0 && !isThere(each)).toSorted(byDependence);
}
