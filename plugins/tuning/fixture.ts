import { join } from "node:path";
import type { PluginFixture } from "../../testing/fixture.ts";
import { earlierResult, findShownLink } from "../../testing/fixture_configs.ts";
import { runInNetns, runIp } from "../../testing/netns.ts";

export default {
  typical: { config: () => ({ sysctl: { "net.ipv4.conf.IFNAME.arp_filter": "1" }, mtu: 1400 }), isChained: true },
  working(node) {
    runIp(node.container, "link add eth0 type veth peer name peer0");
    const sysctl = { "net.core.somaxconn": "500" };
    const dataDir = join(node.directory, "tuning");
    return { mtu: 1400, mac: "0a:00:00:00:00:07", sysctl, dataDir, prevResult: earlierResult(node) };
  },
  invalid: [
    ...["sysctl", "mac", "promisc", "mtu", "allmulti", "txQLen", "dataDir"].map((key) => ({ [key]: [1] })),
    ...["mac", "promisc", "mtu", "allmulti", "txQLen", "sysctl"].map((key) => ({ args: { cni: { [key]: "x" } } })),
    { sysctl: { "net.core.somaxconn": 500 } },
    { sysctl: { "kernel.hostname": "x" } },
    { sysctl: { "net/../kernel/hostname": "x" } },
    { sysctl: { "net.core.somaxconn\0": "1" } },
    { sysctl: { "net.core.somaxconn": "1", "net/core/somaxconn": "1" } },
    { sysctl: { "net.nosuch": "1" } },
    { mac: "x" },
    { mtu: -1 },
    { mtu: 1.5 },
    { txQLen: -1 },
    { dataDir: "/tmp/cni\0conformance" },
    { prevResult: null },
    { runtimeConfig: { mac: 1 } },
  ],
  effects: [{
    observe({ container }) {
      const { mtu, address } = findShownLink(container);
      return [mtu, address, runInNetns(container, "cat", "/proc/sys/net/core/somaxconn").trim()];
    },
    attached: [1400, "0a:00:00:00:00:07", "500"],
  }],
} satisfies PluginFixture;
