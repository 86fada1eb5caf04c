/**
 * The `static` plugin: gives the addresses that stand in the configuration, or that the runtime asks for. It keeps no state.
 *
 * @module
 */
import { checkFailedError } from "../lib/protocol/check_failed.ts";
import { type Cidr, containsIp, familyOf, type Ip, parseCidr, parseIp } from "../../ffi/address.ts";
import { type AttachmentCall, type CheckCall, plugin, requirePrevResult } from "../lib/protocol/plugin.ts";
import type { PluginConfig } from "../../spec/plugin_config.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import { dnsSchema, type IpConfig, type Result } from "../../spec/result.ts";
import {
  array,
  cidr,
  excerpt,
  findKey,
  type Infer,
  ipAddress,
  jsonObject,
  knownKeys,
  lazy,
  optional,
  refine,
  route,
  withDefault,
} from "../../spec/schema.ts";
import { atLeast } from "../../spec/version.ts";

type CniArgs = AttachmentCall<unknown>["args"];

/** No interface could have such a route. */
const routeOfOneFamily = lazy(() =>
  refine(
    route,
    "a route with destination and gateway of one family",
    ({ dst, gw }) => gw === undefined || familyOf(gw) === familyOf(dst),
  )
);

/** What connects the container would give the host that gateway as an address of this subnet. */
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
const staticConfig = () => {
  const ips = knownKeys({ ips: cidrs });
  return knownKeys({ ipam: ipamSchema, runtimeConfig: ips, args: knownKeys({ cni: ips }) });
};

export default plugin({
  name: "static",
  about: "Gives the addresses that stand in the configuration",
  // Read by those that need it: DEL must work whatever stands there.
  config: { ...jsonObject, inner: staticConfig },
  args: ["IP", "GATEWAY"],
  ignoresNetns: true,

  add({ pluginConfig, args }) {
    const settings = parseIpam(pluginConfig);
    return { ips: configuredIps(pluginConfig, settings, args), routes: settings.routes, dns: settings.dns };
  },

  del() {},

  delBatch: () => [],

  check: checkAddresses,

  gc() {},

  status({ pluginConfig }) {
    configuredIps(pluginConfig, parseIpam(pluginConfig), {});
  },
});

function parseIpam({ raw }: PluginConfig): Ipam {
  return ipamSchema.parse(jsonObject.parse(findValue(raw, "ipam"), "ipam"), "ipam");
}

/**
 * What the runtime asks for replaces what the configuration says, gateways and all: `runtimeConfig` before `args.cni` before the two
 * that add up, `ipam.addresses` and CNI_ARGS. There GATEWAY is for the addresses of both: it is asked for with this container in mind,
 * and no one can tell a subnet's gateway by the place where the address stood.
 *
 * @throws {ConfigError} or, for CNI_ARGS, {@linkcode CniError} with code 4
 */
function configuredIps(
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

/** Of several gateways in one subnet the last. */
function withGateway(ip: IpConfig, gateways: readonly Ip[]): IpConfig {
  const gateway = gateways.findLast((candidate) => containsIp(ip.address, candidate));
  return gateway === undefined ? ip : { ...ip, gateway };
}

/** A value of CNI_ARGS with commas in it. */
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

/** The results of these versions have room for one address per family. */
function refuseSecondAddressOfFamily(ips: readonly IpConfig[], version: string): void {
  for (const family of [4, 6]) {
    const [, second] = ips.filter(({ address }) => familyOf(address) === family);
    if (!second) continue;
    throw new ConfigError(
      "ipam.addresses",
      `one address per family, since a result of version ${version} has no room for more`,
      `${second.address} as a second one for IPv${family}`,
    );
  }
}

/** @throws {CniError} if the container did not get an address that it was to get, or got it with another gateway */
function checkAddresses(call: CheckCall<unknown>): void {
  const { pluginConfig, args } = call;
  const { ips: reported = [] }: Result = requirePrevResult(call, "static");
  for (const { address, gateway } of configuredIps(pluginConfig, parseIpam(pluginConfig), args)) {
    const found = reported.filter((ip) => ip.address === address);
    if (found.length === 0) throw differsError(address, "it lacks the address");
    if (gateway === undefined || found.some((ip) => ip.gateway === gateway)) continue;
    throw differsError(address, `its gateway is ${found[0]!.gateway ?? "missing"}, expected ${gateway}`);
  }
}

function differsError(address: Cidr, what: string): CniError {
  return checkFailedError(`prevResult does not have ${address} as configured: ${what}`);
}

function findValue(node: Readonly<Record<string, unknown>>, key: string): unknown {
  const spelling = findKey(node, key);
  return spelling === undefined ? undefined : node[spelling];
}
