import { type Cidr, familyOf, type Ip, ipOf } from "../../ffi/address.ts";
import type { PluginConfig } from "../../spec/plugin_config.ts";
import { CniError, Code, ConfigError } from "../../spec/error.ts";
import {
  array,
  cidr,
  findValue,
  type Infer,
  ipOrCidr,
  jsonObject,
  knownKeys,
  lazy,
  nonEmptyString,
  optional,
  refine,
  type RouteConfig,
  routeOfOneFamily,
  type Schema,
  withDefault,
} from "../../spec/schema.ts";
import { atLeast } from "../../spec/version.ts";
import {
  rangeKeys,
  rangeOrSet,
  type RangeSet,
  rangeSet,
  refuseRangeOverlaps,
  resolveRange,
  resolveRangeSet,
} from "../lib/model/address_ranges.ts";

interface HostLocalConfig {
  /** One address each. The index is the N of `last_reserved_ip.N`. */
  readonly sets: readonly RangeSet[];
  readonly routes: readonly RouteConfig[];
  /** Path of a file as in resolv.conf(5). */
  readonly resolvConf?: string;
}

/** The kernel cuts a path at a NUL. */
export const pathWithoutNul: Schema<string> = refine(
  nonEmptyString,
  "a path without NUL",
  (text) => !text.includes("\0"),
);

const ipam = lazy(() =>
  knownKeys({
    // The oldest form of a range.
    subnet: optional({ ...cidr, emptyIsUnset: true }),
    ...rangeKeys,
    ranges: withDefault(array(rangeSet), []),
    routes: withDefault(array(routeOfOneFamily), []),
    // Known here, but parsed in plugin.ts for every command.
    dataDir: optional(pathWithoutNul),
    resolvConf: optional(pathWithoutNul),
  })
);
const DEFAULT_DATA_DIR = "/var/lib/cni/networks";

/** DEL must work with invalid ranges, so each command reads other keys only as needed. */
export const dataDirConfig = lazy(() =>
  knownKeys({
    ipam: withDefault(knownKeys({ dataDir: withDefault(pathWithoutNul, DEFAULT_DATA_DIR) }), {
      dataDir: DEFAULT_DATA_DIR,
    }),
  })
);

export type DataDirConfig = Infer<typeof dataDirConfig>;

const ipRanges = lazy(() => withDefault(array(rangeOrSet), []));
const ips = lazy(() => withDefault(array(ipOrCidr), []));

export const hostLocalConfigSchema = () =>
  knownKeys({
    ipam,
    runtimeConfig: optional(knownKeys({ ipRanges, ips })),
    args: optional(knownKeys({ cni: optional(knownKeys({ ips })) })),
  });

/** For ADD, CHECK and STATUS. There may be no range. @throws {ConfigError} */
export function parseHostLocalConfig({ raw, runtimeConfig, cniVersion }: PluginConfig): HostLocalConfig {
  const { subnet, ranges, routes, resolvConf, dataDir: _, ...legacyRange } = ipam.parse(
    jsonObject.parse(findValue(raw, "ipam"), "ipam"),
    "ipam",
  );
  const sets = [
    ...ipRanges.parse(findValue(runtimeConfig, "ipRanges"), "runtimeConfig.ipRanges"),
    ...(subnet ? [resolveRangeSet([resolveRange({ ...legacyRange, subnet }, "ipam")], "ipam.subnet")] : []),
    ...ranges,
  ];
  if (!atLeast(cniVersion, "0.3.0")) refuseSecondRangeSetOfFamily(sets, cniVersion);
  refuseRangeOverlaps(sets);
  return { sets, routes, ...(resolvConf && { resolvConf }) };
}

/** Results of these versions have one address per family. */
function refuseSecondRangeSetOfFamily(sets: readonly RangeSet[], version: string): void {
  for (const family of [4, 6]) {
    const [, second] = sets.filter(({ ranges }) => familyOf(ranges[0]!.subnet) === family);
    if (!second) continue;
    throw new ConfigError(
      second.path,
      `absent, since a result of version ${version} has one address per family`,
      `a second range set for IPv${family}`,
    );
  }
}

/**
 * The requested addresses, each once.
 *
 * All sources add up, as in the reference plugin, although CONVENTIONS.md lets `args` replace CNI_ARGS. One source can request IPv4, another
 * IPv6.
 *
 * @param ipArgument `IP` of CNI_ARGS
 * @throws {ConfigError} or, for CNI_ARGS, {@linkcode CniError} with code 4
 */
export function parseRequestedIps(
  { args, runtimeConfig }: PluginConfig,
  ipArgument: string | undefined,
): readonly Ip[] {
  const requested = [
    ...(ipArgument ? [parseArgument(ipArgument)] : []),
    ...ips.parse(findValue(args, "ips"), "args.cni.ips"),
    ...ips.parse(findValue(runtimeConfig, "ips"), "runtimeConfig.ips"),
  ].map(withoutPrefix);
  return requested.filter((ip, i) => requested.indexOf(ip) === i);
}

function parseArgument(text: string): Ip | Cidr {
  try {
    return ipOrCidr.parse(text);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new CniError(
      Code.InvalidEnvironment,
      `Cannot use CNI_ARGS: IP must be ${error.expected}: got ${JSON.stringify(text)}`,
    );
  }
}

function withoutPrefix(address: Ip | Cidr): Ip {
  return address.includes("/") ? ipOf(address as Cidr) : address as Ip;
}
