/** The keys of a network itself, beside its list of plugins. @module */
import type { KeyDocs } from "./plugin_docs.ts";

const tests = ["spec/network_config_list_test.ts"];

/** The keys are paths, as in {@linkcode PluginDocs.keys}. */
export const listKeys: Readonly<Record<string, KeyDocs>> = {
  cniVersion: {
    type: "version of the specification, 0.1.0 to 1.1.0",
    default: '"0.1.0"',
    meaning: "Selects the version of configuration and results.",
    example: "1.0.0",
    tests,
  },
  cniVersions: {
    type: "list of versions",
    default: "none",
    meaning: "Lists versions. The runtime uses the highest that it supports.",
    example: ["1.0.0", "1.1.0"],
    tests,
  },
  name: {
    type: "letters, digits, `_`, `.` and `-`, a letter or digit first",
    meaning: "Names the network. No other file in the directory may have this name.",
    example: "web",
    tests,
  },
  plugins: {
    type: "list of objects",
    meaning: "Lists the plugins. ADD calls them in this order, DEL in the opposite order.",
    tests,
  },
  disableCheck: {
    type: "boolean",
    default: "false",
    meaning: "Makes CHECK succeed without a call of a plugin.",
    example: true,
    tests,
  },
  disableGC: {
    type: "boolean",
    default: "false",
    meaning: "Makes GC do nothing. Use it where several lists share a name.",
    example: true,
    tests,
  },
  loadOnlyInlinedPlugins: {
    type: "boolean",
    default: "false",
    meaning: "Ignores plugins in files of their own, `DIR/NAME/*.conf`. Without it, they follow those of `plugins`.",
    example: true,
    tests,
  },
};
