import * as link from "../../ffi/route/link.ts";
import type { FixtureNode, PluginFixture } from "../../testing/fixture.ts";
import { addContainerInterface, earlierResult } from "../../testing/fixture_configs.ts";
import { runInNetns } from "../../testing/netns.ts";

/** `network-policy` in the suites that run over every plugin. */
export default {
  typical: { config: () => ({ interface: "svc0" }), isChained: true },
  working(node: FixtureNode) {
    addContainerInterface(node);
    return { interface: "svc0", address: "10.77.0.1/32", prevResult: earlierResult(node) };
  },
  invalid: [
    { interface: "" },
    { interface: "x".repeat(16) },
    { interface: 1 },
    { address: "10.77.0.1" },
    { address: 1 },
    { prevResult: null },
  ],
  effects: [
    { observe: ({ container }) => link.find(container.route, "svc0")?.info?.kind ?? "none", attached: "bridge" },
    {
      name: "its rule",
      observe: ({ host }) => runInNetns(host, "nft", "list", "ruleset").includes("10.77.0.1"),
      attached: true,
    },
  ],
} satisfies PluginFixture;
