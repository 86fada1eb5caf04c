import type { PluginFixture } from "../../testing/fixture.ts";
import { findShownLink, hostLocalConfig, shownAddresses, typicalIpam } from "../../testing/fixture_configs.ts";
import { runInNetns } from "../../testing/netns.ts";
import { nftListRuleset } from "../../testing/ruleset.ts";

export default {
  typical: { config: (stateDirectory) => ({ ipMasq: true, ipam: typicalIpam(stateDirectory) }) },
  working: (node) => ({ ipam: hostLocalConfig(node), ipMasq: true }),
  invalid: [
    ...["ipMasq", "ipMasqBackend", "mtu"].map((key) => ({ [key]: [1] })),
    { ipam: null },
    { ipMasq: 1 },
    { ipMasqBackend: "ebpf" },
    { mtu: "1500" },
    { mtu: -1 },
    { mtu: 65536 },
    { mtu: 1.5 },
    { ipam: { gateway: null, type: "static", addresses: [{ address: "10.5.0.9/24" }] } },
  ],
  effects: [{
    observe: ({ host, container }) => [
      runInNetns(host, "ip", "route", "show", "10.5.0.2").replace(/veth\w+/, "veth").trim(),
      shownAddresses(findShownLink(container)),
      nftListRuleset(host).includes('10.5.0.2 comment "net c1 eth0"'),
    ],
    attached: ["10.5.0.2 dev veth scope host", ["10.5.0.2"], true],
  }],
} satisfies PluginFixture;
