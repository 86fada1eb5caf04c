import { lowerDeviceDocs } from "../lib/docs/lower_device_docs.ts";
import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];
const mac = { type: "MAC address", example: "02:00:00:00:00:0a", tests };
const CHOSEN = "chosen by the kernel";

export default {
  example: {
    type: "macvlan",
    master: "eth0",
    mode: "bridge",
    ipam: { type: "host-local", ranges: [[{ subnet: "192.0.2.0/24", rangeStart: "192.0.2.100" }]] },
  },
  keys: {
    master: {
      type: "name or alternative name of an interface",
      default: "the interface of the default route",
      meaning: "Names the interface on which the container's interface is created.",
      example: "eth0",
      tests,
    },
    mode: {
      type: '"bridge", "private", "vepa" or "passthru"',
      default: '"bridge"',
      meaning:
        "In `bridge`, containers on one master reach each other. In `private`, they do not. In `vepa`, the external switch forwards their frames. In `passthru`, only one container can use the master.",
      example: "private",
      tests,
    },
    ...lowerDeviceDocs(tests),
    bcqueuelen: {
      type: "number of packets, 0 to 4294967295",
      default: "0, the kernel's choice",
      meaning: "Sets how many broadcast packets may wait. It needs Linux 5.11.",
      example: 2000,
      tests,
    },
    mac: { ...mac, default: CHOSEN, meaning: "Is the container's MAC address." },
    "runtimeConfig.mac": {
      ...mac,
      default: "none",
      meaning: "Is the container's MAC address. It overrides `args.cni.mac`, CNI_ARGS and `mac`.",
    },
    "args.cni.mac": {
      ...mac,
      default: "none",
      meaning: "Is the container's MAC address. It overrides CNI_ARGS and `mac`.",
      parity: "not in the Go plugin",
    },
    "CNI_ARGS MAC": { ...mac, default: "none", meaning: "Is the container's MAC address. It overrides `mac`." },
  },
  differences: [
    "Without `master`, ADD uses the interface of the default route with the lowest metric.",
    "ADD asks the network for 0.2 seconds whether a machine has the IPv4 address. If so, ADD fails and names its MAC address.",
    "If the kernel refuses the interface, the error names the other user of the master, such as a bridge.",
    "If the MAC address is in use on the master, the error names its holder.",
    "If the configuration has no `dns`, the result has the DNS settings of the IPAM plugin.",
  ],
} satisfies PluginDocs;
