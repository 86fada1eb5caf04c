import type { PluginFixture } from "../../testing/fixture.ts";
import { findShownLink } from "../../testing/fixture_configs.ts";

/** `loopback` in the suites that run over every plugin. */
export default {
  ifname: "lo",
  typical: { config: () => ({}) },
  working: () => ({}),
  invalid: [],
  effects: [{ observe: ({ container }) => findShownLink(container, "lo").flags.includes("UP"), attached: true }],
} satisfies PluginFixture;
