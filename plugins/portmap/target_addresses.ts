import { type Cidr, familyOf } from "../../ffi/address.ts";
import type { Result } from "../../spec/result.ts";
import { containerIps } from "../lib/links/container_ips.ts";

/** What published ports lead to: the container's first address of each family. */
export function targetAddresses(result: Result, ifname: string): Cidr[] {
  const addresses = containerIps(result, ifname).map(({ address }) => address);
  return ([4, 6] as const).flatMap((family) => addresses.find((address) => familyOf(address) === family) ?? []);
}
