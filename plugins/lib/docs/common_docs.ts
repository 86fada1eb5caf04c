/** What goes for every plugin: keys, and differences from the Go plugins. @module */
import type { KeyDocs } from "./plugin_docs.ts";

const PLUGIN_CONFIG = "spec/plugin_config_test.ts";
const dns = {
  default: "none",
  tests: [PLUGIN_CONFIG, "plugins/bridge/reference_test.ts", "plugins/ptp/plugin_test.ts"],
};

/** The keys are paths, as in {@linkcode PluginDocs.keys}. */
export const commonKeys: Readonly<Record<string, KeyDocs>> = {
  cniVersion: {
    type: "version of the specification, 0.1.0 to 1.1.0",
    default: '"0.1.0"',
    meaning: "Selects the version of configuration and result.",
    example: "1.0.0",
    tests: [PLUGIN_CONFIG],
  },
  cniVersions: {
    type: "list of versions",
    default: "none",
    meaning: "Lists versions. The runtime uses the highest that it supports.",
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
    meaning:
      "Names the IPAM plugin, which allocates the addresses. The other keys of `ipam` are that plugin's: `cni explain host-local` lists those of host-local.",
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
    meaning: "Holds the values of the plugin's capabilities. The runtime sets it.",
    tests: [PLUGIN_CONFIG],
  },
  capabilities: {
    type: "object of booleans",
    default: "none",
    meaning: "Lists capabilities. The runtime puts their values into `runtimeConfig`.",
    example: { portMappings: true },
    parity: "yes, by the runtime",
    tests: ["spec/network_config_list_test.ts"],
  },
  args: {
    type: "object",
    default: "none",
    meaning: "Holds further arguments in `args.cni`, as CNI's CONVENTIONS.md describes.",
    tests: [PLUGIN_CONFIG],
  },
  "cni.dev/valid-attachments": {
    type: "list of objects",
    default: "none",
    meaning: "Lists the attachments that GC keeps. The runtime sets it.",
    tests: [PLUGIN_CONFIG],
  },
  "cni.dev/attachments": {
    type: "list of objects",
    default: "none",
    meaning: "Is an older name of `cni.dev/valid-attachments`.",
    deprecated: "remove it: the runtime sets it",
    tests: [PLUGIN_CONFIG],
  },
  dns: {
    ...dns,
    type: "object",
    default: "that of the IPAM plugin",
    meaning: "Holds the DNS settings of the result. Only plugins that make an interface read it.",
    parity: "yes; it overrides those of IPAM",
  },
  "dns.nameservers": { ...dns, type: "list of addresses", meaning: "Lists the name servers.", example: ["10.1.0.53"] },
  "dns.domain": { ...dns, type: "domain", meaning: "Is the local domain.", example: "example.org" },
  "dns.search": {
    ...dns,
    type: "list of domains",
    meaning: "Lists the domains in which short names are looked up.",
    example: ["example.org"],
  },
  "dns.options": { ...dns, type: "list of words", meaning: "Holds options of resolv.conf(5).", example: ["ndots:2"] },
  "CNI_ARGS IgnoreUnknown": {
    type: "boolean",
    default: "false",
    meaning: "Makes the plugin accept unknown arguments.",
    parity: "yes, in plugins that read CNI_ARGS",
    tests: ["spec/env_test.ts"],
  },
};

export const commonDifferences: readonly string[] = [
  "If ADD fails, it undoes its steps.",
  "DEL succeeds if the namespace or the interface is gone. It still removes the rules.",
  "DEL does not touch a new container that uses the same namespace path.",
  "GC removes what stale attachments left behind. The Go plugins ignore GC.",
  "STATUS fails if an ADD would fail.",
  "ADD prints unknown keys of its configuration on stderr. Keys that begin with `x-` or `_` are ignored.",
  "An error has a code of [this list](../operations.md#error-codes). Its text names the found and the expected value.",
];
