import { containsIp, familyOf, type Ip, parseCidr, parseIp } from "../../ffi/address.ts";
import type { AttachmentCall } from "../lib/protocol/plugin.ts";
import type { PluginConfig } from "../../spec/plugin_config.ts";
import { dnsSchema, type IpConfig } from "../../spec/result.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { excerpt } from "../../spec/jsonc.ts";
import {
  array,
  cidr,
  findValue,
  type Infer,
  ipAddress,
  jsonObject,
  knownKeys,
  lazy,
  optional,
  refine,
  routeOfOneFamily,
  withDefault,
} from "../../spec/schema.ts";
import { atLeast } from "../../spec/version.ts";

type CniArgs = AttachmentCall<unknown>["args"];

/** Plugins such as bridge make the gateway a host address in this subnet. */
const addressOfOneFamily = lazy(() =>
  refine(
    knownKeys({ address: cidr, gateway: optional(ipAddress) }),
    "an address with a gateway of its own family",
    ({ address, gateway }) => gateway === undefined || familyOf(gateway) === familyOf(address),
  )
);
const ipamSchema = lazy(() =>
  knownKeys({
    addresses: withDefault(array(addressOfOneFamily), []),
    routes: withDefault(array(routeOfOneFamily), []),
    dns: withDefault(dnsSchema, {}),
  })
);
type Ipam = Infer<typeof ipamSchema>;
const cidrs = lazy(() => withDefault(array(cidr), []));

export const staticConfig = () => {
  const ips = optional(knownKeys({ ips: cidrs }));
  return knownKeys({ ipam: ipamSchema, runtimeConfig: ips, args: optional(knownKeys({ cni: ips })) });
};

export function parseStaticIpam({ raw }: PluginConfig): Ipam {
  return ipamSchema.parse(jsonObject.parse(findValue(raw, "ipam"), "ipam"), "ipam");
}

/**
 * The configured addresses. `runtimeConfig` precedes `args.cni`; each replaces all other sources, gateways too. `ipam.addresses` and
 * CNI_ARGS add up. GATEWAY applies to both.
 *
 * @throws {ConfigError} or, for CNI_ARGS, {@linkcode CniError} with code 4
 */
export function configuredIps(
  { runtimeConfig, args, cniVersion }: PluginConfig,
  { addresses }: Ipam,
  cniArgs: CniArgs,
): IpConfig[] {
  const fromCniArgs = parseList(cniArgs, "IP", parseCidr, 'a CIDR such as "10.1.0.2/16"');
  const gateways = parseList(cniArgs, "GATEWAY", parseIp, 'an IP address such as "10.1.0.1"');
  const fromRuntime = cidrs.parse(findValue(runtimeConfig, "ips"), "runtimeConfig.ips");
  const fromArgs = cidrs.parse(findValue(args, "ips"), "args.cni.ips");
  const replacing = fromRuntime.length > 0 ? fromRuntime : fromArgs;
  const ips: readonly IpConfig[] = replacing.length > 0
    ? replacing.map((address) => ({ address }))
    : [...addresses, ...fromCniArgs.map((address) => ({ address }))].map((ip) => withGateway(ip, gateways));
  if (!atLeast(cniVersion, "0.3.0")) refuseSecondAddressOfFamily(ips, cniVersion);
  return [...ips];
}

/** The last gateway in the subnet counts. */
function withGateway(ip: IpConfig, gateways: readonly Ip[]): IpConfig {
  const gateway = gateways.findLast((candidate) => containsIp(ip.address, candidate));
  return gateway === undefined ? ip : { ...ip, gateway };
}

function parseList<T>(cniArgs: CniArgs, key: string, parse: (text: string) => T, expected: string): T[] {
  return (cniArgs[key] ?? "").split(",").map((text) => text.trim()).filter((text) => text !== "").map((text) => {
    try {
      return parse(text);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw new CniError(
        Code.InvalidEnvironment,
        `Cannot use CNI_ARGS: ${key} must be ${expected}, or several with commas: got ${excerpt(text)}`,
      );
    }
  });
}

/** Results of these versions have one address per family. */
function refuseSecondAddressOfFamily(ips: readonly IpConfig[], version: string): void {
  for (const family of [4, 6]) {
    const [, second] = ips.filter(({ address }) => familyOf(address) === family);
    if (!second) continue;
    throw new ConfigError(
      "ipam.addresses",
      `one address per family, since a result of version ${version} holds no more`,
      `${second.address} as a second one for IPv${family}`,
    );
  }
}
