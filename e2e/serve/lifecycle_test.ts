/** Servers that start, are replaced, end and are killed while shims call. */
import { expect, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openSockets } from "../../server/sockets.ts";
import { acceptConnection } from "../../ffi/sys/unix_socket.ts";
import { REPOSITORY_ROOT } from "../../scripts/src/repository.ts";
import { CNI_PROGRAM } from "../../testing/binary.ts";
import { until } from "../../testing/netns.ts";
import { newServerSite, type ServerSite, WAITING_CALL_CODE } from "../../testing/server_site.ts";

/** That of server/shim/shim.c: then a call runs cold. */
const OFFER_TIMEOUT_MS = 1000;
const isEmulated = process.env["TEST_PATIENCE_MS"] !== undefined;
const SUCCESS = { exitCode: 0, stderr: "" };
const isAlive = (pid: number): boolean => existsSync(`/proc/${pid}`);
const codeOf = ({ stdout }: { readonly stdout: string }): number => JSON.parse(stdout).code;

/** Starts a call that waits. @returns it and its worker */
async function startWaitingCall(site: ServerSite) {
  const before = site.busyWorkers();
  const call = site.startWaitingCall();
  await until(() => site.busyWorkers().length > before.length);
  const worker = site.busyWorkers().find((pid) => !before.includes(pid))!;
  // Until it has taken the caller's standard input, the shim would do the call itself.
  await until(() => readlinkSync(`/proc/${worker}/fd/0`) !== "/dev/null");
  return { ...call, worker };
}

test("a server takes the place of a killed one, replaces workers, and ends after the calls that run", async () => {
  await using site = newServerSite();
  const killed = site.start();
  await killed.untilReady();
  const second = site.start();
  expect(await second.process.exited).toBe(1);
  expect(second.log()).toBe(
    `cni: Cannot listen on "${site.socket}": another server does (use --replace to take its place)\n`,
  );

  const orphan = await startWaitingCall(site);
  const orphans = site.status().workers.map(({ pid }) => pid);
  killed.process.kill("SIGKILL");
  await killed.process.exited;
  const server = site.start();
  await server.untilReady();
  await until(() => orphans.every((pid) => isAlive(pid) === (pid === orphan.worker)));
  expect(codeOf(await orphan.finish())).toBe(WAITING_CALL_CODE);
  await until(() => !isAlive(orphan.worker));

  const [idle = 0] = site.status().workers.map(({ pid }) => pid);
  process.kill(idle, "SIGKILL");
  const lost = await startWaitingCall(site);
  process.kill(lost.worker, "SIGKILL");
  expect(codeOf(await lost.finish())).toBe(11);
  await until(() => site.status().workers.filter(({ state }) => state === "idle").length === 2);
  expect(site.status().workers.some(({ pid }) => pid === idle || pid === lost.worker)).toBe(false);
  expect(server.log()).toContain(`Worker ${idle} ended with signal 9\n`);
  expect(server.log()).toContain(`Worker ${lost.worker} ended with signal 9 during a call\n`);
  expect(await site.callVersion()).toMatchObject(SUCCESS);
  await until(() => site.status().served === 1);

  const last = await startWaitingCall(site);
  server.process.kill("SIGTERM");
  await until(() => !existsSync(site.socket));
  expect(await site.callVersion()).toMatchObject(SUCCESS);
  expect(isAlive(last.worker)).toBe(true);
  expect(codeOf(await last.finish())).toBe(WAITING_CALL_CODE);
  expect(await server.process.exited).toBe(0);
  expect(isAlive(last.worker)).toBe(false);
  // The one that came after SIGTERM is not among them.
  expect(server.calls()).toHaveLength(2);
});

test("processes have names that a person recognises", async () => {
  await using site = newServerSite();
  await site.start({ heals: true }).untilReady();
  await until(() => site.status().parts.some(({ name, pid }) => name === "heal" && pid !== undefined));
  const { workers, parts } = site.status();
  const healer = parts.find(({ name }) => name === "heal")!.pid!;
  const namesOf = (pid: number) =>
    ["comm", "cmdline"].map((file) => readFileSync(`/proc/${pid}/${file}`, "utf8").split(/[\0\n]/)[0]);
  await until(() => namesOf(healer)[0] === "cni-heal");
  expect([...workers.map(({ pid }) => namesOf(pid)), namesOf(healer)]).toEqual([
    ...workers.map(() => ["cni-worker", "cni serve: worker"]),
    ["cni-heal", "cni serve: heal"],
  ]);
});

