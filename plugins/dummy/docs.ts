import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

/** The page of `dummy`. */
export default {
  example: { type: "dummy", ipam: { type: "host-local", ranges: [[{ subnet: "10.23.0.0/16" }]] } },
  keys: {
    "ipam.type": {
      type: "name of a plugin",
      meaning: "Names the plugin that gives the addresses.",
      example: "host-local",
      parity: "yes, required",
      tests: ["plugin_vm_test.ts"],
    },
  },
  differences: [
    "`dns` of the configuration is part of the result.",
    "CHECK compares the routes as well.",
    "DEL works without `ipam`.",
  ],
} satisfies PluginDocs;
