import type { PluginFixture } from "../../testing/fixture.ts";
import { portmapConfig } from "../../testing/fixture_configs.ts";
import { nftListRuleset } from "../../testing/ruleset.ts";

export default {
  typical: {
    config: () => ({
      capabilities: { portMappings: true },
      runtimeConfig: { portMappings: [{ hostPort: 20080, containerPort: 80, protocol: "tcp" }] },
    }),
    isChained: true,
  },
  working: portmapConfig,
  invalid: [
    { snat: "x" },
    { conditionsV4: 1 },
    { conditionsV4: [1] },
    { conditionsV4: ["-j", "ACCEPT"] },
    { backend: "ebpf" },
    { markMasqBit: 32 },
    { prevResult: null },
    ...[
      {},
      [null],
      [{}],
      [{ hostPort: "80", containerPort: 80 }],
      [{ hostPort: 0, containerPort: 80 }],
      [{ hostPort: 65536, containerPort: 80 }],
      [{ hostPort: 80, containerPort: 80, protocol: "icmp" }],
      [{ hostPort: 80, containerPort: 80, protocol: "tcp\0" }],
      [{ hostPort: 80, containerPort: 80, hostIP: "x" }],
    ].map((portMappings) => ({ runtimeConfig: { portMappings } })),
  ],
  effects: [{ observe: ({ host }) => nftListRuleset(host).includes("10.5.0.9 . 80"), attached: true }],
} satisfies PluginFixture;
