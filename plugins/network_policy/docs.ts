import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

/** The page of `network-policy`, from which `scripts/docs` makes it. */
export default {
  example: { type: "network-policy", interface: "svc0", address: "10.77.0.1/32" },
  keys: {
    interface: {
      type: "string",
      default: '"svc0"',
      meaning: "Names the interface that it adds.",
      example: "svc0",
      parity: "added here",
      tests: ["plugin_test.ts"],
    },
    address: {
      type: "string, a CIDR",
      default: '"10.77.0.1/32"',
      meaning: "The address of that interface. Packets to it do not leave the host.",
      example: "10.77.0.1/32",
      parity: "added here",
      tests: ["plugin_test.ts"],
    },
  },
  differences: ["There is no Go plugin of this name."],
} satisfies PluginDocs;
