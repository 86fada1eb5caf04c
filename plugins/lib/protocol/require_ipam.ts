import { ConfigError } from "../../../spec/error.ts";
import type { PluginConfig } from "../../../spec/plugin_config.ts";
import type { IpamDelegate, PluginCall } from "./plugin.ts";

export function requireIpam({ ipam }: Pick<PluginCall<unknown>, "ipam">): IpamDelegate {
  if (ipam) return ipam;
  throw ipamMissingError();
}

export function requireIpamType({ ipamType }: Pick<PluginConfig, "ipamType">): void {
  if (ipamType === undefined) throw ipamMissingError();
}

const ipamMissingError = () =>
  new ConfigError(
    "ipam.type",
    "the name of an IPAM plugin, since nothing can be reached without an address",
    "nothing",
  );
