/** Names that are too long together to be written beside a rule: ADD refuses them, and DEL and GC find that there is nothing of theirs. */
import { expect } from "bun:test";
import bandwidth from "../../bandwidth/plugin.ts";
import bridge from "../../bridge/plugin.ts";
import firewall from "../../firewall/plugin.ts";
import type { AnyPlugin } from "../protocol/context.ts";
import { bridgeNetworkTest } from "../../../testing/bridge_network.ts";
import portmap from "../../portmap/plugin.ts";
import { portMappingConfig } from "../../../testing/portmap.ts";
import { nftElements, nftListRuleset } from "../../../testing/ruleset.ts";
import ptp from "../../ptp/plugin.ts";

const LONG = { name: "n".repeat(200), containerId: "x".repeat(64) };
const PORTS = portMappingConfig([{ hostPort: 8080, containerPort: 80 }]);

const CALLS: readonly (readonly [string, AnyPlugin, object])[] = [
  ["portmap", portmap, PORTS],
  ["portmap without ports", portmap, {}],
  ["firewall", firewall, { ingressPolicy: "isolated" }],
  ["bandwidth", bandwidth, {
    ingressRate: 1_000_000,
    ingressBurst: 1_000_000,
    egressRate: 1_000_000,
    egressBurst: 1_000_000,
  }],
  ["bridge", bridge, { bridge: "br0", ipMasq: true, macspoofchk: true }],
  ["ptp", ptp, { ipMasq: true }],
];

for (const [name, plugin, config] of CALLS) {
  bridgeNetworkTest(`DEL and GC of ${name} get along with names that ADD finds too long`, (network) => {
    const { host, call } = network;
    const [container, other] = [network.container(2), network.container(3)];
    for (const each of [portmap, firewall]) {
      call(each, "ADD", each === portmap ? PORTS : {}, { container: other, containerId: "other" });
    }
    const before = nftListRuleset(host);
    const long = { ...config, name: LONG.name };
    for (const result of [{ container }, {}]) {
      call(plugin, "DEL", long, { ...result, containerId: LONG.containerId, ifname: "eth9" });
    }
    const stays = [{ containerID: "x".repeat(240), ifname: "eth0" }];
    call(plugin, "GC", { ...long, "cni.dev/valid-attachments": stays });
    expect(nftListRuleset(host)).toBe(before);
    call(plugin, "GC", {
      ...config,
      "cni.dev/valid-attachments": [{ containerID: "other", ifname: "eth0" }, ...stays],
    });
    expect(nftListRuleset(host)).toBe(before);
    call(plugin, "GC", { ...config, "cni.dev/valid-attachments": stays });
    if (plugin === portmap) expect(nftElements(host).filter((each) => each.startsWith("hostports"))).toEqual([]);
    return Promise.resolve();
  });
}
