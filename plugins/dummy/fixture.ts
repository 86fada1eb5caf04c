import type { PluginFixture } from "../../testing/fixture.ts";
import { hostLocalConfig, observeKind, typicalIpam } from "../../testing/fixture_configs.ts";

export default {
  linkKind: "dummy",
  typical: { config: (stateDirectory) => ({ ipam: typicalIpam(stateDirectory) }) },
  working: (node) => ({ ipam: hostLocalConfig(node) }),
  invalid: [{ ipam: null }, { ipam: 1 }, { ipam: { type: "" } }],
  effects: [{ observe: observeKind(), attached: ["dummy", ["10.5.0.2"]] }],
} satisfies PluginFixture;
