/**
 * Why a namespace sends packets where it does: which rule of policy routing, and which route, decides.
 *
 * The kernel tells where a packet goes, and not why. So the rules and tables are followed here, and what comes out counts
 * only if the kernel says the same.
 */
import { type Cidr, containsIp, familyOf, networkOf } from "../../ffi/address.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { type FoundWay, type LookedUpPacket, lookUpWay } from "../../ffi/route/fib_lookup.ts";
import type { Link } from "../../ffi/route/link.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { listRoutingRules, type RoutingRule } from "../../ffi/route/routing_policy.ts";
import * as uapi from "../../ffi/route/uapi.ts";
import { advise, careful, type Remedy } from "./finding.ts";
import { ipCommand, type NetnsSnapshot } from "./subject.ts";

export interface RoutedPacket extends Pick<LookedUpPacket, "destination" | "source" | "mark"> {
  readonly inLink?: Link | undefined;
}

/** Where a packet goes; without a link, it is dropped or refused. */
export interface Way extends FoundWay {
  /** What decides that, if it is more than a route of the usual tables. */
  cause(): Cause | undefined;
  /** What sends some such packets another way, by ports or protocols. */
  causesForSome(): Cause[];
}

export interface Cause {
  /** `routing rule 100 (from 10.9.0.0/29 lookup 100)` */
  readonly what: string;
  readonly remedy: Remedy;
}

/** Words of ip-route(8) and ip-rule(8). */
const ROUTE_TYPES: Readonly<Record<number, string>> = {
  [uapi.RTN_BLACKHOLE]: "blackhole",
  [uapi.RTN_UNREACHABLE]: "unreachable",
  [uapi.RTN_PROHIBIT]: "prohibit",
};
const RULE_ACTIONS: Readonly<Record<number, string>> = {
  [uapi.FR_ACT_BLACKHOLE]: "blackhole",
  [uapi.FR_ACT_UNREACHABLE]: "unreachable",
  [uapi.FR_ACT_PROHIBIT]: "prohibit",
};
const TABLE_NAMES: Readonly<Record<number, string>> = {
  [uapi.RT_TABLE_LOCAL]: "local",
  [uapi.RT_TABLE_MAIN]: "main",
  [uapi.RT_TABLE_DEFAULT]: "default",
};
const tableName = (table: number): string => TABLE_NAMES[table] ?? `${table}`;

/** The rules and routes of a namespace, each read once. @param path of a container's namespace; absent for the host's */
export class Routing {
  #allRules: readonly RoutingRule[] | undefined;
  #allRoutes: readonly rawRoute.RawRoute[] | undefined;

  constructor(readonly state: NetnsSnapshot, readonly path?: string) {}

  find(packet: RoutedPacket): Way {
    const way = this.#ask(packet);
    return {
      ...way,
      cause: () => this.#findCause(packet, way),
      causesForSome: () => this.#findCausesForSome(packet, way),
    };
  }

  #findCausesForSome(packet: RoutedPacket, { oif }: FoundWay): Cause[] {
    // Where no packet goes, none goes astray.
    if (oif === undefined) return [];
    return this.#follow(packet).forSome.filter((decision) => !leadsTo(decision, oif))
      .flatMap((decision) => this.#describe(decision) ?? []);
  }

