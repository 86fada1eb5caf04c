import type { PluginFixture } from "../../testing/fixture.ts";
import { addContainerInterface, earlierResult, findShownLink } from "../../testing/fixture_configs.ts";

export default {
  linkKind: "vrf",
  typical: { config: () => ({ vrfname: "red" }), isChained: true },
  working(node) {
    addContainerInterface(node);
    return { vrfname: "red", prevResult: earlierResult(node) };
  },
  invalid: [
    ...["vrfname", "table"].map((key) => ({ [key]: [1] })),
    { vrfname: null },
    { vrfname: "" },
    { vrfname: "a/b" },
    { vrfname: "red\0" },
    { vrfname: "x".repeat(16) },
    { vrfname: "peer0" },
    { table: "100" },
    { table: -1 },
    { table: 1.5 },
    { table: 4294967296 },
    { prevResult: null },
  ],
  effects: [{
    observe: ({ container }) => [
      findShownLink(container).master,
      findShownLink(container, "red")?.linkinfo.info_kind,
    ],
    attached: ["red", "vrf"],
  }],
} satisfies PluginFixture;
