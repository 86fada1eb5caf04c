import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];

/** The page of `ptp`. */
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
      meaning: "Masquerades what the container sends to addresses outside its subnet.",
      example: true,
      tests,
    },
    ipMasqBackend: {
      type: '"iptables" or "nftables"',
      default: "none",
      meaning: "Is accepted. The rules are those of nf_tables in either case.",
      example: "nftables",
      parity: "accepted, with rules of nf_tables either way",
      tests,
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
    "Masquerading is an element of a map in the table `inet cni`, with its owner as comment.",
    "ADD does not search for duplicate addresses, since only the host is at the other end.",
    "Single addresses (`/32`, `/128`) work, and several addresses of one subnet.",
    "ADD refuses an address that the host routes elsewhere. The error names the interface and the container.",
    "CHECK looks at the host's end too: its addresses and its routes to the container.",
  ],
} satisfies PluginDocs;
