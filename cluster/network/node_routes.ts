/** Routes to the ranges of nodes, and the neighbours on the tunnel that they lead by. */
import type { Cidr, Ip } from "../../ffi/address.ts";
import type { NetlinkError } from "../../ffi/netlink/error.ts";
import { executeEach } from "../../ffi/netlink/each.ts";
import type { Netlink, NetlinkRequest } from "../../ffi/netlink/socket.ts";
import { addressFamily } from "../../ffi/route/address.ts";
import * as neighbour from "../../ffi/route/neighbour.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import type { RawRoute } from "../../ffi/route/raw_route.ts";
import { NUD_PERMANENT, RT_TABLE_MAIN, RTN_UNICAST, RTPROT_BOOT } from "../../ffi/route/uapi.ts";
import { AF_INET, AF_INET6 } from "../../ffi/sys/uapi.ts";
import { collectRecent, Garbage } from "../garbage.ts";
import { Counts } from "./counts.ts";
import {
  isAsPlanned,
  isSamePlan,
  leadsNowhere,
  metricOf,
  type PeerPlan,
  type PlannedNeighbour,
  type PlannedRoute,
  toRawRoute,
} from "./plan.ts";
import type { LeftRoute } from "./left_route.ts";
import type { RouteCounts } from "./route_counts.ts";
import { ROUTE_PROTOCOL } from "./settings.ts";

interface Change {
  /** Thousands of requests at once would take much memory. */
  request(): NetlinkRequest;
  /** Absent where a refusal means that there is nothing left to do. */
  readonly dst?: Cidr;
}

/** Why a route is not there. */
interface Obstacle {
  readonly text: string;
  /** Of another program's route; absent if the kernel has refused ours. */
  readonly links?: readonly number[];
  /** Present if ours would lead the same way. */
  readonly leftRoute?: Pick<LeftRoute, "dst" | "gateway"> & { readonly oif: number };
}

const ROUTES_OF_A_MEGABYTE = 1000;
const CHANGES_AT_ONCE = 128;

export class NodeRoutes {
  readonly #nl: Netlink;
  #routes = new Map<Cidr, PlannedRoute>();
  #neighbours = new Map<Ip, PlannedNeighbour>();
  /** How many peers each of them is for: two nodes may have one address for a while. */
  #neighbourUses = new Counts<Ip>();
  #uplinks: ReadonlySet<number> = new Set();
  /** What is in the way, by the destination. */
  readonly #obstacles = new Map<Cidr, Obstacle>();
  #counts: RouteCounts | undefined;

  constructor(nl: Netlink) {
    this.#nl = nl;
  }

  get routes(): ReadonlyMap<Cidr, PlannedRoute> {
    return this.#routes;
  }

  get neighbours(): ReadonlyMap<Ip, PlannedNeighbour> {
    return this.#neighbours;
  }

  /** Indices of links that had a default route when routes were compared. */
  get uplinks(): ReadonlySet<number> {
    return this.#uplinks;
  }

