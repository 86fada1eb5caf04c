import type { PluginFixture } from "../../testing/fixture.ts";
import { addContainerInterface, earlierResult } from "../../testing/fixture_configs.ts";
import { runInNetns } from "../../testing/netns.ts";

export default {
  typical: { config: () => ({}), isChained: true },
  working(node) {
    addContainerInterface(node);
    return { prevResult: earlierResult(node) };
  },
  invalid: [
    { table: "100" },
    { table: 0 },
    { table: 4294967296 },
    { gateways: "10.5.0.1" },
    { gateways: ["x"] },
    { gateways: ["10.5.0.1", "10.5.0.2"] },
    { addSourceHints: "yes" },
    { prevResult: null },
    { prevResult: { interfaces: [] } },
  ],
  effects: [{
    observe: ({ container }) => runInNetns(container, "ip", "rule").match(/from 10\.5\.0\.9 lookup .*\d/),
    attached: ["from 10.5.0.9 lookup 100"],
  }],
} satisfies PluginFixture;
