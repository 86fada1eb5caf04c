import type { PluginFixture } from "../../testing/fixture.ts";

export default {
  typical: { config: () => ({ ipam: { type: "static", addresses: [{ address: "10.66.0.9/16" }] } }) },
  working: () => ({ ipam: { type: "static", addresses: [{ address: "10.5.0.9/24" }] } }),
  invalid: [
    { ipam: null },
    ...[
      { addresses: {} },
      { addresses: [null] },
      { addresses: [{ address: "10.5.0.9" }] },
      { addresses: [{ address: "10.5.0.9/24", gateway: "x" }] },
      { routes: [{ dst: "x" }] },
      { routes: [{ dst: "::/0", gw: "10.5.0.1" }] },
      { dns: { search: "x" } },
    ].map((ipam) => ({ ipam })),
    { runtimeConfig: { ips: "x" } },
    { runtimeConfig: { ips: ["10.5.0.9"] } },
    { args: { cni: { ips: [1] } } },
  ],
  effects: [],
} satisfies PluginFixture;
