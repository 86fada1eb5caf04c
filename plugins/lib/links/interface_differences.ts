/** How a container's interface differs from the result of its ADD: what CHECK and `cni doctor` tell. @module */
import { type Cidr, containsIp, familyOf, ipOf, networkOf, prefixLengthOf } from "../../../ffi/address.ts";
import type { InterfaceAddress } from "../../../ffi/route/address.ts";
import * as link from "../../../ffi/route/link.ts";
import { vrf } from "../../../ffi/route/link_kinds.ts";
import type { UnicastRoute } from "../../../ffi/route/route.ts";
import type { FibRule } from "../../../ffi/route/rule.ts";
import { RT_TABLE_MAIN } from "../../../ffi/route/uapi.ts";
import type { IpConfig, Result } from "../../../spec/result.ts";
import type { RouteConfig } from "../../../spec/schema.ts";
import { routesWithGateways } from "./configure_interface.ts";

/** What a namespace has. Its reader may ask the kernel at each call. */
export interface InterfaceState {
  findLink(index: number): link.Link | undefined;
  addressesOf(index: number): readonly InterfaceAddress[];
  routes(family: 4 | 6, table: number): readonly UnicastRoute[];
  rules(): readonly FibRule[];
}

/** The order is that in which CHECK looks. */
export type InterfaceDifference =
  | { readonly kind: "down"; readonly missing?: undefined }
  | { readonly kind: "address"; readonly missing: Cidr }
  | { readonly kind: "route"; readonly missing: RouteConfig };

/** @param ips of the interface, by the result */
export function* interfaceDifferences(
  state: InterfaceState,
  device: link.Link,
  result: Result,
  ips: readonly IpConfig[],
): Generator<InterfaceDifference> {
  if (ips.length > 0 && !link.isUp(device)) yield { kind: "down" };
  const present = new Set(state.addressesOf(device.index).map(({ address }) => address));
  for (const { address } of ips) if (!present.has(address)) yield { kind: "address", missing: address };
  for (const wanted of routesWithGateways(result, ips)) {
    if (!hasRoute(state, device, wanted)) yield { kind: "route", missing: wanted };
  }
}

/** Looks also where a later plugin may have moved it. */
export function hasRoute(state: InterfaceState, device: link.Link, wanted: RouteConfig): boolean {
  const destination = networkOf(wanted.dst);
  const isIn = (table: number, gateway: RouteConfig["gw"], metric = 0) =>
    state.routes(familyOf(wanted.dst), table).some((route) =>
      route.oif === device.index && route.dst === destination &&
      (gateway === undefined || route.gateway === gateway) && (metric === 0 || route.priority === metric)
    );
  if (isIn(wanted.table ?? RT_TABLE_MAIN, wanted.gw, wanted.priority)) return true;
  if (wanted.table !== undefined) return false;
  // sbr may change the default gateway; its own CHECK compares that.
  const gateway = prefixLengthOf(wanted.dst) === 0 ? undefined : wanted.gw;
  return [...vrfTablesOf(state, device), ...sourceRuleTablesOf(state, device)].some((table) => isIn(table, gateway));
}

function vrfTablesOf(state: InterfaceState, { master }: link.Link): number[] {
  const vrfLink = master === undefined ? undefined : state.findLink(master);
  const table = vrfLink && vrf.of(vrfLink)?.table;
  return table === undefined ? [] : [table];
}

/** sbr moves routes to these tables. */
function sourceRuleTablesOf(state: InterfaceState, { index }: link.Link): number[] {
  const ips = state.addressesOf(index).map(({ address }) => ipOf(address));
  return state.rules().flatMap(({ from, isSourceOnly, table = RT_TABLE_MAIN }) =>
    from && isSourceOnly && ips.some((ip) => containsIp(from, ip)) ? [table] : []
  );
}
