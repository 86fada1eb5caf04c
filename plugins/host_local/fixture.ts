import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import type { PluginFixture } from "../../testing/fixture.ts";
import { hostLocalConfig, typicalIpam } from "../../testing/fixture_configs.ts";

function reservations(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory).filter((name) => /^\d/.test(name)) : [];
}

export default {
  typical: { config: (stateDirectory) => ({ ipam: typicalIpam(stateDirectory) }) },
  working: (node) => ({ ipam: hostLocalConfig(node) }),
  invalid: [
    { ipam: null },
    ...[
      { subnet: "10.5.0.0" },
      { subnet: "10.5.0.0/33" },
      { subnet: 1 },
      { subnet: "10.5.0.0/24\0" },
      { rangeStart: "10.6.0.1" },
      { gateway: "x" },
      { ranges: {} },
      { ranges: [null] },
      { ranges: [[null]] },
      { ranges: [[{ subnet: "10.5.0.0/24" }]] },
      { routes: {} },
      { routes: [null] },
      { routes: [{ dst: "x" }] },
      { dataDir: 1 },
      { dataDir: "/tmp/cni\0conformance" },
      { resolvConf: 1 },
    ].map((ipam) => ({ ipam })),
    { runtimeConfig: { ips: "x" } },
    { runtimeConfig: { ips: [null] } },
    { runtimeConfig: { ipRanges: [[{ subnet: null }]] } },
  ],
  effects: [{
    observe: ({ directory }, root) => reservations(join(root, directory, "ipam/net")),
    attached: ["10.5.0.2"],
  }],
} satisfies PluginFixture;
