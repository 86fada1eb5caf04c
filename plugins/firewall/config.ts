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
  satisfying,
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
const MOST_CHAIN_NAME = 28;
/** Where an administrator's chain is asked from, directly or not. */
const NO_ADMIN = ["FORWARD", "INPUT", "OUTPUT", "CNI-FORWARD"];

/** The keys of the `firewall` plugin. */
export const firewallKeys = lazy(() =>
  object({
    backend: optional({ ...oneOf("iptables", "nftables", "firewalld"), blank: true }),
    iptablesAdminChainName: withDefault(
      satisfying(
        nonEmptyString,
        `a chain's name: at most ${MOST_CHAIN_NAME} characters, no blanks, not starting with "-" or "!", none of ${
          NO_ADMIN.join(", ")
        }`,
        (name) => /^[^\s!-][^\s\0]*$/.test(name) && name.length <= MOST_CHAIN_NAME && !NO_ADMIN.includes(name),
      ),
      "CNI-ADMIN",
    ),
    firewalldZone: withDefault(
      satisfying(nonEmptyString, "a zone's name: at most 64 characters, no blanks", (name) =>
        /^[^\s\0]{1,64}$/.test(name)),
      "trusted",
    ),
    ingressPolicy: withDefault(
      { ...oneOf("open", "same-bridge", "isolated"), blank: true },
      "open" as const,
    ),
  })
);

/** Reads the plugin's keys out of the configuration of a network. @throws {ConfigError} */
export function parseFirewall(raw: JsonObject, network: string): FirewallConfig {
  try {
    return firewallKeys.parse(raw);
  } catch (error) {
    throw error instanceof ConfigError ? error.at({ network }) : error;
  }
}
