import type { PluginFixture } from "../../testing/fixture.ts";
import { findShownLink, hostLocalConfig, observeKind, typicalIpam } from "../../testing/fixture_configs.ts";

export default {
  typical: { config: (stateDirectory) => ({ ipam: typicalIpam(stateDirectory) }) },
  working: (node) => ({ mtu: 1400, mac: "0a:00:00:00:00:07", ipam: hostLocalConfig(node) }),
  invalid: [
    ...["multiQueue", "mtu", "owner", "group", "mac", "selinuxContext", "bridge"].map((key) => ({ [key]: {} })),
    { multiQueue: "yes" },
    { mtu: -1 },
    { mtu: "1500" },
    { owner: -1 },
    { owner: 4294967295 },
    { owner: "root" },
    { group: 4294967296 },
    { mac: "x" },
    { mac: "01:00:5e:00:00:01" },
    { runtimeConfig: { mac: 1 } },
    { args: [] },
    { selinuxContext: "a\nb" },
    { bridge: "nosuch" },
  ],
  effects: [{
    observe: (node) => [observeKind("type")(node), findShownLink(node.container)?.address],
    attached: [["tun", "tap", ["10.5.0.2"]], "0a:00:00:00:00:07"],
  }],
} satisfies PluginFixture;
