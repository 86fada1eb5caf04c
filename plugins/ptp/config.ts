import { type Infer, lazy, object } from "../../spec/schema.ts";
import { routeOverlapKeys } from "../lib/links/host_networks.ts";
import { vethKeys } from "../lib/veth/masqueraded_veth.ts";
import type { NetworkModel } from "../lib/model/network_model.ts";

export const ptpConfig = lazy(() => object({ ...vethKeys(), ...routeOverlapKeys() }));

export type PtpConfig = Infer<typeof ptpConfig>;

export function ptpNetwork({ ipMasq, allowRouteOverlap }: PtpConfig): NetworkModel {
  return { isRouted: true, masquerades: ipMasq, addsDefaultRoutes: false, allowsRouteOverlap: allowRouteOverlap };
}
