import { checkFailedError } from "../lib/protocol/check_failed.ts";
import type { Cidr } from "../../ffi/address.ts";
import { type CheckCall, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import type { CniError } from "../../spec/error.ts";
import type { Result } from "../../spec/result.ts";
import { jsonObject } from "../../spec/schema.ts";
import { configuredIps, parseStaticIpam, staticConfig } from "./config.ts";

export default plugin({
  name: "static",
  about: "Assigns the addresses in the configuration",
  // Parsed only as needed: DEL must work with any configuration.
  config: { ...jsonObject, inner: staticConfig },
  args: ["IP", "GATEWAY"],
  ignoresNetns: true,

  validate: ({ pluginConfig }) => void configuredIps(pluginConfig, parseStaticIpam(pluginConfig), {}),

  add({ pluginConfig, args }) {
    const settings = parseStaticIpam(pluginConfig);
    return { ips: configuredIps(pluginConfig, settings, args), routes: settings.routes, dns: settings.dns };
  },

  del() {},

  delBatch: () => [],

  check: checkAddresses,

  gc() {},

  status({ pluginConfig }) {
    configuredIps(pluginConfig, parseStaticIpam(pluginConfig), {});
  },
});

function checkAddresses(call: CheckCall<unknown>): void {
  const { pluginConfig, args } = call;
  const { ips: reported = [] }: Result = requirePrevResult(call, "static");
  for (const { address, gateway } of configuredIps(pluginConfig, parseStaticIpam(pluginConfig), args)) {
    const found = reported.filter((ip) => ip.address === address);
    if (found.length === 0) throw differsError(address, "it lacks the address");
    if (gateway === undefined || found.some((ip) => ip.gateway === gateway)) continue;
    throw differsError(address, `its gateway is ${found[0]!.gateway ?? "missing"}, expected ${gateway}`);
  }
}

function differsError(address: Cidr, what: string): CniError {
  return checkFailedError(`prevResult does not have ${address} as configured: ${what}`);
}