  #findCause(packet: RoutedPacket, { oif }: FoundWay): Cause | undefined {
    const { decision } = this.#follow(packet);
    const isConfirmed = decision && (oif === undefined ? isBlocked(decision) : leadsTo(decision, oif));
    return isConfirmed ? this.#describe(decision) : undefined;
  }

  /** True if nothing could be a cause, so that nobody need ask for the way of each packet. */
  get isPlain(): boolean {
    return this.#rules.every(({ action, table, isL3mdev }) =>
      isL3mdev || (action === uapi.FR_ACT_TO_TBL && table in TABLE_NAMES)
    ) && !this.#routes.some(isBlocking);
  }

  get selectsByMark(): boolean {
    return this.#rules.some(({ mark }) => mark !== undefined);
  }

  blockingRoutes(): rawRoute.RawRoute[] {
    return this.#routes.filter((route) => isBlocking(route) && rawRoute.tableOf(route) === uapi.RT_TABLE_MAIN);
  }

  /** `blackhole route 0.0.0.0/0 of table main in /run/netns/web` */
  findBlockingRoute(destination: Cidr, table: number): string | undefined {
    const route = this.#routes.find((each) =>
      isBlocking(each) && rawRoute.tableOf(each) === table &&
      rawRoute.destinationOf(each) === networkOf(destination)
    );
    return route && this.describeBlockingRoute(route).what;
  }

  get #routes(): readonly rawRoute.RawRoute[] {
    return this.#allRoutes ??= rawRoute.list(this.state.netns.route);
  }

  get #rules(): readonly RoutingRule[] {
    return this.#allRules ??= listRoutingRules(this.state.netns.route);
  }

  #ask({ destination, source, mark, inLink }: RoutedPacket): FoundWay {
    try {
      const asked = { destination, ...source && { source }, ...mark && { mark }, ...inLink && { iif: inLink.index } };
      return lookUpWay(this.state.netns.route, asked);
    } catch (error) {
      if (error instanceof NetlinkError) return {};
      throw error;
    }
  }

  #follow(packet: RoutedPacket): Decisions {
    const family = familyOf(packet.destination);
    const rules = this.#rules.filter((rule) => rule.family === family);
    const forSome: Decision[] = [];
    let from = 0;
    for (const rule of rules) {
      if (rule.priority < from) continue;
      const matched = matchRule(rule, packet);
      // What cannot be judged leaves the rest open.
      if (matched === undefined) return { forSome };
      if (matched === "none" || rule.action === uapi.FR_ACT_NOP) continue;
      if (rule.action === uapi.FR_ACT_GOTO) {
        if (matched === "all") from = rule.goto ?? 0;
        continue;
      }
      const decision = this.#decide(rule, packet);
      if (!decision) continue;
      if (matched === "all") return { decision, forSome };
      forSome.push(decision);
    }
    return { forSome };
  }

  /** `undefined`: the rule leaves it to the next one. */
  #decide(rule: RoutingRule, packet: RoutedPacket): Decision | undefined {
    if (rule.action !== uapi.FR_ACT_TO_TBL) return { rule };
    const route = this.#bestRoute(rule, packet);
    const decides = route && route.type !== uapi.RTN_THROW && route.dstLen > (rule.suppressPrefixLength ?? -1);
    return decides ? { rule, route } : undefined;
  }

  #bestRoute({ table }: RoutingRule, { destination, source }: RoutedPacket): rawRoute.RawRoute | undefined {
    const matching = this.#routes.filter((route) =>
      rawRoute.tableOf(route) === table && containsIp(rawRoute.destinationOf(route), destination) &&
      !(route.flags & uapi.RTNH_F_DEAD) && (route.srcLen === 0 || source !== undefined)
    );
    return matching.toSorted((a, b) => b.dstLen - a.dstLen || (a.priority ?? 0) - (b.priority ?? 0))[0];
  }

  #describe({ rule, route }: Decision): Cause | undefined {
    const isUsualTable = rule.action === uapi.FR_ACT_TO_TBL && rule.table in TABLE_NAMES;
    const words = describeRule(rule);
    const by = `routing rule ${rule.priority} (${words.join(" ")})`;
    if (route && isBlocking(route)) {
      const { what, remedy } = this.describeBlockingRoute(route);
      return { what: isUsualTable ? what : `${what}, by ${by}`, remedy };
    }
    if (isUsualTable) return undefined;
    const command = this.#command(rule.family, ["rule", "del", "priority", `${rule.priority}`, ...words]);
    const isHost = this.#place === "";
    return {
      what: `${by}${this.#place}`,
      remedy: careful(advise("unless somebody means this rule, remove it", command), isHost),
    };
  }

  describeBlockingRoute(route: rawRoute.RawRoute): Cause {
    const [type, destination, table] = [
      ROUTE_TYPES[route.type]!,
      rawRoute.destinationOf(route),
      rawRoute.tableOf(route),
    ];
    const selectors = [
      ...table === uapi.RT_TABLE_MAIN ? [] : ["table", `${table}`],
      ...route.priority === undefined ? [] : ["metric", `${route.priority}`],
    ];
    const command = this.#command(familyOf(destination), ["route", "del", type, destination, ...selectors]);
    return {
      what: `${type} route ${destination} of table ${tableName(table)}${this.#place}`,
      remedy: careful(advise("unless somebody means this route, remove it", command), this.#place === ""),
    };
  }

  get #place(): string {
    return this.path === undefined ? "" : ` in ${this.path}`;
  }

  #command(family: 4 | 6, words: readonly string[]): string {
    return ipCommand(this.path, ...family === 6 ? ["-6"] : [], ...words);
  }
}

interface Decision {
  readonly rule: RoutingRule;
  /** Absent if the rule itself drops or refuses the packet. */
  readonly route?: rawRoute.RawRoute;
}

interface Decisions {
  /** Counts for packets that no rule selects by more than is known of them. */
  readonly decision?: Decision;
  /** Count for packets that a rule selects by more, such as ports. */
  readonly forSome: readonly Decision[];
}

/** Older kernels have a route of their own that says so where there is none. */
function isBlocking({ type, protocol }: rawRoute.RawRoute): boolean {
  return type in ROUTE_TYPES && protocol !== uapi.RTPROT_KERNEL;
}

const isBlocked = ({ route }: Decision): boolean => !route || route.type in ROUTE_TYPES;

const leadsTo = ({ route }: Decision, oif: number): boolean =>
  route !== undefined && rawRoute.linksOf(route).includes(oif);

/** Which packets a rule selects, of those that differ in ports, protocols and the like. `undefined`: it cannot be told. */
function matchRule(
  rule: RoutingRule,
  { source, destination, mark = 0, inLink }: RoutedPacket,
): "all" | "some" | "none" | undefined {
  if (rule.isL3mdev) return inLink?.master === undefined ? "none" : undefined;
  const { from, to, iif, oif } = rule;
  const matches = (!from || source !== undefined && containsIp(from, source)) && (!to || containsIp(to, destination)) &&
    // A packet of the namespace itself comes from "lo".
    (iif === undefined || iif === (inLink?.name ?? "lo")) && oif === undefined &&
    (!rule.mark || (mark & rule.mark.mask) >>> 0 === rule.mark.value);
  if (matches && rule.otherSelectors.length > 0) return "some";
  return matches === rule.isInverted ? "none" : "all";
}

/** Has the words of ip-rule(8), without the priority. */
function describeRule(rule: RoutingRule): string[] {
  const { isInverted, from, to, iif, oif, mark, otherSelectors, action, table } = rule;
  const marked = mark && `0x${mark.value.toString(16)}/0x${mark.mask.toString(16)}`;
  return [
    ...isInverted ? ["not"] : [],
    "from",
    from ?? "all",
    ...to ? ["to", to] : [],
    ...iif === undefined ? [] : ["iif", iif],
    ...oif === undefined ? [] : ["oif", oif],
    ...marked === undefined ? [] : ["fwmark", marked],
    ...otherSelectors,
    ...action === uapi.FR_ACT_TO_TBL ? ["lookup", tableName(table)] : [RULE_ACTIONS[action] ?? `action ${action}`],
  ];
}
