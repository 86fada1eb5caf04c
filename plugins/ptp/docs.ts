import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];

export default {
  example: {
    type: "ptp",
    ipMasq: true,
    ipam: { type: "host-local", ranges: [[{ subnet: "10.24.0.0/16" }]], routes: [{ dst: "0.0.0.0/0" }] },
  },
  keys: {
    ipMasq: {
      type: "boolean",
      default: "false",
      meaning: "Masquerades packets of the container to addresses outside its subnet.",
      example: true,
      tests,
    },
    ipMasqBackend: {
      type: '"iptables" or "nftables"',
      default: "none",
      meaning: "Is accepted without effect. The rules are always those of nf_tables.",
      example: "nftables",
      parity: "accepted, no effect: rules are always those of nf_tables",
      tests,
    },
    allowRouteOverlap: {
      type: "boolean",
      default: "false",
      meaning: "Lets the subnet overlap an address or a connected route of another link. Without it, ADD refuses that.",
      example: true,
      parity: "not known to the Go plugin, which does not look",
      tests: ["overlap_test.ts"],
    },
    mtu: {
      type: "number of bytes, 0 to 65535",
      default: "0, the kernel's choice",
      meaning: "Sets the MTU of both ends of the veth pair.",
      example: 1400,
      tests,
    },
  },
  differences: [
    "Masquerading is an element of a map in the table `inet cni`. Its comment names the attachment.",
    "ADD does no duplicate address detection, because only the host is at the other end.",
    "Addresses with prefix length `/32` or `/128` work, and several addresses of one subnet.",
    "ADD refuses an address that the host routes elsewhere. The error names the host's interface and its container.",
    "ADD refuses a subnet that overlaps an address or a connected route of another link. Otherwise, the host would lose its own network. The error names the link. If a route by a gateway or into a tunnel overlaps, `cni run status` warns.",
    "CHECK also compares the host's end: its addresses and its routes to the container.",
  ],
} satisfies PluginDocs;
