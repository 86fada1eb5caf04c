/** The part of the server that keeps leases of DHCP. What it does is in plugins/dhcp. */
import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { SOCK_NONBLOCK, SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { connectTo } from "../../ffi/sys/unix_socket.ts";
import { type CniError, Code } from "../../spec/error.ts";
import { dhcpLanTest, dnsmasqMessages } from "../../testing/dhcp.ts";
import { runShellInNetns, until } from "../../testing/netns.ts";
import { isRunning, newServerSite, type ServerSite } from "../../testing/server_site.ts";

const pidOf = (site: ServerSite): number | undefined => site.status().parts.find(({ name }) => name === "dhcp")?.pid;

dhcpLanTest("cni serve starts it for the first lease, again after its end, and after a --replace", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  await using site = newServerSite();
  const server = lan.host.run(() => ({ process: site.start() })).process;
  await server.untilReady();
  expect(pidOf(site)).toBeUndefined();
  const config = { ...lan.config, ipam: { type: "dhcp", daemonSocketPath: join(site.socket, "../dhcp.sock") } };
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", config) };
  expect(prevResult.ips?.map(({ address }) => String(address))).toEqual(["10.7.0.10/24"]);
  /** Again, as long as the part starts: on an emulated machine, that is longer than a call waits. */
  const check = () =>
    until(() => {
      try {
        lan.call("bridge", "CHECK", { ...config, prevResult });
        return true;
      } catch (error) {
        if ((error as CniError).code !== Code.TryAgainLater) throw error;
        return false;
      }
    });
  await check();

  const first = pidOf(site)!;
  // Capabilities 12, 13, 19 and 21.
  expect(readFileSync(`/proc/${first}/status`, "utf8")).toMatch(/^CapEff:\t0000000000283000$/m);
  process.kill(first, "SIGKILL");
  await until(() => ![undefined, first].includes(pidOf(site)));
  await check();

  const second = pidOf(site)!;
  const next = lan.host.run(() => ({ process: site.start({ options: ["--replace"] }) })).process;
  await next.untilReady();
  await until(() => ![undefined, second].includes(pidOf(site)));
  await check();
  const third = pidOf(site)!;
  // The lease was asked for once.
  const acks = dnsmasqMessages(dnsmasq).filter((message) => message.startsWith("DHCPACK"));
  expect(new Set(acks)).toEqual(new Set(["DHCPACK 10.7.0.10"]));
  lan.call("bridge", "DEL", { ...config, prevResult });
  await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.10"));
  next.process.kill("SIGKILL");
  await until(() => !isRunning(third));
});

/** `undefined` if the queue is full. */
const connectAtOnce = (path: string) => ignoreErrors(["EAGAIN"], () => connectTo(path, SOCK_STREAM | SOCK_NONBLOCK));

dhcpLanTest("a server takes over the socket of a killed one as soon as the part of that has ended", async (lan) => {
  await using site = newServerSite();
  // Of the queues that connections wait in.
  runShellInNetns(lan.host, "echo 1 >/proc/sys/net/core/somaxconn");
  const start = () => lan.host.run(() => ({ server: site.start() })).server;
  const killed = start();
  await killed.untilReady();
  const path = join(site.socket, "../dhcp.sock");
  const connect = () => connectTo(path, SOCK_STREAM)?.[Symbol.dispose]();
  connect();
  await until(() => pidOf(site) !== undefined);
  const part = pidOf(site)!;
  process.kill(part, "SIGSTOP");
  using waiting = new DisposableStack();
  for (let next = connectAtOnce(path); next; next = connectAtOnce(path)) waiting.use(next);
  killed.process.kill("SIGKILL");
  await start().untilReady();
  process.kill(part, "SIGCONT");
  await until(() => {
    connect();
    return ![undefined, part].includes(pidOf(site));
  });
});
