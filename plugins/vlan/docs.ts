import { lowerDeviceDocs } from "../lib/docs/lower_device_docs.ts";
import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_vm_test.ts"];

export default {
  example: {
    type: "vlan",
    master: "eth0",
    vlanId: 100,
    ipam: { type: "host-local", ranges: [[{ subnet: "192.0.2.0/24", rangeStart: "192.0.2.100" }]] },
  },
  keys: {
    master: {
      type: "name or alternative name of an interface",
      meaning: "Names the interface on which the VLAN is created.",
      example: "eth0",
      tests,
    },
    vlanId: {
      type: "VLAN number, 0 to 4094",
      default: "0",
      meaning: "Is the number of the VLAN.",
      example: 100,
      tests,
    },
    ...lowerDeviceDocs(tests),
  },
  differences: [
    "ADD asks the VLAN for 0.2 seconds whether a machine has the IPv4 address. If so, ADD fails and names its MAC address.",
    "If the master has the VLAN already, the error names the container that uses it.",
    "The plugin also works without IPAM.",
    "DEL works without the master.",
    "If the configuration has no `dns`, the result has the DNS settings of the IPAM plugin.",
  ],
} satisfies PluginDocs;
