import type { PluginFixture } from "../../testing/fixture.ts";
import {
  FAR_END_UP,
  INVALID_LOWER_DEVICE,
  lowerDeviceConfig,
  observeKind,
  typicalIpv4Ipam,
} from "../../testing/fixture_configs.ts";

export default {
  linkKind: "ipvlan",
  typical: { config: (stateDirectory) => ({ master: "wire0", ipam: typicalIpv4Ipam(stateDirectory) }) },
  working: (node) => lowerDeviceConfig(node),
  invalid: [...INVALID_LOWER_DEVICE, { mode: "l4" }, { mode: 2 }, { ipam: null }],
  effects: [{ host: FAR_END_UP, observe: observeKind("mode"), attached: ["ipvlan", "l2", ["10.5.0.2"]] }],
} satisfies PluginFixture;
