import type { PluginDocs } from "../lib/docs/plugin_docs.ts";

const ONE_OF = "none; one of `device`, `hwaddr`, `kernelpath`, `pciBusID` and `deviceID` is needed";

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
      meaning: "Names the device. It overrides `hwaddr`, `kernelpath` and `pciBusID`.",
      example: "enp1s0f1",
      tests: ["plugin_test.ts", "replaced_device_test.ts"],
    },
    hwaddr: {
      type: "MAC address of 48 bits",
      default: ONE_OF,
      meaning: "Names the device by its MAC address. It overrides `kernelpath` and `pciBusID`.",
      example: "02:00:00:00:00:0a",
      parity: "yes, of 48 bits only",
      tests: ["plugin_test.ts"],
    },
    kernelpath: {
      type: "path below /sys/devices/",
      default: ONE_OF,
      meaning: "Names the device by its directory in sysfs. It overrides `pciBusID`.",
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
      meaning: "Names the device that the runtime chose. It overrides all keys above.",
      example: "0000:00:1f.6",
      parity: "yes; it overrides the others",
      tests: ["plugin_test.ts"],
    },
    dataDir: {
      type: "path",
      default: '"/run/cni/host-device"',
      meaning: "Names the directory where ADD records the device's settings on the host.",
      example: "/run/cni/host-device",
      parity: "not in the Go plugin",
      tests: ["crash_test.ts"],
    },
  },
  absent: { DPDKMode: "the device's driver shows whether DPDK uses it" },
  differences: [
    "A container can replace the host's device by one of its own. So DEL compares kind, other end and lower device.",
    "If the device is another one, DEL leaves it in the container and says so.",
    "DEL gives the device its old name, state, MTU, MAC address and alias. The Go plugin restores only the name.",
    "DEL does this also if the namespace is gone and the kernel has moved the device to the host.",
    "`deviceID` of the runtime overrides `device`.",
    "From version 1.1.0 on, the result has the `pciID` of a device that was named by its PCI address.",
    "Bridges, bonds and VLANs share the MAC address of the device below them. `hwaddr` selects the lowest device.",
    "If the configuration has no `dns`, the result has the DNS settings of the IPAM plugin.",
  ],
} satisfies PluginDocs;
