import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const ports = { tests: ["plugin_test.ts", "config_test.ts"] };
const conditions = {
  type: "list of words, of iptables or of nft",
  default: "none",
  parity: "addresses and interfaces, in words of iptables or nft; other conditions are an error",
  tests: ["plugin_test.ts", "config_test.ts"],
};

/** The page of `portmap`. */
export default {
  example: { type: "portmap", capabilities: { portMappings: true }, snat: true },
  keys: {
    "runtimeConfig.portMappings": {
      ...ports,
      type: "list of objects",
      default: "no ports",
      meaning: "Holds the ports to publish.",
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
        "Masquerades calls from the container's subnet and from 127.0.0.1 to a published port. Without it they get no answer.",
      example: false,
      tests: ["plugin_test.ts"],
    },
    masqAll: {
      type: "boolean",
      default: "false",
      meaning: "Masquerades all calls to published ports. It needs `snat`.",
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
      meaning: "Says what ADD does if a program listens on the port, or another container has it on other addresses.",
      example: "warn",
      parity: "added here",
      tests: ["listeners_test.ts"],
    },
    backend: {
      type: '"iptables" or "nftables"',
      default: "none",
      meaning: "Is accepted. The rules are those of nf_tables in either case.",
      example: "nftables",
      parity: "accepted, with rules of nf_tables either way",
      tests: ["elements_test.ts"],
    },
    markMasqBit: {
      type: "number of a bit, 0 to 31",
      default: "none",
      meaning: "Is checked and has no effect. It excludes `externalSetMarkChain`.",
      example: 13,
      parity: "checked, no effect",
      tests: ["config_test.ts"],
    },
    externalSetMarkChain: {
      type: "name of a chain",
      default: "none",
      meaning: "Is checked and has no effect. It excludes `markMasqBit`.",
      example: "KUBE-MARK-MASQ",
      parity: "checked, no effect",
      tests: ["config_test.ts"],
    },
  },
  differences: [
    "Published ports are elements of maps in the table `inet cni`. Each has its owner as comment.",
    "A packet and an ADD cost the same with one container as with a thousand.",
    "A range of ports takes 0.1 ms or less for each port.",
    "No bit of the packet mark is used: one rule finds the packet and masquerades it.",
    "ADD refuses a host port that another container has, or on which a program listens. The error names which.",
    "A program may listen on the port for the container: the calling engine, and conmon of podman.",
    "A UDP socket on a multicast or broadcast address is no listener: a published port takes nothing from it.",
    "A UDP socket on a port for clients (`ip_local_port_range`) may be a client's or a server's. ADD publishes the port and names the program on stderr: a client keeps its answers, a server loses its clients. A port in `ip_local_reserved_ports` is refused.",
    "A UDP socket on the port of mDNS, LLMNR, SSDP or WS-Discovery is no listener where the host has joined the protocol's group.",
    "DEL makes the kernel forget the connections to the ports, so that clients reach the next container at once.",
    "systemd-resolved has port 53. Publishing it on all addresses needs `hostPortInUse`.",
    "A container can publish a port on several networks. Calls use the first, and the next when that is gone.",
    "A port on `127.0.0.1` needs no `route_localnet`: calls from `127.0.0.1` get an address of the host as their source. Calls from other addresses of `127.0.0.0/8` do not reach it.",
    "If the container that holds a host port is certainly gone, ADD takes the port over and says so.",
    "A port on `::1` is refused: the kernel has nothing like it for IPv6.",
  ],
} satisfies PluginDocs;