  problems(): string[] {
    return Array.from(this.#obstacles.values(), ({ text }) => text);
  }

  leftRoutes(nameOf: (link: number) => string | undefined): LeftRoute[] {
    return this.#obstacles.values().toArray().flatMap(({ text, leftRoute }) => {
      const link = leftRoute && nameOf(leftRoute.oif);
      return link === undefined ? [] : [{ problem: text, dst: leftRoute!.dst, gateway: leftRoute!.gateway, link }];
    });
  }

  get hasObstacle(): boolean {
    return this.#obstacles.size > 0;
  }

  /** Whether the kernel may take later what it has refused. */
  get hasRefusal(): boolean {
    return this.#obstacles.values().some(({ links }) => links === undefined);
  }

  /** With one of them, another program's route goes untold. */
  get obstacleLinks(): ReadonlySet<number> {
    return new Set(this.#obstacles.values().flatMap(({ links = [] }) => links));
  }

  /** How many lead to other nodes. They are counted again when something has changed. */
  counts(): RouteCounts {
    return this.#counts ??= this.#count();
  }

  #count(): RouteCounts {
    let direct = 0;
    let tunnel = 0;
    for (const route of this.#routes.values()) {
      if (leadsNowhere(route) || this.#obstacles.has(route.dst)) continue;
      if (route.encapsulation) tunnel++;
      else direct++;
    }
    return { direct, tunnel };
  }

  /** Compares with the kernel. @returns what differed */
  sync(plans: Iterable<PeerPlan>, tunnelIndex: number | undefined): string[] {
    this.#counts = undefined;
    this.#routes = new Map();
    this.#neighbours = new Map();
    this.#neighbourUses = new Counts();
    this.#obstacles.clear();
    for (const plan of plans) this.#want(plan);
    const [missing, stale] = tunnelIndex === undefined ? [[], []] : this.#compareNeighbours(tunnelIndex);
    const added = this.#execute(missing);
    const routes = this.#execute(this.#routeChanges());
    const neighbours = added + this.#execute(stale);
    return [
      ...routes > 0 ? [`${routes} routes`] : [],
      ...neighbours > 0 ? [`${neighbours} neighbours`] : [],
    ];
  }

  /** Changes what differs between the former plans of some peers and the present ones. */
  update(former: readonly PeerPlan[], plans: readonly PeerPlan[], tunnelIndex: number | undefined): void {
    this.#counts = undefined;
    const changes: Change[] = [];
    const [routes, neighbours] = [plans.flatMap((plan) => plan.routes), plans.flatMap((plan) => plan.neighbours)];
    const known = routes.map(({ dst }) => this.#routes.get(dst));
    const knownMacs = neighbours.map(({ address }) => this.#neighbours.get(address)?.mac);
    for (const plan of plans) this.#want(plan);
    neighbours.forEach(({ address, mac }, i) => {
      if (mac !== knownMacs[i]) changes.push({ request: () => neighbour.permanentRequest(tunnelIndex!, address, mac) });
    });
    routes.forEach((route, i) => {
      const { dst } = route;
      const present = this.#obstacles.has(dst) ? undefined : known[i];
      this.#obstacles.delete(dst);
      if (present && isSamePlan(present, route)) return;
      // To replace it could hit what another program has put there meanwhile.
      if (present) changes.push({ request: () => rawRoute.removeRequest(toRawRoute(present)) });
      changes.push({ request: () => rawRoute.addExclusiveRequest(toRawRoute(route)), dst });
    });
    // Another peer may have them now.
    for (const route of former.flatMap((plan) => plan.routes)) {
      const { dst } = route;
      if (this.#routes.get(dst) !== route) continue;
      this.#routes.delete(dst);
      if (!this.#obstacles.delete(dst)) changes.push({ request: () => rawRoute.removeRequest(toRawRoute(route)) });
    }
    for (const { address } of former.flatMap((plan) => plan.neighbours)) {
      this.#neighbourUses.remove([address]);
      if (this.#neighbourUses.map.has(address)) continue;
      this.#neighbours.delete(address);
      if (tunnelIndex === undefined) continue;
      changes.push({ request: () => neighbour.removeRequest(tunnelIndex, address) });
    }
    this.#execute(changes);
  }

  #want({ routes, neighbours }: PeerPlan): void {
    for (const route of routes) this.#routes.set(route.dst, route);
    for (const planned of neighbours) {
      this.#neighbours.set(planned.address, planned);
      this.#neighbourUses.add([planned.address]);
    }
  }

  /** @returns changes to make before those of routes, and after them */
  #compareNeighbours(index: number): [Iterable<Change>, Iterable<Change>] {
    const right = new Set<Ip>();
    const stale: Ip[] = [];
    for (const family of [AF_INET, AF_INET6]) {
      for (const { state, address, mac } of neighbour.list(this.#nl, family, index)) {
        if (state !== NUD_PERMANENT) continue;
        const wanted = this.#neighbours.get(address);
        if (!wanted) stale.push(address);
        else if (wanted.mac === mac) right.add(wanted.address);
      }
      collectRecent();
    }
    return [
      this.#neighbours.values().filter(({ address }) => !right.has(address))
        .map(({ address, mac }) => ({ request: () => neighbour.permanentRequest(index, address, mac) })),
      stale.values().map((address) => ({ request: () => neighbour.removeRequest(index, address) })),
    ];
  }

  /** They are made one after the other, while the ones before are executed. */
  *#routeChanges(): Generator<Change> {
    const uplinks = new Set<number>();
    this.#uplinks = uplinks;
    for (const family of [AF_INET, AF_INET6]) {
      // Of thousands, nearly all are right.
      let right = new Set<Cidr>();
      let others: RawRoute[] = [];
      const onStart = () => {
        right = new Set();
        others = [];
      };
      const garbage = new Garbage(ROUTES_OF_A_MEGABYTE);
      rawRoute.forEachFiltered(this.#nl, { family, table: RT_TABLE_MAIN }, onStart, (route) => {
        garbage.step();
        if (isDefault(route)) { for (const index of rawRoute.linksOf(route)) uplinks.add(index); }
        const dst = rawRoute.destinationOf(route);
        const wanted = this.#routes.get(dst);
        const isOwn = route.protocol === ROUTE_PROTOCOL;
        if (isOwn && wanted && !right.has(wanted.dst) && isAsPlanned(route, wanted)) right.add(wanted.dst);
        else if (isOwn || wanted) others.push(route);
      });
      const wrong = Map.groupBy(others, rawRoute.destinationOf);
      for (const [dst, present] of wrong) yield* this.#compareDestination(dst, present, right.has(dst));
      for (const { dst } of this.#routes.values()) {
        const isMissing = addressFamily(dst) === family && !right.has(dst) && !wrong.has(dst);
        if (isMissing) yield* this.#compareDestination(dst, [], false);
      }
    }
  }

  /** @param present all to there, but one that is as planned */
  #compareDestination(dst: Cidr, present: readonly RawRoute[], isRight: boolean): Change[] {
    const wanted = this.#routes.get(dst);
    const mine = present.filter(({ protocol }) => protocol === ROUTE_PROTOCOL);
    const foreign = wanted && !leadsNowhere(wanted) &&
      present.find((route) => route.protocol !== ROUTE_PROTOCOL && metric(route) <= metricOf(wanted));
    if (wanted && foreign) {
      this.#obstacles.set(dst, describeObstacle(wanted, foreign));
    }
    const isMissing = wanted && !isRight;
    // The kernel replaces the first of equal metric, whoever made it.
    const replaced = isMissing && !foreign && mine.find((route) => metric(route) === metricOf(wanted));
    const removals = mine.filter((route) => route !== replaced)
      .map((route) => ({ request: () => rawRoute.removeRequest(route) }));
    if (!isMissing) return removals;
    if (replaced) return [{ request: () => rawRoute.replaceRequest(toRawRoute(wanted)), dst }, ...removals];
    return foreign ? removals : [...removals, { request: () => rawRoute.addExclusiveRequest(toRawRoute(wanted)), dst }];
  }

  /** @returns how many there were */
  #execute(changes: Iterable<Change>): number {
    let count = 0;
    let some: Change[] = [];
    for (const change of changes) {
      if (some.push(change) < CHANGES_AT_ONCE) continue;
      count += this.#executeSome(some);
      some = [];
      collectRecent();
    }
    return count + this.#executeSome(some);
  }

  #executeSome(changes: readonly Change[]): number {
    for (const [index, error] of executeEach(this.#nl, changes.map(({ request }) => request()))) {
      const { dst } = changes[index]!;
      const route = dst && this.#routes.get(dst);
      if (route) this.#obstacles.set(dst, { text: refusalText(route, error) });
    }
    return changes.length;
  }
}

