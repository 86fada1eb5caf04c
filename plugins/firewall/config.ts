import { lazy, nonEmptyString, object, oneOf, optional, refine, withDefault } from "../../spec/schema.ts";

export interface FirewallConfig {
  /** If absent, firewalld is used if it runs. */
  readonly backend?: "iptables" | "nftables" | "firewalld";
  /** The administrator's chain, evaluated first. */
  readonly iptablesAdminChainName: string;
  readonly firewalldZone: string;
  readonly ingressPolicy: "open" | "same-bridge" | "isolated";
}

/** iptables refuses chains with longer names. */
const MAX_CHAIN_NAME_LENGTH = 28;
/** Chains that lead to the admin chain, and iptables' verdicts. */
const RESERVED_CHAINS = [
  "FORWARD",
  "INPUT",
  "OUTPUT",
  "CNI-FORWARD",
  "ACCEPT",
  "DROP",
  "QUEUE",
  "RETURN",
];

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
