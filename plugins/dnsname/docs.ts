import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const aliases = { tests: ["plugin_test.ts"] };

export default {
  example: { type: "dnsname", domainName: "dns.podman", capabilities: { aliases: true } },
  keys: {
    domainName: {
      type: "name",
      default: "none",
      meaning: "Is a suffix: names resolve with it and without it. It becomes the search domain of the container.",
      example: "dns.podman",
      tests: ["plugin_test.ts"],
    },
    "runtimeConfig.aliases": {
      ...aliases,
      type: "object of lists of names, or a list of names",
      default: "no names",
      meaning:
        "Lists more names of the container, by network. A list without networks is for this network. The runtime sets it.",
      example: { web: ["db", "cache"] },
      parity: "yes; a list is new",
    },
    "CNI_ARGS K8S_POD_NAME": {
      ...aliases,
      type: "name",
      default: "none",
      meaning: "Is a name of the container, and its answer to reverse questions. podman passes the container's name.",
      example: "web",
    },
    dataDir: {
      type: "absolute path",
      default: '"/run/cni/dnsname"',
      meaning: "Is the directory of the records, one for each attachment. The server must have the same.",
      example: "/run/cni/dnsname",
      parity: "new",
      tests: ["plugin_test.ts"],
    },
    daemonSocketPath: {
      type: "absolute path",
      default: '"/run/cni/dnsname.sock"',
      meaning: "Is the socket of the server.",
      example: "/run/cni/dnsname.sock",
      parity: "new",
      tests: ["plugin_test.ts"],
    },
  },
  differences: [
    "`cni serve` answers the questions. The Go plugin starts a dnsmasq for each network. One that runs already answers on until the network has no container left.",
    "Without a server, each command succeeds and warns that names do not resolve. A server that starts later has the names.",
    "The container's id is a name too. An id of more than 63 characters is shortened to 12, as engines do.",
    "The Go plugin writes a search domain only where `domainName` is set, and an empty one otherwise. This one adds none.",
    "IPv6 addresses of the network are answered over IPv6 too.",
    "Names of other networks of the same container resolve on each of its networks.",
    "Unknown addresses of the network have no name: the host's resolvers are not asked for them.",
    "A port 53 that `portmap` publishes on all addresses takes the questions of containers too. Publish it on one address, with `hostIP`.",
    "GC and STATUS are new. STATUS fails with code 50 if a server hangs.",
  ],
} satisfies PluginDocs;
