import type { PluginFixture } from "../../testing/fixture.ts";
import {
  FAR_END_UP,
  INVALID_LOWER_DEVICE,
  lowerDeviceConfig,
  observeKind,
  typicalIpv4Ipam,
} from "../../testing/fixture_configs.ts";

export default {
  linkKind: "macvlan",
  typical: { config: (stateDirectory) => ({ master: "wire0", ipam: typicalIpv4Ipam(stateDirectory) }) },
  working: (node) => lowerDeviceConfig(node),
  invalid: [
    ...INVALID_LOWER_DEVICE,
    { mode: "l2" },
    { mode: 4 },
    { mac: "x" },
    { mac: "01:00:5e:00:00:01" },
    { mac: "00:00:00:00:00:00" },
    { runtimeConfig: { mac: 1 } },
    { args: { cni: { mac: "x" } } },
    { bcqueuelen: -1 },
    { bcqueuelen: 4294967296 },
  ],
  effects: [{ host: FAR_END_UP, observe: observeKind("mode"), attached: ["macvlan", "bridge", ["10.5.0.2"]] }],
} satisfies PluginFixture;
