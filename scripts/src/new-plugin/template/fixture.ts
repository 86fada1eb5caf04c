import type { FixtureNode, PluginFixture } from "../../../../testing/fixture.ts";
import { addContainerInterface, earlierResult, findShownLink } from "../../../../testing/fixture_configs.ts";

/** `new-plugin` in the suites that run over every plugin. */
export default {
  typical: { config: () => ({ group: 7 }), isChained: true },
  working(node: FixtureNode) {
    addContainerInterface(node);
    return { group: 7, prevResult: earlierResult(node) };
  },
  invalid: [{ group: "7" }, { group: 0 }, { group: 1.5 }, { group: 2 ** 32 }, { prevResult: null }],
  effects: [{ observe: ({ container }) => findShownLink(container).group, attached: "7" }],
} satisfies PluginFixture;
