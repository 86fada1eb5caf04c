import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const ONE_OF = "none; one of the ways to name the device is needed";

/** The page of `host-device`. */
export default {
  example: {
    type: "host-device",
    device: "enp1s0f1",
    ipam: { type: "host-local", ranges: [[{ subnet: "192.0.2.0/24", rangeStart: "192.0.2.100" }]] },
  },
  keys: {
    device: {
      type: "name or alternative name of an interface",
      default: ONE_OF,
      meaning: "Names the device. It counts before `hwaddr`, `kernelpath` and `pciBusID`.",
      example: "enp1s0f1",
      tests: ["plugin_test.ts", "replaced_device_test.ts"],
    },
    hwaddr: {
      type: "MAC address of 48 bits",
      default: ONE_OF,
      meaning: "Names the device by its MAC address. It counts before `kernelpath` and `pciBusID`.",
      example: "02:00:00:00:00:0a",
      parity: "yes, of 48 bits only",
      tests: ["plugin_test.ts"],
    },
    kernelpath: {
      type: "path below /sys/devices/",
      default: ONE_OF,
      meaning: "Names the device by its directory in sysfs. It counts before `pciBusID`.",
      example: "/sys/devices/pci0000:00/0000:00:1f.6",
      tests: ["plugin_test.ts"],
    },
    pciBusID: {
      type: "PCI address",
      default: ONE_OF,
      meaning: "Names the device by its place on the PCI bus.",
      example: "0000:00:1f.6",
      tests: ["plugin_test.ts", "pci_vm_test.ts"],
    },
    "runtimeConfig.deviceID": {
      type: "PCI address, or id of an auxiliary device",
      default: "none",
      meaning: "Names the device that the runtime chose. It counts before all keys above.",
      example: "0000:00:1f.6",
      parity: "yes, before the others",
      tests: ["plugin_test.ts"],
    },
    dataDir: {
      type: "path",
      default: '"/run/cni/host-device"',
      meaning: "Names the directory where ADD records how the device was on the host.",
      example: "/run/cni/host-device",
      parity: "added here",
      tests: ["crash_test.ts"],
    },
  },
  absent: { DPDKMode: "the driver of the device tells whether a program drives it" },
  differences: [
    "A container can put a virtual device of its own in the place of the host's. DEL compares kind, other end and lower device.",
    "DEL does not give back another device, and says so. A kind that has neither another end nor a lower device stays in the container, except `dummy`.",
    "DEL gives the device back with its name, state, MTU, MAC address and alias. The Go plugin gives back the name.",
    "DEL does so too if the namespace is gone and the kernel has put the device back on the host.",
    "`deviceID` of the runtime counts before `device`.",
    "From version 1.1.0 on, the result has the `pciID` of a device that was named by its PCI address.",
    "Bridges, bonds and VLANs share the MAC address of the device below them. `hwaddr` means the lowest device.",
    "The DNS settings of the IPAM plugin count if the configuration has none.",
  ],
} satisfies PluginDocs;
