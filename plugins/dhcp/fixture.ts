import { join } from "node:path";
import { serveLeases, startLeaseServerWithDhcp } from "../../testing/dhcp.ts";
import type { PluginFixture } from "../../testing/fixture.ts";

const socketIn = (directory: string): string => join(directory, "leases.sock");

export default {
  typical: {
    config: (stateDirectory) => ({ ipam: { type: "dhcp", daemonSocketPath: socketIn(stateDirectory) } }),
    serve: (host, stateDirectory) => serveLeases(host, socketIn(stateDirectory)),
    needsOthers: true,
  },
  working: (node) => ({ ipam: { type: "dhcp", daemonSocketPath: startLeaseServerWithDhcp(node) } }),
  invalid: [
    { ipam: null },
    ...[
      { daemonSocketPath: "dhcp.sock" },
      { daemonSocketPath: "/" + "x".repeat(107) },
      { daemonSocketPath: 1 },
      { provide: {} },
      { provide: [{ option: "nosuch", value: "x" }] },
      { provide: [{ option: "256", value: "x" }] },
      { provide: [{ option: "53", value: "x" }] },
      { provide: [{ value: "x" }] },
      { provide: [{ option: "12", value: "x".repeat(256) }] },
      { request: [{ option: "-1" }] },
      { request: [{ skipDefault: "yes" }] },
      { priority: -1 },
      { priority: "1" },
    ].map((ipam) => ({ ipam })),
  ],
  effects: [],
} satisfies PluginFixture;
