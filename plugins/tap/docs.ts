import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const tests = ["plugin_test.ts"];
const mac = { type: "MAC address", example: "02:00:00:00:00:0a", tests };
const ID = "number, 0 to 4294967294";

export default {
  example: {
    type: "tap",
    multiQueue: true,
    owner: 1000,
    group: 1000,
    ipam: { type: "host-local", ranges: [[{ subnet: "10.25.0.0/16" }]] },
  },
  keys: {
    multiQueue: {
      type: "boolean",
      default: "false",
      meaning: "Lets several threads of a program open the tap, each with a queue of its own.",
      example: true,
      tests,
    },
    mtu: {
      type: "number of bytes, 0 to 65535",
      default: "0, the kernel's choice",
      meaning: "Sets the MTU of the tap.",
      example: 1400,
      tests,
    },
    owner: {
      type: ID,
      default: "none",
      meaning: "Allows only the user with this id, and programs with CAP_NET_ADMIN, to open the tap.",
      example: 1000,
      tests,
    },
    group: {
      type: ID,
      default: "none",
      meaning: "Allows only members of the group with this id, and programs with CAP_NET_ADMIN, to open the tap.",
      example: 1000,
      tests,
    },
    selinuxContext: {
      type: "SELinux context",
      default: "none",
      meaning: "Is the SELinux context of programs that may open the tap.",
      example: "system_u:system_r:container_t:s0",
      tests: ["plugin_test.ts", "selinux_vm_test.ts"],
    },
    bridge: {
      type: "interface name",
      default: "none",
      meaning: "Names a bridge in the container. The tap becomes a port of it.",
      example: "br0",
      tests,
    },
    mac: { ...mac, default: "chosen by the kernel", meaning: "Is the tap's MAC address." },
    "runtimeConfig.mac": {
      ...mac,
      default: "none",
      meaning: "Is the tap's MAC address. It overrides CNI_ARGS and `mac`.",
    },
    "CNI_ARGS MAC": { ...mac, default: "none", meaning: "Is the tap's MAC address. It overrides `mac`." },
    args: {
      type: "object",
      default: "none",
      meaning: "Is accepted without effect.",
      parity: "accepted, no effect",
      tests,
    },
  },
  differences: [
    "Every tap has virtio's header (`vnet_hdr`) and no packet information header (`pi off`).",
    "All keys work together. The Go plugin ignores `mtu` and `mac` if `owner` and `group` are given.",
    "ADD fails if the container already has an interface of that name.",
    "CHECK compares the tap itself: kind, queues, owner, group, MTU and bridge.",
    "If the configuration has no `dns`, the result has the DNS settings of the IPAM plugin.",
  ],
} satisfies PluginDocs;
