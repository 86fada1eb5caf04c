import { join } from "node:path";
import type { PluginFixture } from "../../testing/fixture.ts";
import { findShownLink, hostLocalConfig, shownAddresses, typicalIpv4Ipam } from "../../testing/fixture_configs.ts";
import { runIp } from "../../testing/netns.ts";

export default {
  typical: { config: (stateDirectory) => ({ device: "device0", ipam: typicalIpv4Ipam(stateDirectory) }) },
  working(node) {
    // Both ends are down: a carrier comes and goes in its own time.
    runIp(node.host, "link add nic5 type veth peer name far5");
    return { device: "nic5", dataDir: join(node.directory, "host-device"), ipam: hostLocalConfig(node) };
  },
  invalid: [
    ...["device", "hwaddr", "kernelpath", "pciBusID", "dataDir"].map((key) => ({ [key]: {} })),
    { device: null },
    { device: "" },
    { device: "a/b" },
    { device: "nic5\0" },
    { hwaddr: "x" },
    { hwaddr: "01:00:5e:00:00:01" },
    { device: null, kernelpath: "/sys/class/net/nic5" },
    { device: null, kernelpath: "/sys/devices/../class" },
    { pciBusID: "../0000:00:00.0" },
    { runtimeConfig: { deviceID: 1 } },
    { runtimeConfig: { deviceID: ".." } },
    { dataDir: "/tmp/cni\0conformance" },
  ],
  effects: [{
    observe: ({ host, container }) => [
      findShownLink(host, "nic5")?.operstate,
      shownAddresses(findShownLink(container)),
    ],
    attached: [undefined, ["10.5.0.2"]],
  }],
} satisfies PluginFixture;
