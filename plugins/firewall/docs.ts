import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

export default {
  example: { type: "firewall", ingressPolicy: "same-bridge" },
  keys: {
    backend: {
      type: '"iptables", "nftables" or "firewalld"',
      default: "firewalld is used if it runs",
      meaning:
        "`firewalld` makes ADD fail if firewalld does not run. With `iptables` or `nftables`, firewalld is not used.",
      example: "nftables",
      parity: "yes; `nftables` is new and means the same as `iptables`: nf_tables",
      tests: ["firewalld_test.ts"],
    },
    firewalldZone: {
      type: "name of at most 64 characters",
      default: '"trusted"',
      meaning: "Names the zone of firewalld to which ADD adds the container's addresses.",
      example: "internal",
      tests: ["firewalld_test.ts"],
    },
    iptablesAdminChainName: {
      type: "name of at most 28 characters",
      default: '"CNI-ADMIN"',
      meaning:
        "Names a chain of the administrator. Its rules come before the rules that accept the container's packets.",
      example: "SITE-RULES",
      tests: ["host_rulesets_test.ts"],
    },
    ingressPolicy: {
      type: '"open", "same-bridge" or "isolated"',
      default: '"open"',
      meaning:
        "`same-bridge` drops packets from other bridges whose containers have a policy. `isolated` also drops packets from the same bridge.",
      example: "isolated",
      tests: ["plugin_test.ts"],
    },
  },
  differences: [
    "One rule in `CNI-FORWARD` accepts packets of all containers. So a packet and an ADD cost the same with one container or a thousand.",
    "The rule accepts what the container sends, and the answers. It also accepts connections to published ports.",
    "The rule matches bit `0x20000000` of the packet mark. The table `inet cni` sets this bit before the tables `filter` run.",
    "`inet cni` clears the bit at the end of the hook `forward`. Do not use this bit in your own forward rules. [The ruleset](../ruleset.md) lists the bits of other programs.",
    "If iptables-nft has no tables `filter`, ADD creates them. So iptables rules that are added later do not cut off containers.",
    "Each ADD puts back flushed rules, as `cni run restore` does. Your own rules in `CNI-ADMIN`, or before the jump to `CNI-FORWARD`, take effect first.",
    "The jump to `CNI-FORWARD` comes first in `FORWARD`, but after jumps to chains of Kubernetes (`KUBE-…`): what kube-proxy refuses stays refused. ADD moves a jump that comes too early.",
    "`iptables -S` prints the rules. `iptables-restore` and `nft -f` keep them.",
    "The rule matches the mark in two forms. iptables before 1.8.8 ignores one form, and nft without iptables' libraries the other.",
    "The last container's DEL removes the rules.",
    "It also removes the chain of `iptablesAdminChainName`, if ADD made the chain and it is empty.",
    "Another table gets `CNI-FORWARD` if the policy or the last rule of its forward chain drops. A table with the administrator's chain also gets it.",
    "If such a forward chain runs before the tables `filter`, `inet cni` sets the bit before all forward chains.",
    "iptables-legacy and kernels without `nft_compat` or `xt_mark` cannot have this rule. ADD and STATUS say so on stderr, and ADD continues.",
    "An unknown `backend` is an error.",
    "`ingressPolicy` finds the bridge anywhere in the result. The Go plugin takes the first interface.",
    "`isolated` also works if bridged packets do not pass iptables (`bridge-nf-call-iptables` is 0).",
    "DEL of the last container with a policy removes the rules of the policy.",
    "If several `firewall` entries of a network have a policy, the strictest one is used.",
  ],
} satisfies PluginDocs;
