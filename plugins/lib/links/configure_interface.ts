import { type Cidr, familyOf, networkOf } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
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

export type InterfaceRoute = Omit<route.UnicastRoute, "oif">;

export interface ConfigureOptions {
  /** Skips duplicate address detection: nobody else can have the addresses. */
  readonly noDad: boolean;
  /** Routes before the result's, replacing the kernel's subnet routes. */
  readonly routes?: readonly InterfaceRoute[];
  /** Duplicate address detection cannot begin without a carrier, so nothing waits for it. */
  readonly noCarrier?: boolean;
  readonly duplicateAddressError?: (address: Cidr) => Error;
  log(message: string): void;
}

/**
 * Sets `device` up with its addresses and routes of `result`. Waits until IPv6 addresses are usable.
 *
 * @throws {CniError} if another host has one of the addresses
 * @throws {NetlinkError} naming the address or route
 */
export function configureInterface(netns: Netns, device: link.Link, result: Result, options: ConfigureOptions): void {
  const { index, name: ifname = "" } = device;
  const ips = ipsOf(result, ifname);
  const addresses = ips.map((ip) => ip.address);
  const ipv6Addresses = addresses.filter((cidr) => familyOf(cidr) === 6);
  using events = ipv6Addresses.length > 0 ? prepareIpv6(netns, ifname, options) : undefined;
  const addressRequests: LabelledRequest[] = [
    { purpose: `have "${ifname}" announce its addresses`, request: arpNotifyRequest(index) },
    ...addresses.map((cidr) => ({
      purpose: `add address ${cidr} to "${ifname}"`,
      request: address.addRequest(index, cidr, { ...options, noPrefixRoute: options.routes !== undefined }),
    })),
    { purpose: `set "${ifname}" up`, request: link.setUpRequest(index) },
  ];
  const resultRoutes = routesWithGateways(result, ips).map(({ gw, ...rest }) => ({ ...rest, gateway: gw }));
  const routeRequests = [...options.routes ?? [], ...resultRoutes].map((wanted): LabelledRequest => ({
    purpose: `add route to ${wanted.dst}${wanted.gateway ? ` via ${wanted.gateway}` : ""} dev "${ifname}"`,
    request: route.appendRequest({ ...wanted, oif: index }),
  }));
  // A route may need an address that is still being checked for duplicates.
  const batches = options.noDad ? [[...addressRequests, ...routeRequests]] : [addressRequests, routeRequests];
  executeLabelled(netns.route, batches[0]!);
  if (events) awaitUsable(netns, events, device, ipv6Addresses, options);
  if (batches[1]) executeLabelled(netns.route, batches[1]);
}

/** Without a carrier, detection ends only some time after there is one. */
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

/** @returns events that tell when IPv6 addresses are usable, if that is awaited */
function prepareIpv6(netns: Netns, ifname: string, options: ConfigureOptions): Netlink | undefined {
  return netns.run<Netlink | undefined>(() => {
    for (const name of [ifname, "lo"]) enableIpv6(netns, name);
    const conf = `net/ipv6/conf/${ifname}`;
    // This is for the link-local address; others have their own flag.
    const acceptDad = options.noDad ? "0" : "1";
    trySysctls({
      [`${conf}/keep_addr_on_down`]: "1",
      [`${conf}/ndisc_notify`]: "1",
      [`${conf}/accept_dad`]: acceptDad,
    }, options.log);
    return options.noCarrier ? undefined : openEvents(NETLINK_ROUTE, RTNLGRP_IPV6_IFADDR);
  });
}

export function ipsOf(result: Result, ifname: string): IpConfig[] {
  const { interfaces = [], ips = [] } = result;
  return ips.filter((ip) => ip.interface !== undefined && interfaces[ip.interface]?.name === ifname);
}

/** Each route once, with its gateway. */
export function routesWithGateways(result: Result, ips: readonly IpConfig[]): RouteConfig[] {
  const gateway = (family: 4 | 6) =>
    ips.map((ip) => ip.gateway).find((candidate) => candidate && familyOf(candidate) === family);
  const seen = new Set<string>();
  return (result.routes ?? []).map((element) => {
    // Routes of scope link and host have no gateway.
    const gw = element.gw ?? ((element.scope ?? 0) >= RT_SCOPE_LINK ? undefined : gateway(familyOf(element.dst)));
    return gw === undefined ? element : { ...element, gw };
  }).filter(({ dst, gw, priority = 0, table, scope }) => {
    const key = [networkOf(dst), gw, priority, table, scope].join(" ");
    return !seen.has(key) && seen.add(key);
  });
}

/** Waits until frames pass. @throws {NetlinkError} `ETIMEDOUT` */
export function awaitLinkOperational(netns: Netns, device: link.Link): link.Link {
  return link.awaitOperational(
    netns.route,
    device,
    () => netns.run<Netlink>(() => openEvents(NETLINK_ROUTE, RTNLGRP_LINK)),
  );
}
