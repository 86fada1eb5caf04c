import type { PluginDocs } from "../lib/docs/plugin_docs.ts";
import { routeDocs } from "../lib/docs/route_docs.ts";

const tests = ["plugin_test.ts"];
const ips = { type: "list of addresses with prefix length", default: "none", example: ["10.1.0.7/16"], tests };

export default {
  example: {
    type: "bridge",
    ipam: {
      type: "static",
      addresses: [{ address: "10.1.0.2/16", gateway: "10.1.0.1" }],
      routes: [{ dst: "0.0.0.0/0" }],
      dns: { nameservers: ["10.1.0.53"] },
    },
  },
  keys: {
    "ipam.addresses": {
      type: "list of objects",
      default: "none",
      meaning: "Lists the addresses of the container.",
      tests,
    },
    "ipam.addresses[].address": {
      type: "address with prefix length",
      meaning: "Is one address.",
      example: "10.1.0.2/16",
      tests,
    },
    "ipam.addresses[].gateway": {
      type: "IP address of the same family",
      default: "none",
      meaning: "Is the gateway of the address.",
      example: "10.1.0.1",
      tests,
    },
    ...routeDocs(tests),
    "ipam.dns": { type: "object", default: "none", meaning: "Holds the DNS settings of the result.", tests },
    "ipam.dns.nameservers": {
      type: "list of addresses",
      default: "none",
      meaning: "Lists the name servers.",
      example: ["10.1.0.53"],
      tests,
    },
    "ipam.dns.domain": {
      type: "domain",
      default: "none",
      meaning: "Is the local domain.",
      example: "example.org",
      tests,
    },
    "ipam.dns.search": {
      type: "list of domains",
      default: "none",
      meaning: "Lists the domains in which short names are looked up.",
      example: ["example.org"],
      tests,
    },
    "ipam.dns.options": {
      type: "list of words",
      default: "none",
      meaning: "Holds options of resolv.conf(5).",
      example: ["ndots:2"],
      tests,
    },
    "runtimeConfig.ips": {
      ...ips,
      meaning: "Replaces all other addresses and their gateways, also those of `args.cni.ips`.",
    },
    "args.cni.ips": { ...ips, meaning: "Replaces the addresses and gateways of `ipam.addresses` and CNI_ARGS." },
    "CNI_ARGS IP": {
      type: "addresses with prefix length, with commas between them",
      default: "none",
      meaning: "Adds addresses to those of `ipam.addresses`.",
      example: "10.1.0.7/16,fd00:1::7/64",
      tests,
    },
    "CNI_ARGS GATEWAY": {
      type: "IP addresses, with commas between them",
      default: "none",
      meaning: "Sets the gateway of the addresses whose subnet contains it.",
      example: "10.1.0.1,fd00:1::1",
      parity: "yes, for addresses of the configuration too",
      tests,
    },
  },
  differences: [
    "`GATEWAY` of CNI_ARGS also applies to addresses of the configuration. In the Go plugin, it applies only to those of CNI_ARGS.",
    "CHECK fails if an address of the configuration is missing in `prevResult`.",
  ],
} satisfies PluginDocs;
