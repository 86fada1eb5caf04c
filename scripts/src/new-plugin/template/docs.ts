import type { PluginDocs } from "../../../../plugins/lib/docs/plugin_docs.ts";

/** The page of `new-plugin`. */
export default {
  example: { type: "new-plugin", group: 7 },
  keys: {
    group: {
      type: "number, 1 to 4294967295",
      default: "1",
      meaning: "Names the group that the interface is put into.",
      example: 7,
      parity: "added here",
      tests: ["plugin_test.ts"],
    },
  },
  differences: ["There is no Go plugin of this name."],
} satisfies PluginDocs;
