import type { PluginFixture } from "../../testing/fixture.ts";
import { findShownLink } from "../../testing/fixture_configs.ts";

export default {
  ifname: "lo",
  typical: { config: () => ({}) },
  working: () => ({}),
  invalid: [],
  effects: [{ observe: ({ container }) => findShownLink(container, "lo").flags.includes("UP"), attached: true }],
} satisfies PluginFixture;
