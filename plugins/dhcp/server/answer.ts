import { RT_SCOPE_LINK } from "../../../ffi/route/uapi.ts";
import type { RouteConfig } from "../../../spec/schema.ts";
import type { LeaseAnswer } from "../protocol.ts";
import type { LeaseTerms } from "./terms.ts";

export function routesWithMetrics({ routes, mtu }: LeaseTerms, priority: number): RouteConfig[] {
  return routes.map(({ dst, gw }) => ({
    dst,
    ...gw === undefined ? { scope: RT_SCOPE_LINK } : { gw },
    ...mtu !== undefined && { mtu },
    ...priority !== 0 && { priority },
  }));
}

export function leaseAnswer(terms: LeaseTerms, priority: number): LeaseAnswer | undefined {
  const { cidr: address, gateway, dns } = terms;
  if (address === undefined) return undefined;
  return { address, ...gateway && { gateway }, routes: routesWithMetrics(terms, priority), dns };
}
