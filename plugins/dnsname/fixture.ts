import { readFileSync, writeFileSync } from "node:fs";
import type { Netns } from "../../ffi/netns/netns.ts";
import { nameServerPaths, startNameServer } from "../../testing/dnsname.ts";
import type { FixtureNode, PluginFixture } from "../../testing/fixture.ts";
import { earlierResult } from "../../testing/fixture_configs.ts";
import { runIp } from "../../testing/netns.ts";

const keys = (directory: string): object => ({ ...nameServerPaths(directory).keys, domainName: "dns.podman" });

function serve(host: Netns, directory: string): Disposable {
  const paths = nameServerPaths(directory);
  writeFileSync(paths.resolvConf, "");
  return startNameServer(host, paths);
}

export default {
  typical: { config: keys, isChained: true, serve },
  sharesDirectory: true,
  working(node: FixtureNode) {
    const server = serve(node.host, node.directory);
    node.defer(() => server[Symbol.dispose]());
    runIp(node.host, "link add br5 type bridge", "addr add 10.5.0.1/24 dev br5", "link set br5 addrgenmode none up");
    const { interfaces, ips, ...result } = earlierResult(node);
    return {
      ...keys(node.directory),
      runtimeConfig: { aliases: { net: ["web"] } },
      prevResult: { ...result, interfaces: [...interfaces, { name: "br5" }], ips },
    };
  },
  invalid: [
    { prevResult: null },
    { domainName: 1 },
    { domainName: "two words" },
    { domainName: "a..b" },
    { domainName: "x".repeat(64) },
    { domainName: "a\0" },
    { dataDir: "relative" },
    { dataDir: {} },
    { daemonSocketPath: "relative" },
    { daemonSocketPath: "/a\0" },
    { daemonSocketPath: `/${"x".repeat(200)}` },
    { runtimeConfig: { aliases: "web" } },
    { runtimeConfig: { aliases: { net: "web" } } },
    { runtimeConfig: { aliases: { net: ["two words"] } } },
    { runtimeConfig: { aliases: [1] } },
    { runtimeConfig: { aliases: ["x".repeat(64)] } },
  ],
  effects: [{
    // 10.5.0.1, port 53.
    observe: ({ host }) =>
      ["udp", "tcp"].map((protocol) =>
        host.run(() => readFileSync(`/proc/thread-self/net/${protocol}`, "utf8").includes("0100050A:0035"))
      ),
    attached: [true, true],
  }],
} satisfies PluginFixture;