test.each(["", "cni.sock", "cni.sock.control", "dnsname.sock"])(
  "a server ends whose %p is removed, and leaves the place to another",
  async (name) => {
    await using site = newServerSite();
    const server = site.start();
    await server.untilReady();
    const { parts } = site.status();
    const directory = join(site.directory, "run");
    rmSync(join(directory, name), { recursive: true });
    if (name === "") mkdirSync(directory);
    const next = name === "" ? site.start() : undefined;
    await next?.untilReady();
    expect(await server.process.exited).toBe(1);
    expect(server.log()).toContain("was removed or replaced: this server ends, as nobody reaches it there\n");
    expect(parts.filter(({ pid }) => pid !== undefined && isAlive(pid))).toEqual([]);
    if (next) expect(site.status().pid).toBe(next.process.pid);
  },
);

test.each(["SIGINT", "SIGHUP"] as const)("%s ends a server in order, also before it is ready", async (signal) => {
  await using site = newServerSite();
  const server = site.start();
  await until(() => existsSync(`${site.socket}.control`) && site.status() !== null);
  const pids = site.status().workers.map(({ pid }) => pid);
  server.process.kill(signal);
  expect(await server.process.exited).toBe(0);
  expect([existsSync(site.socket), ...pids.map(isAlive)]).toEqual([false, ...pids.map(() => false)]);
});

/** Starts a server whose parent ignores a signal. */
const startIgnoring = (site: ServerSite, signal: string) =>
  site.start({ wrapper: ["env", `--ignore-signal=${signal}`] });

test("a server whose parent ignores the end of children replaces a worker, and ends", async () => {
  await using site = newServerSite();
  const server = startIgnoring(site, "CHLD");
  await server.untilReady();
  const [first] = site.status().workers.map(({ pid }) => pid);
  process.kill(first!, "SIGKILL");
  await until(() => {
    const idle = site.status().workers.filter(({ state }) => state === "idle");
    return idle.length === 2 && idle.every(({ pid }) => pid !== first);
  });
  server.process.kill("SIGTERM");
  expect(await server.process.exited).toBe(0);
});

test("a server whose parent ignores SIGHUP does so too, as under nohup", async () => {
  await using site = newServerSite();
  const server = startIgnoring(site, "HUP");
  await server.untilReady();
  server.process.kill("SIGHUP");
  expect(site.status().pid).toBe(server.process.pid);
  server.process.kill("SIGTERM");
  expect(await server.process.exited).toBe(0);
});

test("SIGTERM ends a server whose parent ignores it", async () => {
  await using site = newServerSite();
  const server = startIgnoring(site, "TERM");
  await server.untilReady();
  server.process.kill("SIGTERM");
  expect(await server.process.exited).toBe(0);
});

/** An IPAM plugin that says when it runs, and ends when the file "go" is there. */
const SLOW_IPAM = `#!/bin/sh
cd "$(dirname "$0")"
>started
while [ ! -e go ]; do sleep 0.01; done
`;

test("an interrupt of the terminal ends a server after the programs that its calls have started", async () => {
  await using site = newServerSite();
  // Leads a process group, as a shell's command does.
  const server = site.start({ wrapper: ["setsid"] });
  await server.untilReady();
  const directory = join(site.directory, "plugins");
  mkdirSync(directory);
  writeFileSync(join(directory, "slow"), SLOW_IPAM, { mode: 0o755 });
  const call = site.startPlugin("bridge", { CNI_COMMAND: "STATUS", CNI_PATH: directory });
  call.stdin.write('{"cniVersion":"1.1.0","name":"web","type":"bridge","ipam":{"type":"slow"}}');
  call.stdin.end();
  await until(() => existsSync(join(directory, "started")));
  process.kill(-server.process.pid, "SIGINT");
  await until(() => !existsSync(site.socket));
  writeFileSync(join(directory, "go"), "");
  expect({ status: await call.exited, stdout: await call.stdout.text(), log: server.log() })
    .toEqual({ status: 0, stdout: "", log: expect.not.stringContaining("ended with") });
  expect(await server.process.exited).toBe(0);
});

test("a server goes on without its lock file", async () => {
  await using site = newServerSite();
  const server = site.start();
  await server.untilReady();
  const [first] = site.status().workers.map(({ pid }) => pid);
  rmSync(`${site.socket}.lock`);
  process.kill(first!, "SIGKILL");
  await until(() => {
    const idle = site.status().workers.filter(({ state }) => state === "idle");
    return idle.length === 2 && idle.every(({ pid }) => pid !== first);
  });
});

