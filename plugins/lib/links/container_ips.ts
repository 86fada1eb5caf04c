import { type Cidr, familyOf } from "../../../ffi/address.ts";
import type { IpConfig, Result } from "../../../spec/result.ts";

/** The addresses of the container's interface. One without an interface counts as the container's. */
export function containerIps({ ips = [], interfaces = [] }: Result, ifname: string): IpConfig[] {
  return ips.filter((ip) => {
    const device = ip.interface === undefined ? undefined : interfaces[ip.interface];
    return !device || (device.name === ifname && device.sandbox);
  });
}

/** What published ports lead to: the container's first address of each family. */
export function targetAddresses(result: Result, ifname: string): Cidr[] {
  const addresses = containerIps(result, ifname).map(({ address }) => address);
  return ([4, 6] as const).flatMap((family) => addresses.find((address) => familyOf(address) === family) ?? []);
}
