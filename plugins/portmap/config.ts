import { familyOf, type Ip } from "../../ffi/address.ts";
import { ConfigError } from "../../spec/error.ts";
import {
  array,
  boolean,
  int,
  ipAddress,
  type JsonObject,
  knownKeys,
  lazy,
  nonEmptyString,
  object,
  oneOf,
  optional,
  refine,
  type Schema,
  string,
  withDefault,
} from "../../spec/schema.ts";
import { type Conditions, parseConditions } from "./conditions.ts";

/** Protocols with ports that the kernel translates (RFC 5237). */
export const PROTOCOLS = { tcp: 6, udp: 17, sctp: 132 } as const;
export type Protocol = keyof typeof PROTOCOLS;

export interface PortMapping {
  readonly hostPort: number;
  readonly containerPort: number;
  readonly protocol: Protocol;
  /** 0.0.0.0 and :: mean all host addresses of their family. */
  readonly hostIP?: Ip;
}

export interface PortmapConfig {
  readonly mappings: readonly PortMapping[];
  /** Masquerade callers whose answers would not return: neighbours, the container itself, the host's loopback addresses. */
  readonly snat: boolean;
  readonly masqAll: boolean;
  /** Packets must fulfil them. */
  readonly conditions: { readonly 4?: Conditions; readonly 6?: Conditions };
  readonly backend?: "nftables" | "iptables";
  /** For conflicts with a listening program, or with another container's port on some address. */
  readonly hostPortInUse: "refuse" | "warn" | "ignore";
}

const portNumber = int({ min: 1, max: 65535 });
const protocol: Schema<Protocol> = {
  parse(node, path) {
    const names = Object.keys(PROTOCOLS) as Protocol[];
    const expected = `"tcp", "udp" or "sctp"`;
    const known = refine(string, expected, (text) => names.includes(text.toLowerCase() as Protocol));
    return known.parse(node, path).toLowerCase() as Protocol;
  },
  emptyIsUnset: true,
};
export const portMapping = lazy(() =>
  knownKeys({
    hostPort: portNumber,
    containerPort: portNumber,
    protocol: withDefault<Protocol>(protocol, "tcp"),
    hostIP: optional(ipAddress),
  })
);
const tokens = withDefault(array(string), []);

export const portmapConfigSchema = lazy(() =>
  object({
    backend: optional({ ...oneOf("nftables", "iptables"), emptyIsUnset: true }),
    snat: withDefault(boolean, true),
    masqAll: withDefault(boolean, false),
    // The reference plugin marks packets in one rule and masquerades them in another. Here one rule does both, without a mark.
    markMasqBit: optional(int({ min: 0, max: 31 })),
    externalSetMarkChain: optional(nonEmptyString),
    conditionsV4: tokens,
    conditionsV6: tokens,
    hostPortInUse: withDefault({ ...oneOf("refuse", "warn", "ignore"), emptyIsUnset: true }, "refuse"),
    runtimeConfig: withDefault(knownKeys({ portMappings: withDefault(array(portMapping), []) }), { portMappings: [] }),
  })
);

/** @throws {ConfigError} */
export function parsePortmapConfig(raw: JsonObject): PortmapConfig {
  const config = portmapConfigSchema.parse(raw);
  if (config.markMasqBit !== undefined && config.externalSetMarkChain !== undefined) {
    throw new ConfigError(
      "externalSetMarkChain",
      "absent when markMasqBit is set",
      JSON.stringify(config.externalSetMarkChain),
    );
  }
  const { snat, masqAll, backend, hostPortInUse } = config;
  const ipv4Conditions = parseConditions(config.conditionsV4, 4, "conditionsV4");
  const ipv6Conditions = parseConditions(config.conditionsV6, 6, "conditionsV6");
  return {
    mappings: mergeDuplicates(config.runtimeConfig.portMappings),
    snat,
    masqAll,
    conditions: { ...ipv4Conditions && { 4: ipv4Conditions }, ...ipv6Conditions && { 6: ipv6Conditions } },
    ...backend && { backend },
    hostPortInUse,
  };
}

/**
 * Engines write "all addresses" in three ways.
 *
 * @throws {ConfigError} if one host port leads to two places
 */
function mergeDuplicates(mappings: readonly PortMapping[]): PortMapping[] {
  const seen = new Map<string, PortMapping>();
  mappings.forEach((entry, i) => {
    for (const key of hostPortKeys(entry)) {
      const existing = seen.get(key) ?? entry;
      if (existing.containerPort !== entry.containerPort) {
        throw new ConfigError(
          `runtimeConfig.portMappings[${i}]`,
          `the only mapping of ${describeHostPort(entry)}`,
          `one to container port ${entry.containerPort} besides one to ${existing.containerPort}`,
        );
      }
      // A mapping without an address covers both families.
      if (existing === entry || entry.hostIP === undefined) seen.set(key, entry);
    }
  });
  return [...new Set(seen.values())];
}

function hostPortKeys(mapping: PortMapping): string[] {
  const { protocol, hostPort } = mapping;
  return familiesOf(mapping).map((family) => `${family} ${hostAddressOf(mapping) ?? "all"} ${hostPort}/${protocol}`);
}

export function familiesOf({ hostIP }: PortMapping): readonly (4 | 6)[] {
  return hostIP === undefined ? [4, 6] : [familyOf(hostIP)];
}

/** `undefined` for all addresses. */
export function hostAddressOf({ hostIP }: PortMapping): Ip | undefined {
  return hostIP === "0.0.0.0" || hostIP === "::" ? undefined : hostIP;
}

/** `host port 8080/tcp`, `host port [fd00::1]:53/udp` */
export function describeHostPort({ hostIP, hostPort, protocol }: PortMapping): string {
  const address = hostIP === undefined ? "" : hostIP.includes(":") ? `[${hostIP}]:` : `${hostIP}:`;
  return `host port ${address}${hostPort}/${protocol}`;
}
