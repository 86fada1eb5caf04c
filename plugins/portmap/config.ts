import { ConfigError } from "../../spec/error.ts";
import {
  array,
  boolean,
  int,
  type JsonObject,
  knownKeys,
  lazy,
  nonEmptyString,
  object,
  oneOf,
  optional,
  string,
  withDefault,
} from "../../spec/schema.ts";
import { describeHostPort, familiesOf, hostAddressOf, type PortMapping, portMapping } from "../../spec/port_mapping.ts";
import { type Conditions, parseConditions } from "./conditions.ts";

export interface PortmapConfig {
  readonly mappings: readonly PortMapping[];
  /** Masquerade callers whose answers would not return: neighbours, the container itself, the host's loopback addresses. */
  readonly snat: boolean;
  readonly masqAll: boolean;
  readonly conditions: { readonly 4?: Conditions; readonly 6?: Conditions };
  readonly backend?: "nftables" | "iptables";
  /** For conflicts with a listening program, or with another container's port on some address. */
  readonly hostPortInUse: "refuse" | "warn" | "ignore";
}

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
