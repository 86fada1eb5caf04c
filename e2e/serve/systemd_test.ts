/** `cni serve` as a service of systemd. */
import { expect, test } from "bun:test";
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { currentNetns } from "../../ffi/netns/netns.ts";
import { SOCK_SEQPACKET, SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { acceptConnection, connectTo } from "../../ffi/sys/unix_socket.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import { askDhcpServer } from "../../plugins/dhcp/client.ts";
import { askNameServer } from "../../plugins/dnsname/client.ts";
import { until } from "../../testing/netns.ts";
import { isRunning, newServerSite, type ServerSite } from "../../testing/server_site.ts";
import { newActivatedSocket, newServiceManager, WITH_LISTEN_PID } from "../../testing/systemd.ts";

const SUCCESS = { exitCode: 0, stderr: "" };

test("systemd hears when a server is ready, that it lives, and when it ends", async () => {
  using manager = newServiceManager();
  await using site = newServerSite();
  const server = site.start({ env: { ...manager.env, WATCHDOG_USEC: "200000" } });
  const messages: string[] = [];
  const untilHeard = (message: string) =>
    until(() => {
      messages.push(...manager.messages());
      return messages.includes(message);
    });
  await untilHeard(`READY=1\nMAINPID=${server.process.pid}`);
  for (let count = 0; count < 3; count++) {
    messages.length = 0;
    await untilHeard("WATCHDOG=1");
  }
  // Also while a call keeps it from ending.
  const call = site.startWaitingCall();
  await until(() => site.busyWorkers().length === 1);
  server.process.kill("SIGTERM");
  await untilHeard("STOPPING=1");
  messages.length = 0;
  await untilHeard("WATCHDOG=1");
  await call.finish();
  expect(await server.process.exited).toBe(0);
});

test("a server says nothing of a watchdog that is another's", async () => {
  using manager = newServiceManager();
  await using site = newServerSite();
  const server = site.start({ env: { ...manager.env, WATCHDOG_USEC: "1000", WATCHDOG_PID: "1" } });
  await server.untilReady();
  server.process.kill("SIGTERM");
  await server.process.exited;
  expect(manager.messages()).toEqual([`READY=1\nMAINPID=${server.process.pid}`, "STOPPING=1"]);
});

test("a server takes the sockets of systemd, which keeps them for the next one", async () => {
  await using site = newServerSite();
  const directory = dirname(site.socket);
  mkdirSync(directory, { mode: 0o700 });
  using listener = newActivatedSocket(site.socket);
  using names = newActivatedSocket(join(directory, "dnsname.sock"));
  using leases = newActivatedSocket(join(directory, "dhcp.sock"), SOCK_STREAM);
  // systemd keeps no order, and gives all sockets of a unit one name.
  const descriptors = [names.fd, leases.fd, listener.fd];
  const env = { LISTEN_FDS: "3", LISTEN_FDNAMES: "cni.socket:cni.socket:cni.socket" };
  const activated = { wrapper: WITH_LISTEN_PID, env, descriptors };
  // It comes before the server does.
  const early = site.callVersion();
  using host = currentNetns();
  const question = connectTo(join(directory, "dnsname.sock"))!;
  const first = site.start(activated);
  await first.untilReady();
  expect(await early).toMatchObject(SUCCESS);
  await until(() => site.status().parts.some(({ name, pid }) => name === "dnsname" && pid !== undefined));
  question[Symbol.dispose]();
  expect(
    askNameServer(host, { daemonSocketPath: join(directory, "dnsname.sock"), dataDir: directory }, { command: "look" }),
  ).toMatchObject({ problems: [] });
  expect(askDhcpServer(host, join(directory, "dhcp.sock"), { command: "status" })).toEqual({ states: {} });
  // A busy machine may not serve a call, and a worker counts it after its answer.
  while (site.status().served === 0) expect(await site.callVersion()).toMatchObject(SUCCESS);
  await until(() => first.calls().length === site.status().served);

  const second = site.start({ options: ["--replace"] });
  await second.untilReady();
  expect(await first.process.exited).toBe(0);
  expect(await site.callVersion()).toMatchObject(SUCCESS);
  second.process.kill("SIGTERM");
  await second.process.exited;
  expect(readdirSync(directory).filter((name) => /\.sock(\.control)?$/.test(name)).sort()).toEqual([
    "cni.sock",
    "dhcp.sock",
    "dnsname.sock",
  ]);

  const third = site.start(activated);
  await third.untilReady();
  expect(await site.callVersion()).toMatchObject(SUCCESS);
  await until(() => third.calls().length === 1);
});

test("a question that waits for a server is answered before that is warm", async () => {
  await using site = newServerSite();
  const directory = dirname(site.socket);
  mkdirSync(join(directory, "dnsname"), { recursive: true, mode: 0o700 });
  // With names of before, the part would start by itself, but later.
  writeFileSync(join(directory, "dnsname/of-before.json"), "");
  using listener = newActivatedSocket(site.socket);
  using names = newActivatedSocket(join(directory, "dnsname.sock"));
  using _question = connectTo(join(directory, "dnsname.sock"));
  const descriptors = [listener.fd, names.fd];
  const server = site.start({ wrapper: WITH_LISTEN_PID, env: { LISTEN_FDS: "2" }, descriptors });
  await until(() => existsSync(`${site.socket}.control`) && site.status()?.starts.dnsname === 1);
  expect(site.status().isReady).toBe(false);
  await server.untilReady();
});

/** Milliseconds of the fastest of some. A call that waits for an offer takes a second. */
async function timeOfCall(site: ServerSite): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < 3; i++) {
    const start = performance.now();
    expect(await site.callVersion()).toMatchObject(SUCCESS);
    times.push(performance.now() - start);
  }
  return Math.min(...times);
}

