/** The documentation of `ipam.routes`, which is the same for every IPAM plugin. @module */
import type { KeyDocs } from "./plugin_docs.ts";

export function routeDocs(tests: readonly string[]): Readonly<Record<string, KeyDocs>> {
  return {
    "ipam.routes": { type: "list of objects", default: "none", meaning: "Lists routes for the container.", tests },
    "ipam.routes[].dst": {
      type: "network in CIDR notation",
      meaning: "Names the destination. `0.0.0.0/0` and `::/0` are the default routes.",
      example: "192.0.2.0/24",
      tests,
    },
    "ipam.routes[].gw": {
      type: "IP address of the same family",
      default: "the gateway of the container's address",
      meaning: "Names the next hop, a gateway.",
      example: "10.22.0.1",
      tests,
    },
    "ipam.routes[].mtu": {
      type: "number of bytes",
      default: "none",
      meaning: "Sets the MTU of the route.",
      example: 1400,
      tests,
    },
    "ipam.routes[].advmss": {
      type: "number of bytes",
      default: "none",
      meaning: "Sets the segment size that TCP announces on the route.",
      example: 1360,
      tests,
    },
    "ipam.routes[].priority": {
      type: "number",
      default: "the kernel's",
      meaning: "Sets the metric. The kernel uses the route with the lowest metric.",
      example: 100,
      tests,
    },
    "ipam.routes[].table": {
      type: "number of a routing table",
      default: "the table `main`, which is 254",
      meaning: "Names the routing table.",
      example: 100,
      tests,
    },
    "ipam.routes[].scope": {
      type: "number of a scope: 0 global, 253 link, 254 host",
      default: "0; in IPv4 without a gateway 253",
      meaning: "Sets the scope. A route of scope 253 or 254 has no gateway.",
      tests,
    },
  };
}
