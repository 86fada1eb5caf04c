/**
 * For plugins that are of no use without addresses.
 *
 * @module
 */
import { ConfigError } from "../../../spec/error.ts";
import type { IpamDelegate, PluginCall } from "./plugin.ts";

/** The IPAM plugin of a configuration that must name one. @throws {ConfigError} if it names none */
export function requireIpam({ ipam }: Pick<PluginCall<unknown>, "ipam">): IpamDelegate {
  if (ipam) return ipam;
  throw new ConfigError(
    "ipam.type",
    "the name of an IPAM plugin, since nothing can be reached without an address",
    "nothing",
  );
}
