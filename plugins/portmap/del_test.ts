import { expect } from "bun:test";
import { runInNetns } from "../../testing/netns.ts";
import { countingNetns } from "../../testing/netlink_counts.ts";
import { removeElementsOf } from "../lib/ruleset/elements.ts";
import { inetTable } from "../lib/ruleset/inet_table.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import portmap from "./plugin.ts";
import { portMappingConfig } from "../../testing/portmap.ts";
import { containerChains, nftElements } from "../../testing/ruleset.ts";

const MAPPINGS = [{ hostPort: 8080, containerPort: 80 }, { hostPort: 53, containerPort: 53, hostIP: "192.0.2.1" }];
const WEB = portMappingConfig(MAPPINGS);
const CONDITIONS = { conditionsV4: ["-s", "192.0.2.0/24"] };

for (
  const [name, added, removed] of [
    ["as it was", WEB, WEB],
    ["without mappings", WEB, {}],
    ["without mappings, with no address to be hidden", portMappingConfig(MAPPINGS, { snat: false }), { snat: false }],
    ["that hides nobody any more", WEB, portMappingConfig(MAPPINGS, { snat: false })],
    ["that hides callers since", portMappingConfig(MAPPINGS, { snat: false }), WEB],
    ["without the conditions that there were", portMappingConfig(MAPPINGS, CONDITIONS), WEB],
    ["with conditions that there were not", WEB, portMappingConfig(MAPPINGS, CONDITIONS)],
    ["that publishes on all addresses since", WEB, portMappingConfig(MAPPINGS.map(({ hostIP: _, ...each }) => each))],
    ["that names fewer ports", WEB, portMappingConfig(MAPPINGS.slice(1))],
    ["that names fewer ports of one family", WEB, portMappingConfig([{ ...MAPPINGS[0]!, hostIP: "::" }])],
    [
      "that names fewer ports, where nobody is hidden",
      portMappingConfig(MAPPINGS, { snat: false }),
      portMappingConfig(MAPPINGS.slice(1), { snat: false }),
    ],
    [
      "that names fewer ports, with conditions",
      portMappingConfig(MAPPINGS, CONDITIONS),
      portMappingConfig(MAPPINGS.slice(1), CONDITIONS),
    ],
    ["that names others", WEB, portMappingConfig([MAPPINGS[0]!, { hostPort: 54, containerPort: 53 }])],
    ["that says less and cannot be read", WEB, portMappingConfig(MAPPINGS, { conditionsV4: ["-x"] })],
  ] as const
) {
  bridgeNetworkTest(
    `DEL with a configuration ${name} leaves nothing of the container, and all of others`,
    (network) => {
      const { host, call } = network;
      const [container, other] = [network.container(2), network.container(3)];
      const before = portMappingConfig([{ hostPort: 80, containerPort: 80 }]);
      call(portmap, "ADD", before, { container: other, containerId: "other" });
      const theirs = [nftElements(host), containerChains(host)];
      call(portmap, "ADD", added, { container });
      call(portmap, "DEL", removed, { container });
      expect([nftElements(host), containerChains(host)]).toEqual(theirs);
      call(portmap, "CHECK", before, { container: other, containerId: "other" });
      return Promise.resolve();
    },
  );
}

bridgeNetworkTest("DEL withdraws ports also where the container's address is another's by now", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  for (const late of [WEB, {}]) {
    call(portmap, "ADD", WEB, { container, containerId: "old" });
    call(portmap, "ADD", portMappingConfig([{ hostPort: 81, containerPort: 80 }]), { container, containerId: "new" });
    call(portmap, "DEL", late, { container, containerId: "old" });
    expect(nftElements(host).filter((each) => each.includes("old"))).toEqual([]);
    expect(nftElements(host)).toHaveLength(5);
    call(portmap, "DEL", {}, { containerId: "new" });
    expect(nftElements(host)).toEqual([]);
  }
  return Promise.resolve();
});

bridgeNetworkTest("DEL searches for the rest where somebody took an element away", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  call(portmap, "ADD", WEB, { container });
  runInNetns(host, "nft", "delete", "element", "inet", "cni", "hairpin4", "{ 10.88.0.2 }");
  call(portmap, "DEL", WEB, { container });
  expect(nftElements(host)).toEqual([]);
  return Promise.resolve();
});

for (const more of [{ snat: true }, { snat: false }]) {
  bridgeNetworkTest(`DEL leaves nothing of two different ADDs: ${JSON.stringify(more)}`, (network) => {
    const { host, call } = network;
    const [container, other] = [network.container(2), network.container(3)];
    const [first, both] = [portMappingConfig(MAPPINGS.slice(0, 1), more), portMappingConfig(MAPPINGS, more)];
    for (
      const [before, after, where] of [
        [first, both, container],
        [both, first, container],
        [both, both, other],
        // Nothing that both have would tell of the first, where nobody is hidden.
        ...more.snat ? [[first, portMappingConfig(MAPPINGS.slice(1), more), container]] as const : [],
      ] as const
    ) {
      call(portmap, "ADD", before, { container });
      call(portmap, "ADD", after, { container: where });
      call(portmap, "CHECK", after, { container: where });
      call(portmap, "DEL", after, { container: where });
      expect(nftElements(host)).toEqual([]);
    }
    return Promise.resolve();
  });
}

bridgeNetworkTest("DEL removes what an owner published whose name leaves no room for a purpose", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  const containerId = "x".repeat(250 - "web  eth0".length);
  call(portmap, "ADD", WEB, { container, containerId });
  call(portmap, "ADD", WEB, { container, containerId });
  call(portmap, "CHECK", WEB, { container, containerId });
  call(portmap, "DEL", portMappingConfig(MAPPINGS.slice(1)), { container, containerId });
  expect(nftElements(host)).toEqual([]);
  return Promise.resolve();
});

for (const more of [{}, { snat: false }, CONDITIONS]) {
  bridgeNetworkTest(`DEL costs the same beside many: ${JSON.stringify(more)}`, (network) => {
    const { host, call } = network;
    const container = network.container(2);
    const own = portMappingConfig(MAPPINGS, more);
    const publishOther = (n: number) => {
      const prevResult = { cniVersion: "1.1.0", ips: [{ address: `10.88.1.${n}/16` }, { address: `fd88::1:${n}/64` }] };
      const config = portMappingConfig([{ hostPort: 9000 + n, containerPort: 80 }], more);
      call(portmap, "ADD", config, { container, containerId: `other${n}`, prevResult });
    };
    const costOfDel = () => {
      call(portmap, "ADD", own, { container });
      const owner = { network: "web", containerId: "c1", ifname: "eth0" };
      const tally = { sends: 0, messages: 0, dumps: 0, received: 0 };
      const { nft } = countingNetns(host, tally);
      removeElementsOf(nft, inetTable, "ports", owner);
      expect(nftElements(host).filter((each) => each.includes("web c1 "))).toEqual([]);
      return tally;
    };
    // As many as keep the chains that they share, so that nobody looks whether these can go.
    for (let n = 1; n <= 18; n++) publishOther(n);
    const few = costOfDel();
    for (let n = 19; n <= 40; n++) publishOther(n);
    expect(costOfDel()).toEqual(few);
    return Promise.resolve();
  });
}