test("a call does not wait for a server that is starting, or has ended, but starts one", async () => {
  await using site = newServerSite();
  mkdirSync(dirname(site.socket), { mode: 0o700 });
  using listener = newActivatedSocket(site.socket);
  const activated = { wrapper: WITH_LISTEN_PID, env: { LISTEN_FDS: "1" }, descriptors: [listener.fd] };
  const first = site.start(activated);
  await first.untilReady();
  await until(async () => (await site.callVersion(), site.status().served > 0));
  const workers = site.status().workers.map(({ pid }) => pid);
  first.process.kill("SIGKILL");
  await first.process.exited;
  await until(() => !workers.some(isRunning));
  while (awaitReadable(listener.fd, 0)) acceptConnection(listener.fd)[Symbol.dispose]();
  const times = [await timeOfCall(site), await timeOfCall(site)];
  // This is what systemd waits for.
  expect(awaitReadable(listener.fd, 0)).toBe(true);
  const second = site.start(activated);
  await until(() => existsSync(`${site.socket}.control`) && site.status()?.isReady === false);
  times.push(await timeOfCall(site));
  await second.untilReady();
  expect(times.filter((ms) => ms >= 1000)).toEqual([]);
  await until(async () => (await site.callVersion(), site.status().served > 0));
});

test("a server makes a socket of its own where the file of systemd's is gone", async () => {
  await using site = newServerSite();
  mkdirSync(dirname(site.socket), { mode: 0o700 });
  using listener = newActivatedSocket(site.socket);
  rmSync(site.socket);
  const server = site.start({ wrapper: WITH_LISTEN_PID, env: { LISTEN_FDS: "1" }, descriptors: [listener.fd] });
  await server.untilReady();
  expect(await site.callVersion()).toMatchObject(SUCCESS);
});

test("a server refuses sockets of systemd that are none of its own", async () => {
  await using site = newServerSite();
  const directory = dirname(site.socket);
  mkdirSync(directory, { mode: 0o700 });
  using resources = new DisposableStack();
  const socket = (name: string, type?: number) => resources.use(newActivatedSocket(join(directory, name), type)).fd;
  const names = socket("dnsname.sock");
  const cases: [descriptors: number[], count: string, problem: string][] = [
    [[0], "1", "descriptor 3 is no socket"],
    [[names], "2", "descriptor 4 is no socket"],
    [[names], "1", `"${site.socket}" is not among them`],
    [[names], "many", `"${site.socket}" is not among them`],
    [[names, socket("other.sock")], "2", `descriptor 4 is ListenSequentialPacket=${directory}/other.sock`],
    [[socket("dhcp.sock", SOCK_SEQPACKET)], "1", `descriptor 3 is ListenSequentialPacket=${directory}/dhcp.sock`],
    [[socket("cni.sock", SOCK_STREAM)], "1", `descriptor 3 is ListenStream=${site.socket}`],
  ];
  for (const [descriptors, LISTEN_FDS, problem] of cases) {
    const server = site.start({ wrapper: WITH_LISTEN_PID, env: { LISTEN_FDS }, descriptors });
    expect(await server.process.exited).toBe(1);
    expect(server.log()).toBe(
      `cni: Cannot use the sockets of systemd: ${problem} (expected ListenSequentialPacket=${site.socket}, and perhaps ` +
        `ListenStream=${directory}/dhcp.sock or ListenSequentialPacket=${directory}/dnsname.sock)\n`,
    );
  }
});
