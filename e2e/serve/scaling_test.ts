/** How many workers a server has, and when it replaces one. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { newServerSite, WAITING_CALL_CODE } from "../../testing/server_site.ts";
import { until } from "../../testing/netns.ts";

test("a server starts more workers while calls wait, up to its limit, and ends them when they are idle", async () => {
  await using site = newServerSite();
  const server = site.start({ limits: { extraWorkerIdleMs: 2000 } });
  await server.untilReady();
  expect(site.status().workers).toHaveLength(2);
  const calls = [];
  for (let count = 1; count <= 4; count++) {
    calls.push(site.startWaitingCall());
    await until(() => site.busyWorkers().length === count);
    const warm = count < 4 ? count + 1 : 4;
    await until(() => site.status().workers.filter(({ state }) => state !== "starting").length >= warm);
  }
  // All are busy: the shim waits for a second, then it does the call by itself.
  expect(await site.callVersion()).toMatchObject({ exitCode: 0, stderr: "" });
  expect(site.status().workers.map(({ state }) => state)).toEqual(["busy", "busy", "busy", "busy"]);
  expect(site.status().served).toBe(0);
  for (const call of calls) {
    const { exitCode, stdout } = await call.finish();
    expect([exitCode, JSON.parse(stdout).code]).toEqual([1, WAITING_CALL_CODE]);
  }
  await until(() => site.status().workers.length === 2);
  expect(site.status()).toMatchObject({ served: 4, fellBack: { withdrawn: 1 } });
  expect((await site.callVersion()).exitCode).toBe(0);
  await until(() => server.calls().length === 5);
});

test("a worker that has grown is replaced between two calls, one after the other", async () => {
  await using site = newServerSite();
  const server = site.start({ limits: { maxWorkerBytes: 1, callsPerCheck: 4 } });
  await server.untilReady();
  const first = site.status().workers.map(({ pid }) => pid);
  const isWarm = ({ state }: { readonly state: string }) => state === "idle" || state === "busy";
  let calls = 0;
  do {
    expect(await site.callVersion()).toMatchObject({ exitCode: 0, stderr: "" });
    calls++;
    // One of the two is always warm.
    expect(site.status().workers.some(isWarm)).toBe(true);
    await until(() => site.status().workers.filter(isWarm).length === 2);
  } while (site.status().workers.some(({ pid }) => first.includes(pid)));
  expect(calls).toBeGreaterThanOrEqual(8);
  expect(site.status().served).toBe(calls);
  await until(() => server.calls().length === calls);
  // That it ends is in order.
  expect(server.log()).not.toContain("ended with");
});

test("a server that may start no process and open no file goes on, and starts workers when it may again", async () => {
  await using site = newServerSite();
  const server = site.start();
  await server.untilReady();
  const limitFiles = (count: number) =>
    Bun.spawnSync(["prlimit", "--pid", `${server.process.pid}`, `--nofile=${count}:`]);
  const first = site.startWaitingCall();
  await until(() => site.busyWorkers().length === 1);
  limitFiles(8);
  const second = site.startWaitingCall();
  await until(() => server.log().includes("Cannot start a worker: "));
  const status = Bun.spawn([join(site.bin, "cni-full"), "serve", "--socket", site.socket, "--status"], {
    stdio: ["ignore", "ignore", "ignore"],
  });
  await until(() => server.log().includes("Cannot accept a connection: Too many open files (EMFILE)\n"));
  limitFiles(1024);
  expect(await status.exited).toBe(0);
  await until(() => site.status().workers.some(({ state }) => state === "idle"));
  expect(site.busyWorkers()).toHaveLength(2);
  for (const call of [first, second]) expect((await call.finish()).exitCode).toBe(1);
  expect(server.log().match(/Cannot start a worker/g)).toHaveLength(1);
});
