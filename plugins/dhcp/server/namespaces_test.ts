/** When the server of leases looks whether its containers are there. */
import { expect } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../../../ffi/netns/netns.ts";
import { dhcpLanTest } from "../../../testing/dhcp.ts";
import { runShellInNetns, until } from "../../../testing/netns.ts";

const OTHERS = 20;

dhcpLanTest(
  "leases are looked at when containers have ended, once for those that end together",
  async (lan) => {
    await lan.startDnsmasq();
    const server = await lan.startLeaseServer();
    lan.call("bridge", "ADD", lan.config);
    const trace = join(lan.directory, "trace");
    const { pid } = server.process;
    const tracer = Bun.spawn(["strace", "-qq", "-p", `${pid}`, "-e", "trace=openat", "-o", trace]);
    using _ = { [Symbol.dispose]: () => tracer.kill("SIGKILL") };
    await until(() => !readFileSync(`/proc/${pid}/status`, "utf8").includes("TracerPid:\t0\n") && existsSync(trace));
    const looks = () => readFileSync(trace, "utf8").split(lan.container.path).length - 1;
    const others = Array.from({ length: OTHERS }, () => createNetns());
    for (const [i, { path }] of others.entries()) {
      runShellInNetns(lan.host, `ip link add other${i} type veth peer name eth0 netns ${path}`);
    }
    await Bun.sleep(1500);
    expect(looks()).toBe(0);
    const start = performance.now();
    for (const other of others) other[Symbol.dispose]();
    await until(() => looks() > 0);
    await Bun.sleep(1500);
    expect(looks()).toBeLessThanOrEqual((performance.now() - start) / 1000 + 1);
  },
  ["dnsmasq", "strace"],
);
