import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const ports = { tests: ["plugin_test.ts", "config_test.ts"] };
const conditions = {
  type: "list of words, of iptables or of nft",
  default: "none",
  parity: "addresses and interfaces, in words of iptables or nft; other conditions are an error",
  tests: ["plugin_test.ts", "config_test.ts"],
};

export default {
  example: { type: "portmap", capabilities: { portMappings: true }, snat: true },
  keys: {
    "runtimeConfig.portMappings": {
      ...ports,
      type: "list of objects",
      default: "no ports",
      meaning: "Lists the ports to publish.",
      example: [{ hostPort: 8080, containerPort: 80, protocol: "tcp" }],
    },
    "runtimeConfig.portMappings[].hostPort": {
      ...ports,
      type: "port number, 1 to 65535",
      meaning: "Is the port of the host.",
      example: 8443,
    },
    "runtimeConfig.portMappings[].containerPort": {
      ...ports,
      type: "port number, 1 to 65535",
      meaning: "Is the port of the container.",
      example: 443,
    },
    "runtimeConfig.portMappings[].protocol": {
      ...ports,
      type: '"tcp", "udp" or "sctp"',
      default: '"tcp"',
      meaning: "Names the protocol.",
      example: "udp",
    },
    "runtimeConfig.portMappings[].hostIP": {
      ...ports,
      type: "IP address",
      default: "all addresses of the host, IPv4 and IPv6",
      meaning: "Publishes the port on this address only. `0.0.0.0` and `::` mean all addresses of the family.",
      example: "192.0.2.10",
    },
    snat: {
      type: "boolean",
      default: "true",
      meaning:
        "Masquerades connections from the container's subnet and from 127.0.0.0/8 to a published port. With `false`, these get no answer. Connections from `::1` are always masqueraded.",
      example: false,
      tests: ["plugin_test.ts"],
    },
    masqAll: {
      type: "boolean",
      default: "false",
      meaning: "Masquerades all connections to published ports. It needs `snat`.",
      example: true,
      tests: ["plugin_test.ts"],
    },
    conditionsV4: {
      ...conditions,
      meaning: "Limits the published IPv4 ports to packets that fulfil all conditions.",
      example: ["!", "-s", "198.51.100.0/24", "-i", "eth0"],
    },
    conditionsV6: {
      ...conditions,
      meaning: "Limits the published IPv6 ports to packets that fulfil all conditions.",
      example: ["ip6", "saddr", "!=", "2001:db8::/32"],
    },
    hostPortInUse: {
      type: '"refuse", "warn" or "ignore"',
      default: '"refuse"',
      meaning:
        "Selects what ADD does if a program listens on the port, or another container publishes it on other addresses.",
      example: "warn",
      parity: "not in the Go plugin",
      tests: ["listeners_test.ts"],
    },
    backend: {
      type: '"iptables" or "nftables"',
      default: "none",
      meaning: "Is accepted without effect. The rules are always those of nf_tables.",
      example: "nftables",
      parity: "accepted, no effect: rules are always those of nf_tables",
      tests: ["elements_test.ts"],
    },
    markMasqBit: {
      type: "number of a bit, 0 to 31",
      default: "none",
      meaning: "Is checked and has no effect. It cannot be combined with `externalSetMarkChain`.",
      example: 13,
      parity: "checked, no effect",
      deprecated: "remove it: it has no effect",
      tests: ["config_test.ts"],
    },
    externalSetMarkChain: {
      type: "name of a chain",
      default: "none",
      meaning: "Is checked and has no effect. It cannot be combined with `markMasqBit`.",
      example: "KUBE-MARK-MASQ",
      parity: "checked, no effect",
      deprecated: "remove it: it has no effect",
      tests: ["config_test.ts"],
    },
  },
  differences: [
    "Published ports are elements of maps in the table `inet cni`. Their comments name the attachment.",
    "A packet and an ADD cost the same with one container or a thousand.",
    "A range of ports takes 0.1 ms or less for each port.",
    "Masquerading uses no bit of the packet mark: one rule matches the packet and masquerades it.",
    "ADD refuses a host port that another container publishes, or on which a program listens. The error names the container or program.",
    "After `nft flush ruleset`, the ports of containers in `/var/lib/cni/results` stay theirs.",
    "The calling engine and podman's conmon may listen on the port: they reserve it for the container.",
    "A UDP socket on a multicast or broadcast address does not count: a published port takes no packets from it.",
    "ADD publishes a port of `ip_local_port_range` on which a UDP socket is open, and names the program on stderr.",
    "Such a socket is a client's or a server's. A client still gets its answers; a server loses its clients.",
    "ADD refuses such a port if it is in `ip_local_reserved_ports`.",
    "A UDP socket of mDNS, LLMNR, SSDP or WS-Discovery also does not count. This holds only while the host is in the protocol's multicast group.",
    "DEL deletes the kernel's conntrack entries of the ports. So clients reach the next container at once.",
    "systemd-resolved occupies port 53. To publish port 53 on all addresses, set `hostPortInUse`.",
    "A container can publish a port on several networks. Connections use the first network. After its DEL, they use the next.",
    "A port on `127.0.0.1` needs no `route_localnet`. The host reaches it from each of its addresses, others never reach it.",
    "Connections from `::1` and from all of `127.0.0.0/8` work. With the Go plugin, only those from `127.0.0.1` do.",
    "If the container of a host port is certainly gone, ADD takes over the port and says so on stderr.",
  ],
} satisfies PluginDocs;
