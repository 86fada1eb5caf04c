import { lowerDeviceDocs } from "../lib/docs/lower_device_docs.ts";
import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];
const mac = { type: "MAC address", example: "02:00:00:00:00:0a", tests };
const CHOSEN = "chosen by the kernel";

/** The page of `macvlan`. */
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
      meaning: "Names the interface that the container's interface stands on.",
      example: "eth0",
      tests,
    },
    mode: {
      type: '"bridge", "private", "vepa" or "passthru"',
      default: '"bridge"',
      meaning:
        "In `bridge`, containers on one master reach each other. In `private`, they do not. In `vepa`, their frames go out to the switch. In `passthru`, the container has the master for itself.",
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
      meaning: "Is the container's MAC address. It counts before `args.cni.mac`, CNI_ARGS and `mac`.",
    },
    "args.cni.mac": {
      ...mac,
      default: "none",
      meaning: "Is the container's MAC address. It counts before CNI_ARGS and `mac`.",
      parity: "added here",
    },
    "CNI_ARGS MAC": { ...mac, default: "none", meaning: "Is the container's MAC address. It counts before `mac`." },
  },
  differences: [
    "Without `master`, the default route with the lowest metric counts.",
    "ADD asks the network for 0.2 seconds whether a machine has the IPv4 address. The error names its MAC address.",
    "If the kernel refuses the interface, the error names who else uses the master, such as a bridge.",
    "If a MAC address is in use on the master, the error names who has it.",
    "The DNS settings of the IPAM plugin count if the configuration has none.",
  ],
} satisfies PluginDocs;
