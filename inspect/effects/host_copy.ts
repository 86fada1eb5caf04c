/** A copy of the host and of a container, in which a dry run of ADD may do everything. @module */
import { createNetns, currentNetns, type Netns } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { bridge, veth } from "../../ffi/route/link_kinds.ts";
import * as rawRoute from "../../ffi/route/raw_route.ts";
import { IFF_NOARP, IFF_UP, RT_SCOPE_UNIVERSE, RTPROT_KERNEL } from "../../ffi/route/uapi.ts";
import { executeAll } from "../../ffi/netlink/socket.ts";
import { ignoreErrors, ignoreSystemErrors, SystemError } from "../../ffi/sys/error.ts";
import { overwrite } from "../../ffi/sys/file.ts";
import { findSysctl } from "../../ffi/sys/sysctl.ts";
import { isTunnel } from "../../plugins/lib/links/host_networks.ts";
import { copyRuleset } from "./ruleset_copy.ts";
import { type AddSubject, type LinkUses, LOOPBACK_INDEX, selectVisibleLinks } from "./visible_links.ts";

export interface HostCopy extends Disposable {
  readonly host: Netns;
  readonly container: Netns;
  readonly notes: readonly string[];
}

/** Kernel parameters that plugins set only where needed: of the namespace, and of each link. */
const SYSCTLS = ["net/ipv4/ip_forward", "net/ipv6/conf/default/accept_ra"];
const LINK_SYSCTLS = [
  "net/ipv6/conf/*/forwarding",
  "net/ipv6/conf/*/disable_ipv6",
  "net/ipv6/conf/*/accept_ra",
  "net/ipv6/conf/*/accept_dad",
  "net/ipv4/conf/*/rp_filter",
  "net/ipv4/conf/*/route_localnet",
];

/**
 * Has links of the same names, indices, addresses and routes, kernel parameters and rules. Bridges are bridges. Others are
 * ends of veth pairs, since no copy has their hardware. Links of the host that `subject` cannot see are left out.
 */
export function copyHost(container: Netns, subject: AddSubject): HostCopy {
  using resources = new DisposableStack();
  using original = currentNetns();
  // The other ends of veth pairs: links of a copy have a carrier.
  const [host, containerCopy, ends] = [createNetns, createNetns, createNetns].map((create) =>
    resources.use(create())
  ) as [Netns, Netns, Netns];
  const notes: string[] = [];
  const uses = readLinkUses(original);
  const visible = selectVisibleLinks(uses, subject);
  copyLinks({ ...uses, links: visible }, host, ends, notes);
  copyLinks(readLinkUses(container), containerCopy, ends, notes);
  copySysctls(original, host, visible);
  const tables = ignoreErrors(["EOPNOTSUPP", "EINVAL"], () => copyRuleset(original.nft, host.nft)) ?? [];
  for (const failure of tables) notes.push(`Rules of other programs are not known: ${failure}`);
  const owned = resources.move();
  return { host, container: containerCopy, notes, [Symbol.dispose]: () => owned.dispose() };
}

/** A bridge whose last port is gone has it. The kernel refuses it for a new link. */
const NO_MAC = "00:00:00:00:00:00";

function readLinkUses({ route }: Netns): LinkUses {
  return { links: link.list(route), addresses: address.list(route), routes: rawRoute.list(route) };
}

/** Leaves out addresses and routes of links that are left out. */
function copyLinks({ links, addresses, routes }: LinkUses, to: Netns, ends: Netns, notes: string[]): void {
  const attempt = (what: string, step: () => void) => {
    try {
      step();
    } catch (error) {
      if (!(error instanceof SystemError)) throw error;
      notes.push(`The copy has no ${what}: ${error.message}`);
    }
  };
  const indices = new Set(links.map(({ index }) => index));
  const copies = links.filter(({ index }) => index !== LOOPBACK_INDEX);
  const [bridges, others] = [copies.filter(isBridge), copies.filter((each) => !isBridge(each))];
  for (const copied of [...bridges, ...others]) attempt(`link "${copied.name}"`, () => addStandIn(to, copied, ends));
  const loopback = links.find(({ index }) => index === LOOPBACK_INDEX);
  if (loopback && link.isUp(loopback)) link.setUp(to.route, LOOPBACK_INDEX);
  for (const { index, scope, address: cidr } of addresses) {
    // The kernel gives others to the links of the copy.
    if (scope !== RT_SCOPE_UNIVERSE || !indices.has(index)) continue;
    attempt(`address ${cidr}`, () => executeAll(to.route, [address.addRequest(index, cidr, { noDad: true })]));
  }
  for (const route of routes) {
    if (route.protocol !== RTPROT_KERNEL && rawRoute.linksOf(route).every((index) => indices.has(index))) {
      attempt(`route to ${route.dst ?? "all"}`, () => rawRoute.append(to.route, route));
    }
  }
}

const isBridge = ({ info }: link.Link): boolean => info?.kind === "bridge";

function addStandIn(to: Netns, copied: link.Link, ends: Netns): void {
  const { name, index, mac, mtu, alias, master } = copied;
  // A tunnel's networks are another's.
  const flags = copied.flags & IFF_UP | (isTunnel(copied) ? IFF_NOARP : 0);
  const end = `end${crypto.randomUUID().slice(0, 8)}`;
  link.add(to.route, {
    name,
    index,
    flags,
    change: flags | IFF_UP,
    info: isBridge(copied) ? bridge({}) : veth({ peer: { name: end, netnsFd: ends.fd } }),
    ...mac !== undefined && mac !== NO_MAC && { mac },
    ...mtu !== undefined && { mtu },
    ...!isBridge(copied) && master !== undefined && { master },
  });
  if (!isBridge(copied)) link.set(ends.route, end, { flags: IFF_UP, change: IFF_UP });
  if (alias !== undefined) link.set(to.route, index, { alias });
}

function copySysctls(from: Netns, to: Netns, visible: readonly link.Link[]): void {
  const links = ["all", "default", ...visible.flatMap(({ name }) => name ?? [])];
  // Forwarding first: it changes others.
  const names = [...SYSCTLS, ...LINK_SYSCTLS.flatMap((name) => links.map((each) => name.replace("*", each)))];
  const values = from.run(() => names.map((name) => ignoreSystemErrors(() => findSysctl(name))));
  to.run(() =>
    names.forEach((name, i) => {
      const value = values[i];
      // Some links are not copied, some kernels lack parameters.
      if (value !== undefined) ignoreSystemErrors(() => overwrite(`/proc/sys/${name}`, value));
    })
  );
}
