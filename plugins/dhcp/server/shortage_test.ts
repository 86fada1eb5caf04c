/** What the server of leases does when something is missing on the host. */
import { expect } from "bun:test";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../../../ffi/netns/netns.ts";
import { SOCK_STREAM } from "../../../ffi/sys/uapi.ts";
import { connectTo } from "../../../ffi/sys/unix_socket.ts";
import { type DhcpLan, dhcpLanTest } from "../../../testing/dhcp.ts";
import { until } from "../../../testing/netns.ts";
import { errorOfCall } from "../../../testing/plugin_call.ts";
import { leaseFileName } from "../protocol.ts";

const lanTest = (name: string, body: (lan: DhcpLan) => Promise<void>) => dhcpLanTest(name, body);

lanTest("without descriptors, leases are kept, and requests wait", async (lan) => {
  await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", lan.config) };
  const other = createNetns();
  lan.call("bridge", "ADD", lan.config, { containerId: "c2", netns: other });
  const limit = (soft: string) =>
    Bun.spawnSync(["prlimit", `--pid=${server.process.pid}`, `--nofile=${soft}:`]).exitCode;
  // Fewer than it has open, but as many as it polls.
  expect(limit("8")).toBe(0);
  // The server looks whether its containers are still there.
  other[Symbol.dispose]();
  await until(() => server.log().includes("c1/lan/eth0: Cannot open network namespace"));
  using _connection = connectTo(lan.socket, SOCK_STREAM);
  await until(() => server.log().includes("Takes no requests for 1 s"));
  expect(limit("1024")).toBe(0);
  lan.call("bridge", "CHECK", { ...lan.config, prevResult });
  expect(server.log()).not.toContain("the lease ends");
});

lanTest("a lease that cannot be recorded is an error, and its server goes on", async (lan) => {
  await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  const path = join(lan.directory, "dhcp", leaseFileName({ network: "lan", containerId: "c1", ifname: "eth0" }));
  mkdirSync(path, { recursive: true });
  expect(errorOfCall(() => lan.call("bridge", "ADD", lan.config)).message).toContain(path);
  lan.call("bridge", "ADD", lan.config, { containerId: "c2" });
  expect(server.log()).toContain("10.7.0.10 is released");
});
