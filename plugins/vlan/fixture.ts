import type { PluginFixture } from "../../testing/fixture.ts";
import {
  FAR_END_UP,
  INVALID_LOWER_DEVICE,
  lowerDeviceConfig,
  observeKind,
  typicalIpv4Ipam,
} from "../../testing/fixture_configs.ts";

export default {
  linkKind: "vlan",
  typical: { config: (stateDirectory) => ({ master: "wire0", vlanId: 7, ipam: typicalIpv4Ipam(stateDirectory) }) },
  working: (node) => lowerDeviceConfig(node, { vlanId: 5 }),
  invalid: [...INVALID_LOWER_DEVICE, { vlanId: -1 }, { vlanId: 4095 }, { vlanId: "5" }, { vlanId: 1.5 }],
  effects: [{ host: FAR_END_UP, observe: observeKind("id"), attached: ["vlan", 5, ["10.5.0.2"]] }],
} satisfies PluginFixture;
