import { join } from "node:path";
import { SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { listenAt } from "../../ffi/sys/unix_socket.ts";
import { startLeaseServerWithDhcp } from "../../testing/dhcp.ts";
import type { PluginFixture } from "../../testing/fixture.ts";

const socketIn = (directory: string): string => join(directory, "dhcp.sock");

/** `dhcp` in the suites that run over every plugin. */
export default {
  typical: {
    config: (stateDirectory) => ({ ipam: { type: "dhcp", daemonSocketPath: socketIn(stateDirectory) } }),
    // STATUS only connects, which the kernel does.
    serve: (_, stateDirectory) => listenAt(socketIn(stateDirectory), SOCK_STREAM),
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
