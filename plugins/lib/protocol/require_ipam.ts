import { ConfigError } from "../../../spec/error.ts";
import type { IpamDelegate, PluginCall } from "./plugin.ts";

/** @throws {ConfigError} if the configuration names no IPAM plugin */
export function requireIpam({ ipam }: Pick<PluginCall<unknown>, "ipam">): IpamDelegate {
  if (ipam) return ipam;
  throw new ConfigError(
    "ipam.type",
    "the name of an IPAM plugin, since nothing can be reached without an address",
    "nothing",
  );
}
