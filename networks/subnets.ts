/** Which subnets are in use, and which is free. */
import {
  type Cidr,
  containsIp,
  familyOf,
  hostPrefix,
  type Ip,
  ipBytes,
  ipFromBytes,
  ipOf,
  networkOf,
  networksOverlap,
  parseIp,
  prefixLengthOf,
  toCidr,
} from "../ffi/address.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import * as address from "../ffi/route/address.ts";
import * as link from "../ffi/route/link.ts";
import * as rawRoute from "../ffi/route/raw_route.ts";
import { ignoreSystemErrors } from "../ffi/sys/error.ts";
import { readText } from "../ffi/sys/file.ts";
import { parseResolvConf } from "../spec/resolv_conf.ts";
import { configuredSubnets } from "../plugins/lib/links/reachability.ts";
import { CniError, Code } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";
import type { NetworkAttachment } from "../runtime/attachments.ts";
import type { NetworkFile } from "./network_files.ts";

/** A subnet that a new network must not overlap. */
export interface SubnetUse {
  readonly subnet: Cidr;
  /** `network "web"` */
  readonly user: string;
}

export function subnetsOfNetworks(
  files: readonly NetworkFile[],
  attachments: readonly NetworkAttachment[],
): SubnetUse[] {
  const configured = files.flatMap(({ list, file }) =>
    list ? subnetsOfConfiguration(list).map((subnet) => ({ subnet, user: `network "${list.name}" in "${file}"` })) : []
  );
  const attached = attachments.flatMap(({ network, containerId, result }) =>
    (result?.ips ?? []).map(({ address }) => ({
      subnet: networkOf(address),
      user: `container "${containerId}" on network "${network}"`,
    }))
  );
  return [...configured, ...attached];
}

/** Ranges of host-local and addresses of static, in the order of the configuration. What cannot be read is left out. */
export function subnetsOfConfiguration({ plugins }: NetworkConfigList): Cidr[] {
  return plugins.flatMap(({ raw }) => configuredSubnets(raw));
}

/** Routes of every table, and addresses. */
export function subnetsOfHost(host: Netns): SubnetUse[] {
  const names = new Map(link.list(host.route).map(({ index, name = "" }) => [index, name]));
  const userOf = (what: string, index: number | undefined) => {
    const name = names.get(index ?? 0);
    return name === undefined ? `${what} of the host` : `${what} of the host on "${name}"`;
  };
  const routes = rawRoute.list(host.route).map((route) => ({
    subnet: rawRoute.destinationOf(route),
    user: userOf("a route", route.oif),
  }));
  const addresses = address.list(host.route).map(({ address, index }) => ({
    subnet: networkOf(address),
    user: userOf(`address ${address}`, index),
  }));
  return [...addresses, ...routes.filter(({ subnet }) => !isDefaultRoute(subnet))];
}

/** VPNs cover the default route with two halves. */
export const isDefaultRoute = (destination: Cidr): boolean => prefixLengthOf(destination) <= 1;

/** The host would look for them in the new network. */
export function nameServers(path = "/etc/resolv.conf"): SubnetUse[] {
  const text = ignoreSystemErrors(() => readText(path)) ?? "";
  return (parseResolvConf(text).nameservers ?? []).flatMap((server) => {
    try {
      return [{ subnet: hostPrefix(parseIp(server)), user: `name server ${server}` }];
    } catch {
      return [];
    }
  });
}

export function findSubnetUse(subnet: Cidr, uses: readonly SubnetUse[]): SubnetUse | undefined {
  return uses.find((use) => networksOverlap(use.subnet, subnet));
}

/**
 * Outside of these: the built-in network's 10.63.0.0/16, podman's 10.88.0.0/16, nerdctl's 10.4.0.0/16 and Kubernetes'
 * 10.96.0.0/12, which no route shows.
 */
const POOLS = ["10.64.0.0/12", "172.20.0.0/14", "192.168.0.0/16"] as Cidr[];
const PREFIX_LENGTHS = { 4: 24, 6: 64 } as const;

export function chooseSubnet(family: 4 | 6, uses: readonly SubnetUse[]): Cidr {
  if (family === 6) return chooseUniqueLocalSubnet(uses);
  const isUsed = usedSubnetTest(uses);
  for (const pool of POOLS) {
    for (let ip: Ip = ipOf(pool); containsIp(pool, ip); ip = addToIpv4(ip, 2 ** (32 - PREFIX_LENGTHS[4]))) {
      const subnet = toCidr(ip, PREFIX_LENGTHS[4]);
      if (!isUsed(subnet)) return subnet;
    }
  }
  throw new CniError(Code.NotAvailable, `Cannot choose a subnet: all of ${POOLS.join(", ")} is in use`, {
    details: "name one that is free with --subnet",
  });
}

/**
 * Tells whether an IPv4 subnet of the chosen length is in use, without comparing thousands of subnets with thousands of
 * uses.
 */
function usedSubnetTest(uses: readonly SubnetUse[]): (subnet: Cidr) => boolean {
  const widen = (subnet: Cidr, length: number) => networkOf(toCidr(ipOf(subnet), length));
  const used = uses.map(({ subnet }) => subnet).filter((subnet) => familyOf(subnet) === 4);
  const networks = new Set(used.map((subnet) => widen(subnet, Math.min(prefixLengthOf(subnet), PREFIX_LENGTHS[4]))));
  const lengths = [...new Set([...networks].map(prefixLengthOf))];
  return (subnet) => lengths.some((length) => networks.has(widen(subnet, length)));
}

/** RFC 4193: random, so that networks of several hosts can meet. */
function chooseUniqueLocalSubnet(uses: readonly SubnetUse[]): Cidr {
  for (;;) {
    const bytes = new Uint8Array(16);
    crypto.getRandomValues(bytes.subarray(1, 6));
    bytes[0] = 0xfd;
    const subnet = toCidr(ipFromBytes(bytes), PREFIX_LENGTHS[6]);
    if (!findSubnetUse(subnet, uses)) return subnet;
  }
}

function addToIpv4(ip: Ip, count: number): Ip {
  const bytes = ipBytes(ip);
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  view.setUint32(0, view.getUint32(0) + count);
  return ipFromBytes(bytes);
}
