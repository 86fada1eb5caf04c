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
      tests: ["host_rulesets_test.ts"],
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
    "One rule in `CNI-FORWARD` accepts packets of all containers. A packet and an ADD cost the same with a thousand of them.",
    "The rule accepts what the container sends and what comes back to it. It also accepts calls to published ports.",
    "The rule finds these packets by bit `0x20000000` of the mark. The table `inet cni` sets this bit before the tables `filter`.",
    "`inet cni` clears the bit at the end of the hook `forward`. Do not use this bit there.",
    "ADD creates the tables `filter` of iptables-nft if they are not there: what iptables drops later does not cut containers off.",
    "Each ADD puts back what was flushed; so does `cni run restore`. Your own rules before the jump to `CNI-FORWARD`, or in `CNI-ADMIN`, come first.",
    "`iptables -S` prints the rules. `iptables-restore` and `nft -f` keep them.",
    "The rule matches the mark in two forms. Old iptables (before 1.8.8) ignores one. nft without iptables' libraries ignores the other.",
    "The rules go with the last container.",
    "The chain of `iptablesAdminChainName` goes too, if ADD made it and it is empty.",
    "Other tables get `CNI-FORWARD` only if a forward chain drops by its policy or its last rule, or if they have the administrator's chain.",
    "If such a chain is asked before the tables `filter`, the bit is set before all chains.",
    "iptables-legacy and kernels without `nft_compat` or `xt_mark` take no such rule. ADD and STATUS say so on stderr, and ADD goes on.",
    "An unknown `backend` is an error.",
    "`ingressPolicy` uses the bridge that the result names at any place. The Go plugin takes the first interface.",
    "`isolated` also holds where bridged packets do not pass iptables.",
    "The rules of a policy go with the last container that has it.",
    "If several entries of a list have a policy, the strictest counts.",
  ],
} satisfies PluginDocs;
