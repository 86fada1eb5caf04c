/**
 * Gives the container's interface the addresses and routes that IPAM decided, and waits until they can be used.
 *
 * @module
 */
import { type Cidr, familyOf, networkOf } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns.ts";
import { NetlinkError } from "../../../ffi/netlink/error.ts";
import {
  executeAll,
  type Netlink,
  NETLINK_ROUTE,
  type NetlinkRequest,
  openEvents,
} from "../../../ffi/netlink/socket.ts";
import * as address from "../../../ffi/route/address.ts";
import { arpNotifyRequest } from "../../../ffi/route/devconf.ts";
import * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import { RT_SCOPE_LINK, RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK } from "../../../ffi/route/uapi.ts";
import { CniError, Code } from "../../../spec/error.ts";
import type { IpConfig, Result } from "../../../spec/result.ts";
import type { RouteConfig } from "../../../spec/schema.ts";
import { enableIpv6, trySysctls } from "./sysctls.ts";

/** A route out of the interface that is configured. */
export type InterfaceRoute = Omit<route.UnicastRoute, "oif">;

/** How an interface is to be configured. */
export interface ConfigureOptions {
  /** IPv6 addresses are usable at once, without duplicate address detection: where nobody else can have them. */
  readonly noDad: boolean;
  /** Ways out of the interface that come before the result's routes, in place of the kernel's routes to the subnets of the addresses. */
  readonly routes?: readonly InterfaceRoute[];
  /** The link has no carrier: duplicate address detection has not begun and is not waited for. */
  readonly noCarrier?: boolean;
  /** Makes the error for an IPv6 address that another host has, where more is known of it. */
  readonly duplicateAddressError?: (address: Cidr) => Error;
  log(message: string): void;
}

/**
 * Gives `device` of `netns` the addresses and routes of `result` that are meant for it, and sets it up.
 *
 * When it returns, every address can be used: an IPv6 address is not before the kernel has said so.
 *
 * @throws {CniError} when another host has one of the addresses
 * @throws {NetlinkError} what the kernel refused, naming the address or route
 */
export function configureInterface(netns: Netns, device: link.Link, result: Result, options: ConfigureOptions): void {
  const { index, name: ifname = "" } = device;
  const ips = ipsOf(result, ifname);
  const addresses = ips.map((ip) => ip.address);
  const ipv6Addresses = addresses.filter((element) => familyOf(element) === 6);
  using events = ipv6Addresses.length > 0 ? prepareIpv6(netns, ifname, options) : undefined;
  const addAddresses = addresses.map((element): LabelledRequest => ({
    purpose: `add address ${element} to "${ifname}"`,
    request: address.addRequest(index, element, { ...options, noPrefixRoute: options.routes !== undefined }),
  }));
  const announce = { purpose: `have "${ifname}" announce its addresses`, request: arpNotifyRequest(index) };
  const up = { purpose: `set "${ifname}" up`, request: link.setUpRequest(index) };
  const addressRequests = [announce, ...addAddresses, up];
  const allRoutes = [
    ...options.routes ?? [],
    ...routesWithGateways(result, ips).map(({ gw, ...element }) => ({ ...element, gateway: gw })),
  ];
  const routeRequests = allRoutes.map((element): LabelledRequest => ({
    purpose: `add route to ${element.dst}${element.gateway ? ` via ${element.gateway}` : ""} dev "${ifname}"`,
    request: route.appendRequest({ ...element, oif: index }),
  }));
  // A route may need an address that is still being checked for duplicates.
  const batches = options.noDad ? [[...addressRequests, ...routeRequests]] : [addressRequests, routeRequests];
  executeLabelled(netns.route, batches[0]!);
  if (events) awaitUsable(netns, events, device, ipv6Addresses, options);
  if (batches[1]) executeLabelled(netns.route, batches[1]);
}

