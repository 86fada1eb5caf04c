import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

/** The page of `firewall`. */
export default {
  example: { type: "firewall", ingressPolicy: "same-bridge" },
  keys: {
    backend: {
      type: '"iptables", "nftables" or "firewalld"',
      default: "firewalld is told if it runs",
      meaning:
        "`firewalld` makes ADD fail if firewalld does not run. The other two mean the same: firewalld is not told.",
      example: "nftables",
      parity: "yes; `iptables` means nf_tables, and so does `nftables`, which is new",
      tests: ["firewalld_test.ts"],
    },
    firewalldZone: {
      type: "name of at most 64 characters",
      default: '"trusted"',
      meaning: "Names the zone of firewalld that gets the container's addresses.",
      example: "internal",
      tests: ["firewalld_test.ts"],
    },
    iptablesAdminChainName: {
      type: "name of at most 28 characters",
      default: '"CNI-ADMIN"',
      meaning: "Names a chain of the administrator. Its rules come before those that let the container through.",
      example: "SITE-RULES",
      tests: ["plugin_test.ts"],
    },
    ingressPolicy: {
      type: '"open", "same-bridge" or "isolated"',
      default: '"open"',
      meaning:
        "`same-bridge` keeps out containers of other bridges that have a policy. `isolated` also keeps out those of the same bridge.",
      example: "isolated",
      tests: ["plugin_test.ts"],
    },
  },
  differences: [
    "ADD changes no table of another program unless a forward chain there drops, or the administrator's chain is there.",
    "In such a table, of iptables-nft or of nft, ADD creates the chain `CNI-FORWARD`.",
    "Each rule in `CNI-FORWARD` is for one address and has its owner as comment.",
    "The rules accept what the container sends and what comes back to it. They also accept calls to published ports.",
    "`iptables -S` prints these rules and `iptables-restore` keeps them. DEL removes them, and the chain with the last.",
    "ADD does not create the chain of `iptablesAdminChainName`. If the chain exists, `CNI-FORWARD` jumps to it.",
    "If a foreign chain starts to drop later, the next ADD adds the rules of all containers.",
    "Rules of iptables-legacy are not seen.",
    "An unknown `backend` is an error.",
    "`ingressPolicy` uses the bridge that the result names at any place. The Go plugin takes the first interface.",
    "`isolated` also holds where bridged packets do not pass iptables.",
    "The rules of a policy go with the last container that has it.",
    "If several entries of a list have a policy, the strictest counts.",
  ],
} satisfies PluginDocs;
