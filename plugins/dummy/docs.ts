import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

export default {
  example: { type: "dummy", ipam: { type: "host-local", ranges: [[{ subnet: "10.23.0.0/16" }]] } },
  keys: {
    "ipam.type": {
      type: "name of a plugin",
      meaning: "Names the IPAM plugin, which allocates the addresses.",
      example: "host-local",
      parity: "yes, required",
      tests: ["plugin_vm_test.ts"],
    },
  },
  differences: [
    "The result has `dns` of the configuration.",
    "CHECK also compares the routes.",
    "DEL works without `ipam`.",
  ],
} satisfies PluginDocs;
