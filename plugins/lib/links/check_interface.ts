import * as address from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import * as route from "../../../ffi/route/route.ts";
import * as rule from "../../../ffi/route/rule.ts";
import { AF_INET, AF_INET6 } from "../../../ffi/sys/uapi.ts";
import type { CniError } from "../../../spec/error.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import type { Interface, Result } from "../../../spec/result.ts";
import type { RouteConfig } from "../../../spec/schema.ts";
import { checkFailedError, expectEqual } from "../protocol/check_failed.ts";
import { ipsOf } from "./configure_interface.ts";
import {
  hasRoute,
  type InterfaceDifference,
  interfaceDifferences,
  type InterfaceState,
} from "./interface_differences.ts";

export function requireContainerInterface(result: Result, ifname: string, sandbox: string): Interface {
  const reported = findContainerInterface(result, ifname);
  if (!reported) throw checkFailedError(`prevResult names no interface "${ifname}" in a container`);
  expectEqual(`sandbox of "${ifname}" in prevResult`, reported.sandbox, sandbox);
  return reported;
}

function findContainerInterface({ interfaces }: Result, ifname: string): Interface | undefined {
  return interfaces?.find(({ name, sandbox }) => name === ifname && sandbox);
}

export function expectConfigured(netns: Netns, ifname: string, result: Result): link.Link {
  const device = link.find(netns.route, ifname);
  if (!device) throw checkFailedError(`interface "${ifname}" is missing in "${netns.path}"`);
  const mac = findContainerInterface(result, ifname)?.mac?.toLowerCase();
  if (mac) expectEqual<string | undefined>(`MAC address of "${ifname}"`, device.mac, mac);
  for (const difference of interfaceDifferences(readState(netns), device, result, ipsOf(result, ifname))) {
    throw interfaceError(device, difference);
  }
  return device;
}

export function expectRoute(netns: Netns, device: link.Link, wanted: RouteConfig): void {
  if (!hasRoute(readState(netns), device, wanted)) throw interfaceError(device, { kind: "route", missing: wanted });
}

function interfaceError({ name }: link.Link, difference: InterfaceDifference): CniError {
  switch (difference.kind) {
    case "down":
      return checkFailedError(`administrative state of "${name}" is "down", expected "up"`);
    case "address":
      return checkFailedError(`"${name}" lacks address ${difference.missing}`);
    case "route": {
      const { dst, gw } = difference.missing;
      return checkFailedError(`"${name}" lacks the route to ${dst}${gw ? ` via ${gw}` : ""}`);
    }
  }
}

function readState({ route: nl }: Netns): InterfaceState {
  return {
    findLink: (index) => link.find(nl, index),
    addressesOf: (index) => address.list(nl, { index }),
    routes: (family, table) => route.list(nl, family === 4 ? AF_INET : AF_INET6, table),
    rules: () => rule.list(nl),
  };
}
