/**
 * The configuration of the `firewall` plugin.
 *
 * @module
 */
import { ConfigError } from "../../spec/error.ts";
import {
  type JsonObject,
  lazy,
  nonEmptyString,
  object,
  oneOf,
  optional,
  refine,
  withDefault,
} from "../../spec/schema.ts";

/** What the plugin is to do. */
export interface FirewallConfig {
  /** Without it, firewalld is told where it runs. */
  readonly backend?: "iptables" | "nftables" | "firewalld";
  /** A chain of the administrator's, asked before containers are let through. */
  readonly iptablesAdminChainName: string;
  /** The zone of firewalld that containers belong to. */
  readonly firewalldZone: string;
  readonly ingressPolicy: "open" | "same-bridge" | "isolated";
}

/** What iptables takes. */
const MAX_CHAIN_NAME_LENGTH = 28;
/** Where an administrator's chain is asked from, directly or not; and what iptables takes a jump to it for. */
const RESERVED_CHAINS = [
  ...["FORWARD", "INPUT", "OUTPUT", "CNI-FORWARD"],
  ...["ACCEPT", "DROP", "QUEUE", "RETURN"],
];

/** The keys of the `firewall` plugin. */
export const firewallConfigSchema = lazy(() =>
  object({
    backend: optional({ ...oneOf("iptables", "nftables", "firewalld"), emptyIsUnset: true }),
    iptablesAdminChainName: withDefault(
      refine(
        nonEmptyString,
        `a chain's name: at most ${MAX_CHAIN_NAME_LENGTH} characters, no blanks, not starting with "-" or "!", none of ${
          RESERVED_CHAINS.join(", ")
        }`,
        (name) =>
          /^[^\s!-][^\s\0]*$/.test(name) && name.length <= MAX_CHAIN_NAME_LENGTH && !RESERVED_CHAINS.includes(name),
      ),
      "CNI-ADMIN",
    ),
    firewalldZone: withDefault(
      refine(nonEmptyString, "a zone's name: at most 64 characters, no blanks", (name) => /^[^\s\0]{1,64}$/.test(name)),
      "trusted",
    ),
    ingressPolicy: withDefault(
      { ...oneOf("open", "same-bridge", "isolated"), emptyIsUnset: true },
      "open" as const,
    ),
  })
);

/** Reads the plugin's keys out of the configuration of a network. @throws {ConfigError} */
export function parseFirewallConfig(raw: JsonObject, network: string): FirewallConfig {
  try {
    return firewallConfigSchema.parse(raw);
  } catch (error) {
    throw error instanceof ConfigError ? error.withLocation({ network }) : error;
  }
}
