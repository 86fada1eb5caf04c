/** What goes for every plugin: keys, and differences from the Go plugins. @module */
import type { KeyDocs } from "./plugin_docs.ts";

const PLUGIN_CONFIG = "spec/plugin_config_test.ts";
const dns = {
  default: "none",
  tests: [PLUGIN_CONFIG, "plugins/bridge/reference_test.ts", "plugins/ptp/plugin_test.ts"],
};

/** By path, as {@linkcode PluginDocs.keys}. */
export const commonKeys: Readonly<Record<string, KeyDocs>> = {
  cniVersion: {
    type: "version of the specification, 0.1.0 to 1.1.0",
    default: '"0.1.0"',
    meaning: "Says how configuration and result are written.",
    example: "1.1.0",
    tests: [PLUGIN_CONFIG],
  },
  cniVersions: {
    type: "list of versions",
    default: "none",
    meaning: "Names versions of which the runtime takes the highest that it knows.",
    example: ["1.0.0", "1.1.0"],
    parity: "yes, where a file holds one plugin",
    tests: ["spec/network_config_list_test.ts"],
  },
  name: {
    type: "letters, digits, `_`, `.` and `-`, a letter or digit first",
    meaning: "Names the network.",
    example: "web",
    tests: [PLUGIN_CONFIG],
  },
  type: { type: "name of a plugin", meaning: "Names the plugin.", example: "bridge", tests: [PLUGIN_CONFIG] },
  "ipam.type": {
    type: "name of a plugin",
    default: "none",
    meaning: "Names the plugin that gives the addresses.",
    example: "host-local",
    tests: [PLUGIN_CONFIG],
  },
  prevResult: {
    type: "result",
    default: "none",
    meaning: "Is the result of the plugins before this one. The runtime sets it.",
    tests: [PLUGIN_CONFIG],
  },
  runtimeConfig: {
    type: "object",
    default: "none",
    meaning: "Holds the values of the capabilities that the plugin has. The runtime sets it.",
    tests: [PLUGIN_CONFIG],
  },
  capabilities: {
    type: "object of booleans",
    default: "none",
    meaning: "Names the capabilities whose values the runtime puts into `runtimeConfig`.",
    example: { portMappings: true },
    parity: "yes, by the runtime",
    tests: ["spec/network_config_list_test.ts"],
  },
  args: {
    type: "object",
    default: "none",
    meaning: "Holds arguments of the conventions in `args.cni`.",
    tests: [PLUGIN_CONFIG],
  },
  "cni.dev/valid-attachments": {
    type: "list of objects",
    default: "none",
    meaning: "Names the attachments that GC keeps. The runtime sets it.",
    tests: [PLUGIN_CONFIG],
  },
  "cni.dev/attachments": {
    type: "list of objects",
    default: "none",
    meaning: "Is an older name of `cni.dev/valid-attachments`.",
    tests: [PLUGIN_CONFIG],
  },
  dns: {
    ...dns,
    type: "object",
    default: "that of the IPAM plugin",
    meaning: "Holds the DNS settings of the result, of plugins that make an interface.",
    parity: "yes, before those of IPAM",
  },
  "dns.nameservers": { ...dns, type: "list of addresses", meaning: "Names the servers.", example: ["10.1.0.53"] },
  "dns.domain": { ...dns, type: "domain", meaning: "Is the local domain.", example: "example.org" },
  "dns.search": { ...dns, type: "list of domains", meaning: "Completes short names.", example: ["example.org"] },
  "dns.options": { ...dns, type: "list of words", meaning: "Holds options of resolv.conf(5).", example: ["ndots:2"] },
  "CNI_ARGS IgnoreUnknown": {
    type: "boolean",
    default: "false",
    meaning: "Accepts arguments that the plugin does not know.",
    parity: "yes, where CNI_ARGS are read at all",
    tests: ["spec/env_test.ts"],
  },
};

/** As {@linkcode PluginDocs.differences}. */
export const commonDifferences: readonly string[] = [
  "ADD undoes what it did when it fails.",
  "DEL succeeds if things are gone already. It also removes rules if the namespace is gone.",
  "DEL leaves another container alone that uses the path of the namespace by now.",
  "GC removes what attachments left that are not valid any more. The Go plugins ignore GC.",
  "STATUS says whether an ADD could work.",
  "ADD names keys of its configuration that nobody reads on standard error, but for those that begin with `x-` or `_`.",
  "An error has a code of the specification. It says what was found and what was expected.",
];
