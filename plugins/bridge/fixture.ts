import type { FixtureNode, PluginFixture } from "../../testing/fixture.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { bridgeTestConfig, findShownLink, shownAddresses, typicalIpam } from "../../testing/fixture_configs.ts";
import { ipShow, runInNetns } from "../../testing/netns.ts";

/** The bridge's ports, as ip(8) shows them. */
const portsOf = ({ host }: FixtureNode): JsonDocument[] =>
  ipShow(host, "addr", "show").filter(({ master }) => master === "br5");

/** The VLANs of the bridge's ports: `100 PVID Egress Untagged`. */
const vlansOf = (node: FixtureNode): string[][] =>
  portsOf(node).map(({ ifname }) =>
    JSON.parse(runInNetns(node.host, "bridge", "-j", "-compressvlans", "vlan", "show", "dev", ifname))[0]
      .vlans.map(({ vlan, vlanEnd, flags = [] }: JsonDocument) =>
        [vlanEnd ? `${vlan}-${vlanEnd}` : vlan, ...flags].join(" ")
      )
  );

const UNTAGGED = "PVID Egress Untagged";

export default {
  typical: {
    config: (stateDirectory) => ({
      ...{ bridge: "br0", isGateway: true, ipMasq: true, hairpinMode: true },
      ipam: typicalIpam(stateDirectory),
    }),
  },
  working: bridgeTestConfig,
  invalid: [
    ...["bridge", "isGateway", "ipMasq", "mtu", "vlan", "hairpinMode", "vlanTrunk"].map((key) => ({ [key]: {} })),
    { bridge: "" },
    { bridge: "br\0" },
    { bridge: "x".repeat(16) },
    { bridge: "a/b" },
    { mtu: "1500" },
    { mtu: -1 },
    { mtu: 1e9 },
    { mtu: 1.5 },
    { vlan: 4095 },
    { vlanTrunk: [null] },
    { isGateway: "yes" },
    { runtimeConfig: { mac: 1 } },
    { hairpinMode: true, promiscMode: true },
  ],
  effects: [
    {
      observe: (node) => [
        portsOf(node).length,
        shownAddresses(findShownLink(node.container)),
        runInNetns(node.container, "ip", "route", "show", "default").trim(),
      ],
      attached: [1, ["10.5.0.2"], "default via 10.5.0.1 dev eth0"],
    },
    {
      name: "with vlan",
      config: { isGateway: false, vlan: 100 },
      observe: vlansOf,
      attached: [[`100 ${UNTAGGED}`]],
    },
    {
      name: "with vlanTrunk",
      config: { vlanTrunk: [{ id: 101 }, { minID: 200, maxID: 210 }] },
      observe: vlansOf,
      attached: [[`1 ${UNTAGGED}`, "101", "200-210"]],
    },
    {
      name: "with preserveDefaultVlan",
      config: { isGateway: false, vlan: 100, preserveDefaultVlan: true },
      observe: vlansOf,
      attached: [["1 Egress Untagged", `100 ${UNTAGGED}`]],
    },
  ],
} satisfies PluginFixture;
