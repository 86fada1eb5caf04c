import type { PluginFixture } from "../../testing/fixture.ts";
import type { JsonDocument } from "../../testing/json_document.ts";
import { runInNetns } from "../../testing/netns.ts";

export default {
  typical: {
    config: () => ({ ingressRate: 8e6, ingressBurst: 8e5, egressRate: 8e6, egressBurst: 8e5 }),
    isChained: true,
  },
  working({ host, container }) {
    runInNetns(host, "ip", "link", "add", "veth5", "type", "veth", "peer", "name", "eth0", "netns", container.path);
    const interfaces = [{ name: "veth5" }, { name: "eth0", sandbox: container.path }];
    const prevResult = { cniVersion: "1.1.0", interfaces, ips: [{ address: "10.5.0.9/24", interface: 1 }] };
    return { prevResult, ingressRate: 8e6, ingressBurst: 8e6, runtimeConfig: {} };
  },
  invalid: [
    { prevResult: null },
    { prevResult: { interfaces: [] } },
    { ingressBurst: null },
    { ingressRate: 0 },
    { egressRate: 1 },
    { ingressRate: -1 },
    { ingressRate: 0.5 },
    { ingressRate: "8e6" },
    { ingressRate: "8Mbps" },
    { ingressRate: "8Mbit\0" },
    { ingressBurst: 34359738368 },
    { egressRate: [], egressBurst: {} },
  ],
  effects: [{
    // The limit of the other direction is on the veth pair, and goes with it.
    config: { ingressRate: 0, ingressBurst: 0, egressRate: 8e6, egressBurst: 8e6 },
    observe: ({ host }) =>
      JSON.parse(runInNetns(host, "tc", "-j", "qdisc", "show")).filter(({ kind }: JsonDocument) => kind === "tbf")
        .map(({ options }: JsonDocument) => options.rate),
    attached: [1e6],
  }],
} satisfies PluginFixture;
