import type { FixtureNode, PluginFixture } from "../../testing/fixture.ts";
import { runInNetns } from "../../testing/netns.ts";

/** Names that nobody else has: a server of the machine is not asked. */
const paths = (directory: string) => ({ socketPath: `${directory}/policy.socket`, dataDir: directory });

/** `network-policy` in the suites that run over every plugin. */
export default {
  typical: { config: (directory) => paths(directory), isChained: true },
  working({ host, container, directory }: FixtureNode) {
    runInNetns(host, "ip", "link", "add", "veth5", "type", "veth", "peer", "name", "eth0", "netns", container.path);
    const interfaces = [{ name: "veth5" }, { name: "eth0", sandbox: container.path }];
    const prevResult = { cniVersion: "1.1.0", interfaces, ips: [{ address: "10.5.0.9/24", interface: 1 }] };
    return { ...paths(directory), prevResult };
  },
  invalid: [
    { socketPath: "run/socket" },
    { dataDir: 1 },
    { dataDir: "lib" },
    { waitMs: -1 },
    { waitMs: 0.5 },
    { waitMs: "5s" },
    { prevResult: null },
  ],
  effects: [{
    observe: ({ host }) => runInNetns(host, "nft", "list", "ruleset").includes('"veth5" . 10.5.0.9'),
    attached: true,
  }],
} satisfies PluginFixture;
