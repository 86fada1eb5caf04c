import { lowerDeviceDocs } from "../lib/docs/lower_device_docs.ts";
import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_vm_test.ts"];

export default {
  example: {
    type: "ipvlan",
    master: "eth0",
    mode: "l2",
    ipam: { type: "host-local", ranges: [[{ subnet: "192.0.2.0/24", rangeStart: "192.0.2.100" }]] },
  },
  keys: {
    master: {
      type: "name or alternative name of an interface",
      default: "the only interface of `prevResult`, else that of the default route",
      meaning: "Names the interface on which the container's interface is created.",
      example: "eth0",
      tests,
    },
    mode: {
      type: '"l2", "l3" or "l3s"',
      default: '"l2"',
      meaning:
        "Says how packets leave the container. `l2` switches them and has broadcast. `l3` routes them and has no broadcast. `l3s` also applies the host's netfilter rules. The last ADD sets it for all interfaces of the master.",
      example: "l3s",
      tests,
    },
    ...lowerDeviceDocs(tests),
  },
  differences: [
    "Without `master`, ADD uses the interface of the default route with the lowest metric.",
    "In mode `l2`, ADD asks the network for 0.2 seconds whether a machine has the IPv4 address. If so, ADD fails and names its MAC address.",
    "If the kernel refuses the interface, the error names the other user of the master, such as a bridge.",
    "CHECK reports a mode that a later ADD changed.",
    "An `mtu` above that of the master is an error.",
    "DEL works without a default route and without the master.",
    "If the configuration has no `dns`, the result has the DNS settings of the IPAM plugin.",
  ],
} satisfies PluginDocs;
