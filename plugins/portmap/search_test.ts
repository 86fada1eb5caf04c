import { expect } from "bun:test";
import { inNetns } from "../../ffi/testing.ts";
import { networkTest } from "../kit/testing_network.ts";
import portmap from "../portmap.ts";
import { chains, elements, publishing } from "./testing.ts";

const MAPPINGS = [{ hostPort: 8080, containerPort: 80 }, { hostPort: 53, containerPort: 53, hostIP: "192.0.2.1" }];
const WEB = publishing(MAPPINGS);
const CONDITIONS = { conditionsV4: ["-s", "192.0.2.0/24"] };

for (
  const [name, added, removed] of [
    ["as it was", WEB, WEB],
    ["without mappings", WEB, {}],
    ["without mappings, with no address to be hidden", publishing(MAPPINGS, { snat: false }), { snat: false }],
    ["that hides nobody any more", WEB, publishing(MAPPINGS, { snat: false })],
    ["that hides callers since", publishing(MAPPINGS, { snat: false }), WEB],
    ["without the conditions that there were", publishing(MAPPINGS, CONDITIONS), WEB],
    ["with conditions that there were not", WEB, publishing(MAPPINGS, CONDITIONS)],
    ["that publishes on all addresses since", WEB, publishing(MAPPINGS.map(({ hostIP: _, ...each }) => each))],
    ["that says less and cannot be read", WEB, publishing(MAPPINGS, { conditionsV4: ["-x"] })],
  ] as const
) {
  networkTest(`DEL with a configuration ${name} leaves nothing of the container, and all of others`, (network) => {
    const { host, call } = network;
    const [container, other] = [network.container(2), network.container(3)];
    const before = publishing([{ hostPort: 80, containerPort: 80 }]);
    call(portmap, "ADD", before, { container: other, containerId: "other" });
    const theirs = [elements(host), chains(host)];
    call(portmap, "ADD", added, { container });
    call(portmap, "DEL", removed, { container });
    expect([elements(host), chains(host)]).toEqual(theirs);
    call(portmap, "CHECK", before, { container: other, containerId: "other" });
    return Promise.resolve();
  });
}

networkTest("DEL withdraws ports also where the container's address is another's by now", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  for (const late of [WEB, {}]) {
    call(portmap, "ADD", WEB, { container, containerId: "old" });
    call(portmap, "ADD", publishing([{ hostPort: 81, containerPort: 80 }]), { container, containerId: "new" });
    call(portmap, "DEL", late, { container, containerId: "old" });
    expect(elements(host).filter((each) => each.includes("old"))).toEqual([]);
    expect(elements(host)).toHaveLength(4);
    call(portmap, "DEL", {}, { containerId: "new" });
    expect(elements(host)).toEqual([]);
  }
  return Promise.resolve();
});

networkTest("DEL searches for the rest where somebody took an element away", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  call(portmap, "ADD", WEB, { container });
  inNetns(host, "nft", "delete", "element", "inet", "cni", "hairpin4", "{ 10.88.0.2 }");
  call(portmap, "DEL", WEB, { container });
  expect(elements(host)).toEqual([]);
  return Promise.resolve();
});
