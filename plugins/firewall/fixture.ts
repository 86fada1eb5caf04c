import type { PluginFixture } from "../../testing/fixture.ts";
import { earlierResult } from "../../testing/fixture_configs.ts";
import { nftListRuleset } from "../../testing/ruleset.ts";

export default {
  typical: { config: () => ({}), isChained: true },
  working: (node) => ({ prevResult: earlierResult(node), backend: "nftables" }),
  invalid: [
    { prevResult: null },
    { backend: "ipset" },
    { backend: 1 },
    { ingressPolicy: "closed" },
    { ingressPolicy: "isolated" },
    { ingressPolicy: true },
    { iptablesAdminChainName: "two words" },
    { iptablesAdminChainName: "-j" },
    { iptablesAdminChainName: "x".repeat(29) },
    { iptablesAdminChainName: "A\0" },
    { firewalldZone: {} },
    { firewalldZone: "x".repeat(10_000) },
  ],
  effects: [{
    host: [
      "nft add table ip own",
      "nft 'add chain ip own pass { type filter hook forward priority 0; policy drop; }'",
    ],
    observe: ({ host }) => nftListRuleset(host).match(/meta mark & 0x20000000 == 0x20000000 accept/g)?.length,
    attached: 1,
  }],
} satisfies PluginFixture;
