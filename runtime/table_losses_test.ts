/** ADDs after each loss that nft(8) can cause to our table, without a server that puts rules back: real traffic. */
import { expect } from "bun:test";
import { loadPlugins } from "../plugins/registry.ts";
import { bridgeNetworkTest } from "../testing/bridge_network.ts";
import { newHealedHost } from "../testing/healed_host.ts";
import { runIp } from "../testing/netns.ts";
import { requestTcp, serveTcp } from "../testing/traffic.ts";

await loadPlugins();

/** Of each chain, set and map, as far as the kernel lets it go. */
function lossesOf(listing: string): string[] {
  const objects = [...listing.matchAll(/^\t(chain|set|map) (\S+) \{\n([^]*?)\n\t\}/gm)];
  return objects.flatMap(([, kind, name, body]) => {
    const flush = `flush ${kind} inet cni ${name}`;
    const isBaseChain = kind === "chain" && body!.includes("hook");
    const isUnused = name === "owners" || name!.includes("standby");
    return isBaseChain || isUnused ? [flush, `${flush}; delete ${kind} inet cni ${name}`] : [flush];
  });
}

bridgeNetworkTest(
  "after each loss, an ADD makes what it needs, and its published port answers",
  async ({ host, outside }) => {
    using resources = new DisposableStack();
    const { attach, check, nft, runtime } = newHealedHost(host, resources);
    const neighbour = attach("c0");
    const whole = lossesOf(nft("list", "table", "inet", "cni"));
    expect(whole.length).toBeGreaterThan(40);
    const losses = ["flush ruleset", "delete table inet cni", "flush table inet cni", ...whole];
    for (const [i, loss] of losses.entries()) {
      nft(loss);
      const netns = attach("c1");
      runIp(netns, "route add default via 10.7.0.1");
      using _server = serveTcp(netns, "c1", 80);
      const port = 8081 + i;
      const ask = async (from: typeof host, address: string) =>
        (await requestTcp(from, address, port, 2000))?.split(" ")[0];
      const answers = [
        await ask(host, "127.0.0.1"),
        await ask(host, "10.7.0.1"),
        await ask(outside, "192.0.2.1"),
        await ask(neighbour, "10.7.0.1"),
      ];
      expect([loss, ...answers, check("c1")]).toEqual([loss, "c1", "c1", "c1", "c1", ""]);
      host.run(() => {
        runtime().del("web", { containerId: "c1", ifname: "eth0" });
        runtime().restore();
      });
    }
  },
  180_000,
);
