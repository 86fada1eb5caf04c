import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

/** The page of `loopback`. */
export default {
  example: { type: "loopback" },
  keys: {
    prevResult: {
      type: "result",
      default: "none",
      meaning: "Is the result of the plugins before this one. The plugin hands it on unchanged.",
      parity: "yes; the plugin has no keys of its own",
      tests: ["plugin_test.ts"],
    },
  },
  differences: [
    "ADD accepts other addresses on `lo`. The result has the first one of each family.",
    "The result has the form of the configuration's version, also before 1.0.0.",
    "DEL leaves `lo` alone if the namespace belongs to another container by now.",
  ],
} satisfies PluginDocs;
