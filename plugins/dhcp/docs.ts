import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];

export default {
  example: {
    type: "bridge",
    bridge: "br0",
    ipam: {
      type: "dhcp",
      provide: [{ option: "host-name", fromArg: "K8S_POD_NAME" }],
      request: [{ option: "15" }, { option: "119" }],
    },
  },
  keys: {
    "ipam.daemonSocketPath": {
      type: "absolute path of a socket",
      default: '"/run/cni/dhcp.sock"',
      meaning: "Names the socket of the server of leases, which is `cni serve` or `dhcp daemon`.",
      example: "/run/cni/dhcp.sock",
      tests,
    },
    "ipam.provide": {
      type: "list of objects",
      default: "none",
      meaning: "Lists options that the DHCP server gets.",
      tests,
    },
    "ipam.provide[].option": {
      type: "name or number of an option",
      meaning:
        "Names the option: `dhcp-client-identifier`, `subnet-mask`, `routers`, `host-name`, `user-class`, `vendor-class-identifier`, or a number.",
      example: "host-name",
      tests,
    },
    "ipam.provide[].value": {
      type: "text of at most 255 bytes",
      default: '""',
      meaning: "Is the value of the option. An empty value is not sent.",
      example: "web",
      tests,
    },
    "ipam.provide[].fromArg": {
      type: "key of CNI_ARGS",
      default: '""',
      meaning: "Names a key of CNI_ARGS, whose value replaces `value` if it is given.",
      example: "K8S_POD_NAME",
      tests,
    },
    "ipam.request": {
      type: "list of objects",
      default: "none",
      meaning: "Lists options that the DHCP server is asked for, in place of those asked for by default.",
      parity: "yes; without it, more options are asked for",
      tests,
    },
    "ipam.request[].option": {
      type: "name or number of an option",
      default: '""',
      meaning: "Names the option, as in `provide`.",
      example: "119",
      tests,
    },
    "ipam.request[].skipDefault": {
      type: "boolean",
      default: "false",
      meaning: "Leaves out `routers` and `subnet-mask`, which are asked for as well otherwise.",
      tests,
    },
    "ipam.priority": {
      type: "number, 0 to 4294967295",
      default: "0",
      meaning: "Is the metric of all routes. 0 is the kernel's default.",
      example: 100,
      tests,
    },
  },
  differences: [
    "The result has routes (options 121, 33 and 3), `dns` (6, 15 and 119) and the MTU of routes (26).",
    "The Go plugin's result has no `dns`. The Go plugin does not ask for options 33 and 121.",
    "ADD sets the interface up, waits for its carrier and sends at once. With the Go plugin, ADD on a bridge takes six seconds.",
    "ADD probes the address (RFC 5227), and declines it if another host has it.",
    "DEL releases the address before the interface is removed. If the interface is gone, the release leaves by the host's bridge or lower device.",
    "DEL and GC succeed without a server. The next server releases the address.",
    "A restarted server goes on with its leases. They are files in `/run/cni/dhcp`.",
    "Renewals are sent to the DHCP server alone, as RFC 2131 demands.",
    "If a lease is lost, its address is taken away. The interface gets the address of a new lease.",
    "Rules for the lost address, such as published ports, are not changed: see [Leases of DHCP](../serve.md#leases-of-dhcp).",
    "A client identifier of `provide` is used in all messages. The Go plugin's RELEASE has another one.",
    "The server and plugin of one program belong together: the Go plugin cannot use this server, and this plugin cannot use the Go plugin's.",
  ],
} satisfies PluginDocs;
