import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

export default {
  example: { type: "loopback" },
  keys: {
    prevResult: {
      type: "result",
      default: "none",
      meaning: "Is the result of the plugins before this one. The plugin returns it unchanged.",
      parity: "yes; the plugin has no keys of its own",
      tests: ["plugin_test.ts"],
    },
  },
  differences: [
    "ADD accepts other addresses on `lo`. The result has the first one of each family.",
    "The result has the format of `cniVersion`, also for versions before 1.0.0.",
    "If the namespace now belongs to another container, DEL does not touch its `lo`.",
  ],
} satisfies PluginDocs;
