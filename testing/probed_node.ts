/**
 * A node that enforces the policies of a cluster of `compiled_cluster.ts`, for real packets. Its pods are namespaces
 * that the plugin attaches; pods of other nodes are addresses behind a router:
 *
 * ```
 * pods of other nodes, nobody's addresses ── 192.0.2.2 outside ── host ── pods of the node
 * ```
 *
 * @module
 */
import { type Ip, parseIp, toCidr } from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { executeAll } from "../ffi/netlink/socket.ts";
import * as address from "../ffi/route/address.ts";
import * as link from "../ffi/route/link.ts";
import { outgoingRoute, replaceRequest } from "../ffi/route/route.ts";
import { sleep } from "../ffi/sys/poll.ts";
import type { PolicyChange } from "../plugins/lib/policy/desired.ts";
import { PolicyRuleset } from "../plugins/lib/policy/policy_ruleset.ts";
import { type LabelledPod, parsePod } from "../policy/api/pod.ts";
import {
  type CompiledCluster,
  type EnforcingNode,
  type JudgedFlow,
  LOCAL_NODE,
  type ProbedFlows,
} from "./compiled_cluster.ts";
import { ping, runShellInNetns } from "./netns.ts";
import { PacketProbes } from "./packet_probes.ts";
import { newPolicySite, type PodLinks, type PolicyPod, type PolicySite } from "./policy_site.ts";

const ROUTER: readonly [Ip, Ip] = [parseIp("192.0.2.2"), parseIp("2001:db8::2")];
/** Of neither a pod nor the node. */
const OUTSIDE_OF_NODE: readonly string[] = [...ROUTER, "10.1.9.9", "fd00:1::99"];
const SERVED_PORTS = [80, 81, 90, 443];

const cidrOf = (ip: Ip) => toCidr(ip, ip.includes(":") ? 128 : 32);
/** Pods have the same number in both families. */
const numberOf = ([ip]: readonly Ip[]) => Number(ip!.split(".").at(-1));

export class ProbedNode implements EnforcingNode, Disposable {
  readonly #resources = new DisposableStack();
  readonly #site: PolicySite;
  readonly #links: PodLinks;
  readonly #ruleset: PolicyRuleset;
  readonly #probes: PacketProbes;
  /** Namespaces stay, and serve the pods of one cluster after the other. */
  readonly #places = new Map<number, PolicyPod>();
  readonly #attached = new Map<string, PolicyPod>();
  readonly #elsewhere = new Set<Ip>();

  /** @param directory is the state of plugins */
  constructor(links: PodLinks, directory: string) {
    this.#links = links;
    this.#site = this.#resources.use(newPolicySite(links, directory));
    this.#probes = this.#resources.use(new PacketProbes(SERVED_PORTS));
    const { host, outside } = this.#site;
    this.#ruleset = new PolicyRuleset(host.nft);
    this.clear();
    runShellInNetns(host, "ip route add 10.1.0.0/16 via 192.0.2.2; ip route add fd00:1::/64 via 2001:db8::2");
    runShellInNetns(
      outside,
      "ip route add default via 192.0.2.1; ip route add default via 2001:db8::1",
      "ip addr add 10.1.9.9/32 dev lo; ip addr add fd00:1::99/128 dev lo nodad",
    );
    // A datagram that waits for its neighbour may be lost.
    for (const ip of ROUTER) ping(host, ip);
    for (const ip of ["192.0.2.1", "2001:db8::1"]) ping(outside, ip);
  }

  attach({ uid, ips }: LabelledPod): void {
    const n = numberOf(ips);
    const place = this.#places.get(n) ?? this.#site.newPod(n, ips as readonly [Ip, Ip]);
    this.#places.set(n, place);
    this.#lead(ips, this.#links === "routed" ? place.link : "br0");
    this.#site.add(place);
    this.#attached.set(uid, place);
  }

  detach({ uid }: LabelledPod): void {
    this.#site.del(this.#attached.get(uid)!);
    this.#attached.delete(uid);
  }

  change(change: PolicyChange): void {
    this.#ruleset.change(change);
  }

  /** Whether the kernel has all that the compiler wants. @returns what differs */
  repair({ compiler }: CompiledCluster): string | undefined {
    return this.#ruleset.replace(compiler.desired());
  }

  /** From and to the addresses outside of it, too. @returns those that pass and must not, or do not and must */
  probe(cluster: CompiledCluster, { ports, protocols }: Omit<ProbedFlows, "outside">): JudgedFlow[] {
    this.#placeOthers(cluster);
    const here = new Map([...this.#attached.values()].flatMap(({ ips, netns }) => ips.map((ip) => [ip, netns])));
    const netnsOf = (ip: string): Netns => here.get(ip as Ip) ?? this.#site.outside;
    // Others do not pass the node, and what a pod sends to itself leaves no namespace.
    const flows = cluster.flows({ ports, protocols, outside: OUTSIDE_OF_NODE })
      .filter(({ source, destination }) => netnsOf(source) !== netnsOf(destination));
    return this.#probes.probe(flows, netnsOf);
  }

  /** Makes the node as it was before its first pod. */
  clear(): void {
    for (const place of this.#attached.values()) this.#site.del(place);
    this.#attached.clear();
    this.#ruleset.replace({ pods: [], chains: new Map(), sets: new Map() });
    this.#site.log.splice(0);
  }

  [Symbol.dispose](): void {
    this.#resources.dispose();
  }

  #placeOthers({ pods }: CompiledCluster): void {
    const others = [...pods.values()].filter(({ spec }) => spec?.nodeName !== LOCAL_NODE).map(parsePod);
    const wanted = new Set(others.flatMap(({ ips }) => ips));
    const nl = this.#site.outside.route;
    const { index } = link.get(nl, "lo");
    for (const ip of [...this.#elsewhere].filter((each) => !wanted.has(each))) {
      address.remove(nl, index, cidrOf(ip));
      this.#elsewhere.delete(ip);
    }
    const added = [...wanted].filter((ip) => !this.#elsewhere.has(ip));
    executeAll(nl, added.map((ip) => address.addRequest(index, cidrOf(ip), { noDad: true })));
    // The kernel makes routes to new IPv6 addresses a little later.
    for (const ip of added) while (outgoingRoute(nl, ip).oif !== index) sleep(1);
    this.#lead(added, "up0");
    for (const ip of added) this.#elsewhere.add(ip);
  }

  /** A cluster may have on another node what the last one had here. */
  #lead(ips: readonly Ip[], name: string): void {
    const nl = this.#site.host.route;
    const oif = link.get(nl, name).index;
    const routes = ips.map((ip) => ({
      dst: cidrOf(ip),
      oif,
      ...name === "up0" && { gateway: ROUTER[ip.includes(":") ? 1 : 0] },
    }));
    executeAll(nl, routes.map(replaceRequest));
  }
}
