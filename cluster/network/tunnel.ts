/** The one link of VXLAN that leads to all nodes: routes say to which. */
import {
  type Cidr,
  familyOf,
  hostPrefix,
  type Ip,
  ipBytes,
  ipFromBytes,
  ipOf,
  type Mac,
  macBytes,
  macFromBytes,
  networkOf,
} from "../../ffi/address.ts";
import { executeAll, type Netlink } from "../../ffi/netlink/socket.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import { vxlan } from "../../ffi/route/link_kinds.ts";
import { RT_SCOPE_LINK } from "../../ffi/route/uapi.ts";
import { findSysctl } from "../../ffi/sys/sysctl.ts";
import { trySysctls } from "../../plugins/lib/links/sysctls.ts";
import type { ClusterNode } from "../node.ts";
import { type ClusterSettings, TUNNEL_LINK } from "./settings.ts";

/** Headers before the inner packet: outer IP, UDP, VXLAN, Ethernet. */
export const tunnelOverhead = (underlay: 4 | 6): number => (underlay === 4 ? 20 : 40) + 8 + 8 + 14;

/** All nodes derive it from what they know of the node: nobody has to publish it. */
export function tunnelMac({ addresses: [first] }: ClusterNode): Mac {
  const bytes = ipBytes(first!);
  // 0x0e marks an address of one receiver that no vendor has given.
  const tail = bytes.length === 4
    ? [0xc2, ...bytes]
    : new Bun.CryptoHasher("sha256").update(bytes).digest().subarray(0, 5);
  return macFromBytes(Uint8Array.of(0x0e, ...tail));
}

/** What the tunnel's link has in the node's range: where other nodes send answers to. */
export const tunnelAddress = (podCidr: Cidr): Ip => ipOf(networkOf(podCidr));

/** By it, a route names the node to the table of neighbours. */
export function tunnelGateway(podCidr: Cidr, mac: Mac): Ip {
  if (familyOf(podCidr) === 4) return tunnelAddress(podCidr);
  // The kernel takes other addresses only if their own route leads to the link already.
  const [a = 0, b = 0, c = 0, ...rest] = macBytes(mac);
  return ipFromBytes(Uint8Array.of(0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, ...rest));
}

/** Why there is no tunnel. */
export class TunnelError extends Error {
  override readonly name = "TunnelError";
}

/** Where the tunnel is to be, with what has its name now. */
export interface TunnelPlace {
  readonly present: link.Link | undefined;
}

/** @throws {TunnelError} if another link is in the way: the port may be its own then */
export function findTunnelPlace(links: readonly link.Link[], { port }: ClusterSettings): TunnelPlace {
  const present = links.find(({ name }) => name === TUNNEL_LINK);
  if (present && present.info?.kind !== "vxlan") {
    const kind = present.info?.kind ?? "device";
    throw new TunnelError(`Link "${TUNNEL_LINK}" is a ${kind}, not the tunnel between nodes: rename or remove it`);
  }
  // Only one of them can be up.
  if (present && isTunnel(present, port) && link.isUp(present)) return { present };
  const other = links.find((each) => each !== present && link.isUp(each) && vxlan.of(each)?.port === port);
  if (!other) return { present };
  throw new TunnelError(
    `Link "${other.name}" has UDP port ${port} already: remove it, or give the cluster another port`,
  );
}

interface TunnelOptions {
  /** Without the guarding rules, there must be no new tunnel. */
  readonly mayCreate: boolean;
  log(message: string): void;
}

export interface TunnelState {
  readonly index: number;
  readonly isNew: boolean;
  readonly differences: readonly string[];
}

/** Makes the link, or what it lacks. Its MTU is set elsewhere. */
export function ensureTunnel(
  { route: nl, run }: Netns,
  { present }: TunnelPlace,
  own: ClusterNode,
  { port }: ClusterSettings,
  { mayCreate, log }: TunnelOptions,
): TunnelState {
  const mac = tunnelMac(own);
  if (present && isTunnel(present, port)) {
    if (present.mac !== mac) link.set(nl, present.index, { mac });
    if (!link.isUp(present)) link.setUp(nl, present.index);
    // Where udev applies sysctl.d(5), it does so after the link was made.
    const isSame = !setSysctls(run, log) && present.mac === mac && link.isUp(present);
    return { index: present.index, isNew: false, differences: isSame ? [] : ["the tunnel's state"] };
  }
  if (!mayCreate) throw new TunnelError("There is no tunnel without the rules that guard it");
  if (present) link.remove(nl, present.index);
  link.add(nl, { name: TUNNEL_LINK, mac, info: vxlan({ port, collectMetadata: 1, learning: 0 }) });
  const { index } = link.get(nl, TUNNEL_LINK);
  setSysctls(run, log);
  link.setUp(nl, index);
  return { index, isNew: true, differences: ["the tunnel"] };
}

/** The guarding rules check sources, see `ruleset.ts`. A link-local address would only send what goes nowhere. */
const SYSCTLS = {
  [`net/ipv4/conf/${TUNNEL_LINK}/rp_filter`]: "2",
  [`net/ipv6/conf/${TUNNEL_LINK}/addr_gen_mode`]: "1",
  [`net/ipv6/conf/${TUNNEL_LINK}/disable_ipv6`]: "0",
};

/** @returns whether it corrected all that differed */
function setSysctls(run: Netns["run"], log: (message: string) => void): boolean {
  return run<boolean>(() => {
    const findDiffering = () =>
      Object.entries(SYSCTLS).filter(([name, value]) => ![value, undefined].includes(findSysctl(name))).length;
    const count = findDiffering();
    if (count > 0) trySysctls(SYSCTLS, log);
    return count > 0 && findDiffering() === 0;
  });
}

function isTunnel(candidate: link.Link, port: number): boolean {
  const { collectMetadata, port: presentPort } = vxlan.of(candidate) ?? {};
  return collectMetadata === 1 && presentPort === port;
}

/** @returns what differed */
export function ensureTunnelAddresses(nl: Netlink, index: number, podCidrs: readonly Cidr[]): string[] {
  const wanted = podCidrs.map((cidr) => hostPrefix(tunnelAddress(cidr)));
  const present = address.list(nl, { index }).filter(({ scope }) => scope < RT_SCOPE_LINK).map((each) => each.address);
  const stale = present.filter((each) => !wanted.includes(each));
  const missing = wanted.filter((each) => !present.includes(each));
  for (const each of stale) address.remove(nl, index, each);
  if (missing.length > 0) executeAll(nl, missing.map((each) => address.addRequest(index, each, { noDad: true })));
  return stale.length + missing.length > 0 ? ["the tunnel's addresses"] : [];
}

export function removeTunnel(nl: Netlink): boolean {
  const present = link.find(nl, TUNNEL_LINK);
  if (!present || vxlan.of(present)?.collectMetadata !== 1) return false;
  link.remove(nl, present.index);
  return true;
}
