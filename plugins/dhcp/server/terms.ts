/** What a server grants: the useful part of an OFFER or ACK. Everything in it comes from the wire. @module */
import {
  broadcastOf,
  type Cidr,
  containsIp,
  type Ip,
  ipBytes,
  ipOf,
  isMulticast,
  type Mac,
  networkOf,
  parseCidr,
  prefixLengthOf,
  toCidr,
} from "../../../ffi/address.ts";
import type { Dns } from "../../../spec/result.ts";
import type { DhcpReply } from "./message.ts";
import { findOption, type OptionRoute, UNSPECIFIED } from "./options.ts";

export interface LeaseTerms {
  /** Absent in an OFFER without a subnet mask. */
  readonly cidr?: Cidr;
  readonly address: Ip;
  readonly gateway?: Ip;
  readonly routes: readonly OptionRoute[];
  readonly dns: Dns;
  readonly mtu?: number;
  readonly ntpServers: readonly Ip[];
  readonly serverId: Ip;
  /** The server's, or that of a relay: where unicast messages go. */
  readonly serverMac: Mac;
  /** Milliseconds from the REQUEST on; absent for a lease without end. */
  readonly duration?: LeaseDuration;
}

export interface LeaseDuration {
  readonly renewMs: number;
  readonly rebindMs: number;
  readonly expiryMs: number;
}

const INFINITE = 0xffff_ffff;
const DEFAULT_LEASE_S = 3600;
/** Nobody renews more often, whatever a server says. */
const MIN_RENEW_S = 1;
/** RFC 791: every host takes so much. */
const MIN_MTU = 576;

/** `undefined` if the address or the server's identifier is missing or unusable. */
export function termsOf({ yiaddr, options }: DhcpReply, serverMac: Mac): LeaseTerms | undefined {
  const serverId = findOption(options, "serverId");
  if (serverId === undefined || !isHostAddress(serverId) || !isHostAddress(yiaddr)) return undefined;
  const prefixLength = prefixLengthOfMask(findOption(options, "subnetMask"));
  const cidr = prefixLength === undefined ? undefined : toCidr(yiaddr, prefixLength);
  if (cidr && isReservedIn(cidr)) return undefined;
  // The kernel refuses routes by other addresses, and by the own one.
  const isUsableGateway = (ip: Ip) => isHostAddress(ip) && ip !== yiaddr;
  const gateway = findOption(options, "routers")?.find(isUsableGateway);
  const routes = routesOf(options, gateway).filter(({ gw }) => gw === undefined || isUsableGateway(gw));
  const mtu = findOption(options, "interfaceMtu");
  return {
    address: yiaddr,
    ...cidr && { cidr },
    ...gateway !== undefined && { gateway },
    // The kernel refuses a route that it has.
    routes: [...new Map(routes.map((route) => [JSON.stringify(route), route])).values()],
    dns: dnsOf(options),
    ...mtu !== undefined && mtu >= MIN_MTU && { mtu },
    ntpServers: findOption(options, "ntpServers") ?? [],
    serverId,
    serverMac,
    ...durationOf(options),
  };
}

/** Classless routes replace all others (RFC 3442). A gateway may need a route on the link, which comes first. */
function routesOf(options: DhcpReply["options"], gateway: Ip | undefined): readonly OptionRoute[] {
  const classless = findOption(options, "classlessRoutes") ?? [];
  if (classless.length > 0) return [...classless.filter(({ gw }) => !gw), ...classless.filter(({ gw }) => gw)];
  const defaultRoute = gateway === undefined ? [] : [{ dst: DEFAULT_DESTINATION, gw: gateway }];
  return [...findOption(options, "staticRoutes") ?? [], ...defaultRoute];
}

const DEFAULT_DESTINATION = parseCidr("0.0.0.0/0");

/** Names go into files such as resolv.conf: others than those of hosts are left out. */
function dnsOf(options: DhcpReply["options"]): Dns {
  const isName = (name: string) => /^[\w-]+(\.[\w-]+)*\.?$/.test(name) && name.length <= 254;
  const nameservers = (findOption(options, "nameServers") ?? []).filter((ip) => ip !== UNSPECIFIED && !isMulticast(ip));
  const domain = findOption(options, "domainName") ?? "";
  const search = (findOption(options, "domainSearch") ?? []).filter(isName);
  return {
    ...nameservers.length > 0 && { nameservers },
    ...isName(domain) && { domain },
    ...search.length > 0 && { search },
  };
}

function durationOf(options: DhcpReply["options"]): { readonly duration?: LeaseDuration } {
  const leaseS = findOption(options, "leaseTime") ?? DEFAULT_LEASE_S;
  if (leaseS === INFINITE) return {};
  const expiryS = Math.max(leaseS, MIN_RENEW_S * 4);
  const [renewalTime, rebindingTime] = [findOption(options, "renewalTime"), findOption(options, "rebindingTime")];
  // RFC 2131 §4.4.5. Times in another order than T1, T2, expiry are a mistake.
  const rebindS = rebindingTime !== undefined && rebindingTime < expiryS ? rebindingTime : expiryS * 0.875;
  const defaultRenewS = expiryS / 2 < rebindS ? expiryS / 2 : rebindS / 2;
  const renewS = renewalTime !== undefined && renewalTime < rebindS ? renewalTime : defaultRenewS;
  return {
    duration: {
      renewMs: Math.max(renewS, MIN_RENEW_S) * 1000,
      rebindMs: Math.max(rebindS, MIN_RENEW_S * 2) * 1000,
      expiryMs: expiryS * 1000,
    },
  };
}

/** The address of the network itself, or of all its hosts. */
function isReservedIn(cidr: Cidr): boolean {
  return prefixLengthOf(cidr) < 31 && [ipOf(networkOf(cidr)), broadcastOf(cidr)].includes(ipOf(cidr));
}

const LOOPBACK = parseCidr("127.0.0.0/8");
const THIS_NETWORK = parseCidr("0.0.0.0/8");
const RESERVED = parseCidr("240.0.0.0/4");

function isHostAddress(ip: Ip): boolean {
  return !isMulticast(ip) && ![LOOPBACK, THIS_NETWORK, RESERVED].some((network) => containsIp(network, ip));
}

/** `undefined` for a mask with gaps. */
function prefixLengthOfMask(mask: Ip | undefined): number | undefined {
  if (mask === undefined) return undefined;
  const bits = Array.from(ipBytes(mask), (byte) => byte.toString(2).padStart(8, "0")).join("");
  return /^1+0*$/.test(bits) ? bits.lastIndexOf("1") + 1 : undefined;
}
