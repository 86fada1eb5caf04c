/**
 * The host's end of the cable: it has the gateways' addresses, and routes lead to it for the container's.
 *
 * @module
 */
import { type Cidr, familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns.ts";
import { NetlinkError } from "../../ffi/netlink/error.ts";
import { executeAll } from "../../ffi/netlink/socket.ts";
import * as address from "../../ffi/route/address.ts";
import * as link from "../../ffi/route/link.ts";
import * as route from "../../ffi/route/route.ts";
import { AF_INET, AF_INET6, IF_OPER_UP, RT_SCOPE_HOST, RT_TABLE_MAIN } from "../../ffi/route/uapi.ts";
import { expectEqual } from "../lib/links/interface.ts";
import { requireForwarding, requireIpv6 } from "../lib/links/sysctls.ts";
import { describeOwner, parseAlias } from "../lib/protocol/owner.ts";
import { CniError, Code } from "../../spec/error.ts";
import { type GatewayedIp, gatewaysOf, hostOf } from "./routes.ts";

/** Gives `outer` the gateways' addresses, and leads to it what is for the container. @throws {CniError} if the host leads that elsewhere */
export function setUpHostSide(host: Netns, { index, name = "" }: link.Link, ips: readonly GatewayedIp[]): void {
  const gateways = gatewaysOf(ips);
  const families = [...new Set(gateways.map(familyOf))];
  if (families.includes(6)) host.run(() => requireIpv6(host, name));
  requireForwarding(host, families);
  // At both ends of a cable addresses are unique, and packets of the container's must not wait for the host to find that out.
  const addresses = gateways.map((each) => address.addRequest(index, each, { withoutDad: true }));
  purposed(`give "${name}" the gateways ${gateways.join(", ")}`, () => executeAll(host.route, addresses));
  for (const { address: own } of ips) leadTo(host, index, ipOf(own));
}

function leadTo(host: Netns, index: number, container: Ip): void {
  const dst = hostOf(container);
  try {
    executeAll(host.route, [route.addSoleRequest({ dst, oif: index, scope: RT_SCOPE_HOST })]);
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    throw error.code === "EEXIST" ? ledElsewhere(host, container) : error.forPurpose(`add route to ${dst}`);
  }
}

/** Says where packets for an address go that a new container is to get. */
function ledElsewhere(host: Netns, container: Ip): CniError {
  const found = hostRoutes(host, container)[0]?.oif;
  const device = found === undefined ? undefined : link.find(host.route, found);
  const owner = parseAlias(device?.alias);
  const where = device?.name === undefined ? "elsewhere" : `to "${device.name}"`;
  return new CniError(
    Code.Internal,
    `Cannot connect ${container}: the host leads packets for it ${where}${owner ? `, to ${describeOwner(owner)}` : ""}`,
    { details: "have IPAM give each container an address of its own, or remove that route" },
  );
}

/** The routes of the host to this address alone. */
function hostRoutes(host: Netns, container: Ip): route.Route[] {
  const family = familyOf(container) === 4 ? AF_INET : AF_INET6;
  return route.list(host.route, family, RT_TABLE_MAIN).filter(({ dst }) => dst === hostOf(container));
}

/** Checks the host's end: its state, its addresses and what is led to it. @throws {CniError} on the first difference */
export function checkHostSide(host: Netns, outer: link.Link, ips: readonly GatewayedIp[]): void {
  const { index, name } = outer;
  expectEqual(`operational state of "${name}"`, outer.operstate, IF_OPER_UP);
  const present = address.list(host.route, { index }).map((each) => each.address);
  const lacking = gatewaysOf(ips).find((each: Cidr) => !present.includes(each));
  if (lacking) throw failed(`"${name}" lacks gateway address ${lacking}`);
  for (const each of ips) {
    const container = ipOf(each.address);
    if (!hostRoutes(host, container).some(({ oif }) => oif === index)) {
      throw failed(`the host lacks the route to ${container} dev "${name}"`);
    }
  }
}

function failed(what: string): CniError {
  return new CniError(Code.Internal, `Check failed: ${what}`);
}

function purposed(purpose: string, call: () => void): void {
  try {
    call();
  } catch (error) {
    throw error instanceof NetlinkError ? error.forPurpose(purpose) : error;
  }
}