/** Without a carrier nothing can be detected: the addresses are used when there is one. */
function awaitUsable(
  netns: Netns,
  events: Netlink,
  { index, name: ifname = "" }: link.Link,
  addresses: readonly Cidr[],
  { duplicateAddressError: makeDuplicateError = duplicateAddressError(ifname), log }: ConfigureOptions,
): void {
  try {
    address.awaitDad(netns.route, events, index, addresses, makeDuplicateError);
  } catch (error) {
    if (!(error instanceof NetlinkError && error.code === "ETIMEDOUT")) throw error;
    if (link.isRunning(link.get(netns.route, index))) {
      throw new CniError(Code.TryAgainLater, error.message, {
        details: "duplicate address detection did not finish in time",
        cause: error,
      });
    }
    log(
      `Duplicate address detection of ${addresses.join(", ")} has not finished, continuing: "${ifname}" has no carrier`,
    );
  }
}

interface LabelledRequest {
  readonly purpose: string;
  readonly request: NetlinkRequest;
}

function executeLabelled(nl: Netlink, steps: readonly LabelledRequest[]): void {
  if (steps.length === 0) return;
  try {
    executeAll(nl, steps.map((step) => step.request));
  } catch (error) {
    throw error instanceof NetlinkError ? error.withPurpose(steps[error.index]!.purpose) : error;
  }
}

const duplicateAddressError = (ifname: string) => (duplicate: Cidr) =>
  new CniError(
    Code.Internal,
    `Cannot use address ${duplicate} on "${ifname}": another host of the network has it (duplicate address detection)`,
  );

/** Prepares the interface for IPv6 addresses. Gives the events that say when they can be used, where that is waited for. */
function prepareIpv6(netns: Netns, ifname: string, options: ConfigureOptions): Netlink | undefined {
  return netns.run<Netlink | undefined>(() => {
    prepareSysctls(netns, ifname, options);
    return options.noCarrier ? undefined : openEvents(NETLINK_ROUTE, RTNLGRP_IPV6_IFADDR);
  });
}

/** IPv6 on the interface, and parameters that make the kernel announce new addresses and keep them while the link is down; without those it works, only later. */
function prepareSysctls(netns: Netns, ifname: string, { noDad, log }: ConfigureOptions): void {
  for (const name of [ifname, "lo"]) enableIpv6(netns, name);
  trySysctls({
    [`net/ipv6/conf/${ifname}/keep_addr_on_down`]: "1",
    [`net/ipv6/conf/${ifname}/ndisc_notify`]: "1",
    // The link-local address too; the others say so with their own flag.
    [`net/ipv6/conf/${ifname}/accept_dad`]: noDad ? "0" : "1",
  }, log);
}

/** The addresses of a result that are meant for `ifname`. @throws {CniError} code 7 when an index points nowhere */
export function ipsOf(result: Result, ifname: string): IpConfig[] {
  const { interfaces = [], ips = [] } = result;
  return ips.filter((ip) => ip.interface !== undefined && interfaces[ip.interface]?.name === ifname);
}

/** The routes as the kernel is to have them: gateways filled in, each of them once. */
export function routesWithGateways(result: Result, ips: readonly IpConfig[]): RouteConfig[] {
  const gateway = (family: 4 | 6) =>
    ips.map((ip) => ip.gateway).find((element) => element && familyOf(element) === family);
  const seen = new Set<string>();
  return (result.routes ?? []).map((element) => {
    // To a scope of link or host no gateway can lead.
    const gw = element.gw ?? ((element.scope ?? 0) >= RT_SCOPE_LINK ? undefined : gateway(familyOf(element.dst)));
    return gw === undefined ? element : { ...element, gw };
  }).filter(({ dst, gw, priority = 0, table, scope }) => {
    const key = [networkOf(dst), gw, priority, table, scope].join(" ");
    return !seen.has(key) && seen.add(key);
  });
}

/** Waits until frames pass between `device` and what it is connected to. @throws {NetlinkError} `ETIMEDOUT` */
export function awaitLinkOperational(netns: Netns, device: link.Link): link.Link {
  return link.awaitOperational(
    netns.route,
    device,
    () => netns.run<Netlink>(() => openEvents(NETLINK_ROUTE, RTNLGRP_LINK)),
  );
}