const WARM_UP = `
import { warmUp } from "${REPOSITORY_ROOT}/server/warm_up.ts";
process.kill(process.pid, "SIGTERM");
await warmUp("containers", async () => console.log("a call"));
`;

test("a worker that is told to end does not finish its warm-up", () => {
  // Threads of the runtime start before the script.
  const command = ["env", "--block-signal=TERM", process.execPath, "-e", WARM_UP];
  const { signalCode, stdout } = Bun.spawnSync(command, { stderr: "ignore" });
  expect([signalCode, stdout.toString()]).toEqual(["SIGTERM", ""]);
});

test.each([["anew", []], ["with --replace", ["--replace"]]])(
  "a server that is started %s while the other one is being killed takes its place",
  async (_, options) => {
    await using site = newServerSite();
    const killed = site.start();
    await killed.untilReady();
    killed.process.kill("SIGSTOP");
    const server = site.start({ options });
    // It has connected by then, and nobody has accepted that.
    await Bun.sleep(1000);
    expect([server.log(), server.process.exitCode]).toEqual(["", null]);
    killed.process.kill("SIGKILL");
    await server.untilReady();
    expect(await site.callVersion()).toMatchObject(SUCCESS);
  },
);

test("servers that accept at one control socket do not wait for each other", () => {
  const directory = mkdtempSync(join(tmpdir(), "cni-sockets-"));
  const sockets = openSockets(join(directory, "cni.sock"), false, {});
  expect(() => acceptConnection(sockets.control.fd)).toThrow("EAGAIN");
  for (const socket of [sockets.listener, sockets.control]) socket[Symbol.dispose]();
  rmSync(directory, { recursive: true });
});

test("--replace goes on with another binary, and no call of a storm is lost, refused or cold", async () => {
  await using site = newServerSite();
  const first = site.start();
  await first.untilReady();
  let isOver = false;
  let count = 0;
  /** Calls for which an emulated processor had no time within a second: they may be cold. */
  let late = 0;
  const callers = Array.from({ length: 4 }, async () => {
    for (; !isOver; count++) {
      const start = performance.now();
      expect(await site.callVersion()).toMatchObject(SUCCESS);
      if (performance.now() - start >= OFFER_TIMEOUT_MS) late++;
      // The servers that start need the processors too.
      await Bun.sleep(5);
    }
  });
  const newer = join(site.directory, "newer");
  copyFileSync(CNI_PROGRAM, newer);
  const second = site.start({ options: ["--replace"], program: newer });
  await second.untilReady();
  expect(await first.process.exited).toBe(0);
  const third = site.start({ options: ["--replace"], program: newer });
  const fourth = site.start({ options: ["--replace"], program: newer });
  const [winner, loser] = await Promise.any([third, fourth].map(async (server, i, all) => {
    await server.untilReady();
    return [server, all[1 - i]!] as const;
  }));
  isOver = true;
  await Promise.all([...callers, second.process.exited]);
  expect(await loser.process.exited).toBe(1);
  expect(loser.log()).toBe("cni: Cannot replace the server: another server is replacing it\n");
  expect(count).toBeGreaterThan(20);
  const servers = [first, second, winner];
  const served = () => servers.map((server) => server.calls().length).reduce((sum, calls) => sum + calls);
  if (!isEmulated) expect(late).toBe(0);
  await until(() => served() >= count - late);
  expect(served()).toBeLessThanOrEqual(count);
  expect(servers.map((server) => server.log().includes("ended with"))).toEqual([false, false, false]);
  expect(site.status().pid).toBe(winner.process.pid);
  expect(site.status().fellBack.withdrawn).toBeLessThanOrEqual(late);
  for (const { pid } of site.status().workers) expect(readlinkSync(`/proc/${pid}/exe`)).toBe(newer);
});

test("a server that is to be replaced goes on if the other one ends before it is ready", async () => {
  await using site = newServerSite();
  const server = site.start();
  await server.untilReady();
  for (const signal of ["SIGTERM", "SIGKILL"] as const) {
    const other = site.start({ options: ["--replace"] });
    await until(() => other.process.exitCode !== null || childrenOf(other.process.pid) > 0);
    other.process.kill(signal);
    await other.process.exited;
    expect(await site.callVersion()).toMatchObject(SUCCESS);
  }
  await until(() => server.calls().length === 2);
  expect(site.status()).toMatchObject({ pid: server.process.pid, served: 2 });
});

const childrenOf = (pid: number): number =>
  Bun.spawnSync(["pgrep", "-P", `${pid}`]).stdout.toString().split("\n").length - 1;
