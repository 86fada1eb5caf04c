import { lazy, object } from "../../spec/schema.ts";
import { routeOverlapKeys } from "../lib/links/host_networks.ts";
import { vethKeys } from "../lib/veth/masqueraded_veth.ts";

export const ptpConfig = lazy(() => object({ ...vethKeys(), ...routeOverlapKeys() }));
