import { type Cidr, familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import type { Netlink } from "../../ffi/netlink/socket.ts";
import { currentNetns, type Netns } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { IFF_LOOPBACK } from "../../ffi/route/uapi.ts";
import { SystemError } from "../../ffi/sys/error.ts";
import { IPV6_MIN_MTU } from "../../plugins/lib/links/sysctls.ts";
import { collectRecent } from "../garbage.ts";
import { type ClusterNode, isSameNode } from "../node.ts";
import { ClusterRules } from "./cluster_rules.ts";
import { Counts } from "./counts.ts";
import { KernelChanges, type WatchedState } from "./kernel_changes.ts";
import type { LeftRoute } from "./left_route.ts";
import { NodeRoutes } from "./node_routes.ts";
import type { RouteCounts } from "./route_counts.ts";
import { type HostFacts, matchNodes, NO_PLAN, type PeerPlan, planOwnRanges, planPeer } from "./plan.ts";
import type { IsShared } from "./ruleset.ts";
import type { ClusterSettings } from "./settings.ts";
import {
  ensureTunnel,
  ensureTunnelAddresses,
  findTunnelPlace,
  removeTunnel,
  TunnelError,
  tunnelOverhead,
  type TunnelPlace,
  type TunnelState,
} from "./tunnel.ts";

export interface ClusterNetworkOptions {
  readonly settings: ClusterSettings;
  log(message: string): void;
  /** Told when something was put back. */
  onRepair?(): void;
}

interface Peer {
  readonly node: ClusterNode;
  readonly plan: PeerPlan;
}

/** How long nothing is compared without a reason. */
const IDLE_MS = 3 * 60_000;
/** What the kernel refused is tried again. So is a new tunnel: udev sets sysctls of new links, and tells nobody. */
const RETRY_MS = 5000;
/** Another program's route also goes untold with its source address and with its nexthop object. */
const OBSTACLE_MS = 30_000;
/** Comparing takes at most a tenth of the time, whatever other programs change, unless so much would be mended late. */
const PAUSE_FACTOR = 9;
const MAX_PAUSE_MS = 3000;
/** Answers for all nodes at once would take much memory. */
const NODES_AT_ONCE = 100;
const MANY_NODES = 500;
/** What links of Ethernet have. */
const DEFAULT_MTU = 1500;

/**
 * Routes, tunnel and rules between this node and its peers, in the network namespace in which it was made. What is
 * desired is compared with the kernel, so that what others took away comes back.
 */
export class ClusterNetwork implements Disposable {
  readonly #settings: ClusterSettings;
  readonly #log: (message: string) => void;
  readonly #onRepair: () => void;
  readonly #resources: DisposableStack;
  readonly #host: Netns;
  readonly #changes: KernelChanges;
  readonly #rules: ClusterRules;
  readonly #routes: NodeRoutes;
  #own: ClusterNode | undefined;
  readonly #peers = new Map<string, Peer>();
  /** What all peers have together: to ask each of them for every change of one would take long. */
  #totals = newTotals();
  /** By subject: what could not be set up. */
  readonly #failures = new Map<string, string>();
  #facts: HostFacts = { links: new Map(), localAddresses: new Set(), tunnelIndex: undefined };
  /** It stays while no peer can be reached, as without the uplink. */
  #lastMtu: number | undefined;
  #hasLostAddress = false;
  /** They became garbage since it was collected. */
  #changedNodes = 0;
  #watched: WatchedState | undefined;
  /** Times are those of `performance.now()`. */
  #nextSync = Infinity;
  #earliestSync = -Infinity;
  #rulesDueAt = -Infinity;
  #tunnelIsNewUntil = -Infinity;

  constructor({ settings, log, onRepair = () => {} }: ClusterNetworkOptions) {
    this.#settings = settings;
    this.#log = log;
    this.#onRepair = onRepair;
    using resources = new DisposableStack();
    this.#host = resources.use(currentNetns());
    this.#changes = resources.use(new KernelChanges(this.#host));
    this.#rules = new ClusterRules(this.#host.nft, settings, () => this.#peerNodes());
    this.#routes = new NodeRoutes(this.#host.route);
    this.#resources = resources.move();
  }

  /** Can be read when {@linkcode look} has something to do. */
  get fds(): readonly number[] {
    return this.#changes.fds;
  }

  /** Of this node's pods: what reaches the pods of every peer. */
  get mtu(): number {
    const least = Math.min(...this.#totals.mtus.map.keys());
    const mtu = least < Infinity ? least : this.#peers.size > 0 && this.#lastMtu || this.#mtuWithoutPeers();
    // With less, the kernel would take IPv6 from pods. The tunnel's packets are sent in fragments instead.
    const hasIpv6 = this.#own?.podCidrs.some((cidr) => familyOf(cidr) === 6);
    return hasIpv6 ? Math.max(mtu, IPV6_MIN_MTU) : mtu;
  }

  /** Whether the kernel took rules and tunnel. Routes to single nodes do not count. */
  get isSetUp(): boolean {
    return this.#own !== undefined && this.#failures.size === 0;
  }

  /** Whether this node's links have lost an address since the last time: what was connected from it hears no more. */
  takeAddressLoss(): boolean {
    const hasLost = this.#hasLostAddress;
    this.#hasLostAddress = false;
    return hasLost;
  }

  routeCounts(): RouteCounts {
    return this.#routes.counts();
  }

  /** They are among the problems, and the cluster's would take their place. */
  leftRoutes(): readonly LeftRoute[] {
    return this.#routes.leftRoutes((index) => this.#facts.links.get(index)?.name);
  }

  problems(): readonly string[] {
    return [
      ...this.#failures.values(),
      ...this.#absentAddresses().map((ip) =>
        `This node's address ${ip} is on none of its links, so other nodes drop what it sends by the tunnel: ` +
        "look at the links, and at --node-ip of the kubelet"
      ),
      ...this.#routes.problems(),
      ...this.#totals.problems.map.keys(),
    ];
  }

  /** Compares all with the kernel: what carries our protocol number and is not desired goes. */
  replace(own: ClusterNode, peers: Iterable<ClusterNode>, formerOwnCidrs: readonly Cidr[]): void {
    this.#own = own;
    const former = new Map(this.#peers);
    this.#peers.clear();
    for (const node of peers) this.#peers.set(node.uid, { node, plan: former.get(node.uid)?.plan ?? NO_PLAN });
    this.#rules.replace(own, formerOwnCidrs);
    // Whoever read so many nodes has left some.
    this.#collectGarbage();
    this.#sync();
  }

  /** @param changed by UID, as they are now: `undefined` for one that is gone */
  update(changed: ReadonlyMap<string, ClusterNode | undefined>): void {
    const own = this.#own;
    if (!own) return;
    const former: Peer[] = [];
    const nodes: ClusterNode[] = [];
    for (const [uid, node] of changed) {
      const known = this.#peers.get(uid);
      if (known && node && isSameNode(known.node, node)) continue;
      if (known) former.push(known);
      if (node) nodes.push(node);
    }
    if (former.length + nodes.length === 0) return;
    const matches = matchNodes(this.#nl, nodes);
    const peers = nodes.map((node): Peer => ({
      node,
      plan: planPeer(own, node, this.#settings, this.#facts, matches),
    }));
    for (const peer of former) {
      countPeer(this.#totals, peer, "remove");
      this.#peers.delete(peer.node.uid);
    }
    const { addresses, ranges } = this.#totals;
    const isShared: IsShared = (each) =>
      own.addresses.includes(each as Ip) || addresses.map.has(each as Ip) || ranges.map.has(each as Cidr);
    for (const peer of peers) this.#peers.set(peer.node.uid, peer);
    // First: without them, packets would be masqueraded or dropped.
    this.#attempt("rules", () => this.#rules.update(former.map(({ node }) => node), nodes, isShared));
    for (const peer of peers) countPeer(this.#totals, peer, "add");
    this.#routes.update(former.map(({ plan }) => plan), peers.map(({ plan }) => plan), this.#facts.tunnelIndex);
    this.#setMtu();
    this.#watch();
    this.#changedNodes += former.length + nodes.length;
    if (this.#changedNodes > MANY_NODES) this.#collectGarbage();
    if (this.#hasFailed()) this.#nextSync = Math.min(this.#nextSync, performance.now() + RETRY_MS);
  }

  /** Reads what the kernel tells, and mends what others changed. Call it at least once a second. */
  look(): void {
    if (!this.#watched) return;
    const { hasLinksOrRoutes, hasRules } = this.#changes.read(this.#watched);
    const now = performance.now();
    if (hasRules) this.#rules.isDue = true;
    if (hasRules || hasLinksOrRoutes) this.#nextSync = Math.min(this.#nextSync, now);
    if (now < this.#nextSync || now < this.#earliestSync) return;
    const mended = this.#sync();
    if (mended.length === 0) return;
    this.#log(`Mended the network between nodes: ${mended.join(", ")}`);
    this.#onRepair();
  }

  [Symbol.dispose](): void {
    this.#resources.dispose();
  }

  get #nl(): Netlink {
    return this.#host.route;
  }

  #peerNodes(): ClusterNode[] {
    return Array.from(this.#peers.values(), ({ node }) => node);
  }

  /** @returns what differed from what is desired */
  #sync(): string[] {
    const own = this.#own!;
    const started = performance.now();
    this.#failures.clear();
    // Most of the time, only links and routes have changed.
    if (started >= this.#rulesDueAt) this.#rules.isDue = true;
    if (this.#rules.isDue) this.#rulesDueAt = started + IDLE_MS;
    const isNever = this.#settings.tunnel === "never";
    const links = link.list(this.#nl);
    const place = isNever ? undefined : this.#attempt("tunnel", () => findTunnelPlace(links, this.#settings));
    // Such as one with another port. It goes before the rules that guard it.
    const isLeft = !place && removeTunnel(this.#nl);
    const rules = this.#attempt("rules", () => this.#rules.sync(place !== undefined));
    this.#collectGarbage();
    const isInTheWay = this.#failures.has("tunnel");
    const tunnel = isInTheWay ? undefined : this.#attempt("tunnel", () => this.#syncTunnel(own, place));
    const former = this.#facts.localAddresses;
    this.#facts = this.#readFacts(own, tunnel?.index);
    const { localAddresses } = this.#facts;
    this.#hasLostAddress ||= own.addresses.some((ip) => former.has(ip) && !localAddresses.has(ip));
    this.#planPeers(own);
    this.#collectGarbage();
    const mtu = this.#setMtu() ? ["the tunnel's MTU"] : [];
    // A peer that is older may have the same range: its route is wanted.
    const plans = [planOwnRanges(own), ...Array.from(this.#peers.values(), ({ plan }) => plan)];
    const routes = this.#routes.sync(plans, tunnel?.index);
    if (!this.#failures.has("rules")) this.#attempt("rules", () => this.#rules.setUplinks(this.#routes.uplinks));
    this.#collectGarbage();
    this.#watch();
    const now = performance.now();
    this.#earliestSync = now + Math.min(PAUSE_FACTOR * (now - started), MAX_PAUSE_MS);
    if (tunnel?.isNew) this.#tunnelIsNewUntil = now + RETRY_MS;
    const isSoon = this.#hasFailed() || now < this.#tunnelIsNewUntil;
    this.#nextSync = now + (isSoon ? RETRY_MS : this.#routes.hasObstacle ? OBSTACLE_MS : IDLE_MS);
    const differences = isLeft ? ["the tunnel was there"] : tunnel?.differences ?? [];
    return [...rules ? [rules] : [], ...differences, ...mtu, ...routes];
  }

  #planPeers(own: ClusterNode): void {
    this.#totals = newTotals();
    const nodes = this.#peerNodes();
    for (let at = 0; at < nodes.length; at += NODES_AT_ONCE) {
      const some = nodes.slice(at, at + NODES_AT_ONCE);
      const matches = matchNodes(this.#nl, some);
      if (at > 0) collectRecent();
      for (const node of some) {
        const plan = planPeer(own, node, this.#settings, this.#facts, matches);
        const former = this.#peers.get(node.uid)!;
        // What stays is kept once.
        const peer = Bun.deepEquals(plan, former.plan) ? former : { node, plan };
        this.#peers.set(node.uid, peer);
        countPeer(this.#totals, peer, "add");
      }
    }
  }

  /** What was read of many nodes would stay long: the runtime waits until much of the machine's memory is taken. */
  #collectGarbage(): void {
    this.#changedNodes = 0;
    if (this.#peers.size > MANY_NODES) Bun.gc(true);
  }

  /** As far as the tunnel's packets should come from them: the kernel chooses another one. */
  #absentAddresses(): readonly Ip[] {
    const { localAddresses } = this.#facts;
    const absent = this.#own?.addresses.filter((ip) => !localAddresses.has(ip)) ?? [];
    if (absent.length === 0) return [];
    const isUsed = this.#routes.routes.values().some(({ encapsulation }) =>
      encapsulation !== undefined && encapsulation.source === undefined
    );
    return isUsed ? absent : [];
  }

  #hasFailed(): boolean {
    return this.#failures.size > 0 || this.#routes.hasRefusal;
  }

  #syncTunnel(own: ClusterNode, place: TunnelPlace | undefined): TunnelState | undefined {
    if (own.addresses.length === 0) throw new TunnelError("This node has no InternalIP that is an address");
    if (!place) return undefined;
    const { index, isNew, differences } = ensureTunnel(this.#host, place, own, this.#settings, {
      mayCreate: !this.#failures.has("rules"),
      log: this.#log,
    });
    return { index, isNew, differences: [...differences, ...ensureTunnelAddresses(this.#nl, index, own.podCidrs)] };
  }

  #readFacts(own: ClusterNode, tunnelIndex: number | undefined): HostFacts {
    const links = new Map(link.list(this.#nl).map((each) => [each.index, each]));
    const local = new Set(address.list(this.#nl).map((each) => ipOf(each.address)));
    return { links, localAddresses: new Set(own.addresses.filter((ip) => local.has(ip))), tunnelIndex };
  }

  #mtuWithoutPeers(): number {
    const [first] = this.#own?.addresses ?? [];
    const index = first && address.list(this.#nl).find((each) => ipOf(each.address) === first)?.index;
    const own = index === undefined ? undefined : this.#facts.links.get(index);
    // Packets leave by another link where the address is on lo, as in routed racks.
    const mtu = (own && (own.flags & IFF_LOOPBACK) === 0 ? own.mtu : undefined) ?? DEFAULT_MTU;
    return this.#settings.tunnel === "always" && first ? mtu - tunnelOverhead(familyOf(first)) : mtu;
  }

  /** @returns whether it differed */
  #setMtu(): boolean {
    const { tunnelIndex, links } = this.#facts;
    const tunnel = tunnelIndex === undefined ? undefined : links.get(tunnelIndex);
    const { mtu } = this;
    if (this.#totals.mtus.map.size > 0) this.#lastMtu = mtu;
    if (!tunnel || tunnel.mtu === mtu) return false;
    this.#attempt("mtu", () => link.set(this.#nl, tunnel.index, { mtu }));
    this.#facts = { ...this.#facts, links: new Map(links).set(tunnel.index, { ...tunnel, mtu }) };
    return true;
  }

  #attempt<T>(subject: string, call: () => T): T | undefined {
    try {
      return call();
    } catch (error) {
      if (!(error instanceof SystemError || error instanceof TunnelError)) throw error;
      this.#failures.set(subject, error.message);
      return undefined;
    }
  }

  #watch(): void {
    const own = this.#own!;
    this.#watched = {
      ...this.#facts,
      usedLinks: this.#totals.links,
      obstacleLinks: this.#routes.obstacleLinks,
      ownAddresses: new Set(own.addresses),
      ownCidrs: own.podCidrs,
      nodeAddresses: this.#totals.addresses.map,
      routes: this.#routes.routes,
      neighbours: this.#routes.neighbours,
    };
  }
}

interface Totals {
  readonly addresses: Counts<Ip>;
  readonly ranges: Counts<Cidr>;
  readonly mtus: Counts<number>;
  readonly problems: Counts<string>;
  /** Some may be used no more. */
  readonly links: Set<number>;
}

const newTotals = (): Totals => ({
  addresses: new Counts(),
  ranges: new Counts(),
  mtus: new Counts(),
  problems: new Counts(),
  links: new Set(),
});

function countPeer(
  { addresses, ranges, mtus, problems, links }: Totals,
  { node, plan }: Peer,
  verb: "add" | "remove",
): void {
  addresses[verb](node.addresses);
  ranges[verb](node.podCidrs);
  mtus[verb](plan.mtu === undefined ? [] : [plan.mtu]);
  problems[verb](plan.problems);
  for (const index of plan.links) links.add(index);
}
