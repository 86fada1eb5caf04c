import type { IpConfig, Result } from "../../../spec/result.ts";

/** The addresses of the container's interface. One without an interface counts as the container's. */
export function containerIps({ ips = [], interfaces = [] }: Result, ifname: string): IpConfig[] {
  return ips.filter((ip) => {
    const device = ip.interface === undefined ? undefined : interfaces[ip.interface];
    return !device || (device.name === ifname && device.sandbox);
  });
}
