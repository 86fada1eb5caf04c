/** `cni serve` as a service of systemd. */
import { expect, test } from "bun:test";
import { existsSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { listenAt } from "../../ffi/sys/unix_socket.ts";
import { until } from "../../testing/netns.ts";
import { newServerSite } from "../../testing/server_site.ts";
import { newServiceManager, WITH_LISTEN_PID } from "../../testing/systemd.ts";

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

test("a server takes the socket of systemd, which keeps it for the next one", async () => {
  await using site = newServerSite();
  mkdirSync(dirname(site.socket), { mode: 0o700 });
  using listener = listenAt(site.socket);
  const activated = { wrapper: WITH_LISTEN_PID, env: { LISTEN_FDS: "1" }, descriptor: listener.fd };
  // It comes before the server does.
  const early = site.callVersion();
  const first = site.start(activated);
  await first.untilReady();
  expect(await early).toMatchObject(SUCCESS);
  // A busy machine may not serve a call, and a worker counts it after its answer.
  while (site.status().served === 0) expect(await site.callVersion()).toMatchObject(SUCCESS);
  await until(() => first.calls().length === site.status().served);

  const second = site.start({ options: ["--replace"] });
  await second.untilReady();
  expect(await first.process.exited).toBe(0);
  expect(await site.callVersion()).toMatchObject(SUCCESS);
  second.process.kill("SIGTERM");
  await second.process.exited;
  expect([existsSync(site.socket), existsSync(`${site.socket}.control`)]).toEqual([true, false]);

  const third = site.start(activated);
  await third.untilReady();
  expect(await site.callVersion()).toMatchObject(SUCCESS);
  await until(() => third.calls().length === 1);
});

test.each([
  ["two sockets", { LISTEN_FDS: "2" }],
  ["a descriptor that is no socket for packets", { LISTEN_FDS: "1" }],
])("a server refuses %s of systemd", async (_, env) => {
  await using site = newServerSite();
  const server = site.start({ wrapper: WITH_LISTEN_PID, env, descriptor: 0 });
  expect(await server.process.exited).toBe(1);
  expect(server.log()).toBe(
    "cni: Cannot use the sockets of systemd: expected one, with ListenSequentialPacket=\n",
  );
});