const isDefault = ({ dstLen, type }: RawRoute): boolean => dstLen === 0 && type === RTN_UNICAST;
const metric = ({ priority = 0 }: RawRoute): number => priority;

const describePlanned = ({ gateway }: PlannedRoute): string =>
  `${gateway === undefined ? "unreachable" : `via ${gateway}`} (protocol ${ROUTE_PROTOCOL})`;

function describeObstacle(wanted: PlannedRoute, foreign: RawRoute): Obstacle {
  const { dst, gateway, oif } = wanted;
  const text = obstacleText(wanted, foreign);
  const links = rawRoute.linksOf(foreign);
  // A routing daemon has a protocol of its own, and would put its route back.
  const isLeft = foreign.protocol === RTPROT_BOOT && wanted.encapsulation === undefined &&
    foreign.gateway === gateway && foreign.oif === oif;
  return isLeft && gateway !== undefined && oif !== undefined
    ? { text, links, leftRoute: { dst, gateway, oif } }
    : { text, links };
}

function obstacleText(wanted: PlannedRoute, foreign: RawRoute): string {
  const gateways = rawRoute.nextHopGateways(foreign);
  const via = gateways.length > 0 ? `via ${gateways.join(", ")}` : `on link ${foreign.oif}`;
  return `The route to ${wanted.dst} ${via} (protocol ${foreign.protocol}) is another program's, and stays: ` +
    `the cluster's is ${describePlanned(wanted)}`;
}

function refusalText(route: PlannedRoute, error: NetlinkError): string {
  const what = `The cluster's route to ${route.dst} ${describePlanned(route)}`;
  return error.code === "EEXIST"
    ? `${what} is not made: another program has one to there, which stays`
    : `${what} is refused: ${error.message}`;
}
