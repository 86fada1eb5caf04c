/** A server that runs and takes no requests costs a call two seconds, and gets them later. */
import { expect } from "bun:test";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../../scripts/src/repository.ts";
import { ENGINE_ENV, type FinishedProcess, runPlugin } from "../../testing/binary.ts";
import type { BridgeContainer, BridgeNetwork } from "../../testing/bridge_network.ts";
import { digValues, nameServerTest, type NameSite, newNameSite, startNameServer } from "../../testing/dnsname.ts";
import { until } from "../../testing/netns.ts";
import { askNameServer } from "./client.ts";
import tested from "./plugin.ts";

/** Two seconds, and a start on a machine with much to do. */
const PATIENCE_MS = 8000;

interface Attempt {
  readonly verb: string;
  readonly site: NameSite;
  readonly container: BridgeContainer;
  readonly containerId: string;
}

/** Calls the plugin in a process of its own, which knows nothing of earlier silence. */
function call({ host }: BridgeNetwork, { verb, site, container, containerId }: Attempt): FinishedProcess {
  const environment = { CNI_COMMAND: verb, CNI_CONTAINERID: containerId, CNI_NETNS: container.netns.path };
  const prevResult = { cniVersion: "1.1.0", ...container.result };
  const config = { cniVersion: "1.1.0", name: "web", type: "dnsname", ...site.config, prevResult };
  const start = performance.now();
  const finished = host.run(() =>
    runPlugin("dnsname", {
      env: { ...ENGINE_ENV, ...environment },
      stdin: JSON.stringify(config),
      inOwnProcess: true,
    })
  );
  expect(performance.now() - start).toBeLessThan(PATIENCE_MS);
  return finished;
}

/** In hundredths of a second. */
function processorTime(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

const limitDescriptors = (pid: number, soft: string): void =>
  expect(Bun.spawnSync(["prlimit", `--pid=${pid}`, `--nofile=${soft}:`]).exitCode).toBe(0);

const SILENCES = {
  "is stopped": {
    begin: (pid: number) => process.kill(pid, "SIGSTOP"),
    end: (pid: number) => process.kill(pid, "SIGCONT"),
  },
  "has no free descriptor": {
    begin: (pid: number) => limitDescriptors(pid, "5"),
    end: (pid: number) => limitDescriptors(pid, "1024"),
  },
};

for (const [state, { begin, end }] of Object.entries(SILENCES)) {
  nameServerTest(`ADD fails soon, and DEL succeeds, at a server that ${state}`, async (network) => {
    using site = newNameSite();
    using server = startNameServer(network.host, site.paths);
    const [one, two] = [network.container(2), network.container(3)];
    network.call(tested, "ADD", site.config, { container: one, containerId: "one" });
    network.call(tested, "ADD", site.config, { container: two, containerId: "two" });
    begin(server.pid);
    const before = processorTime(server.pid);
    const silent = `The server at "${site.paths.socket}" gives no answer: for 2 s`;
    const added = call(network, { verb: "ADD", site, container: one, containerId: "late" });
    expect(added.exitCode).not.toBe(0);
    expect(JSON.parse(added.stdout)).toMatchObject({ code: 11, msg: silent });
    const deleted = call(network, { verb: "DEL", site, container: one, containerId: "one" });
    expect(deleted).toMatchObject({ exitCode: 0, stdout: "" });
    expect(deleted.stderr).toContain(silent);
    // It does not ask again and again for what it cannot have.
    expect(processorTime(server.pid) - before).toBeLessThan(100);
    end(server.pid);
    await until(() => digValues(two.netns, "@10.88.0.1", "one").length === 0);
    expect(digValues(two.netns, "@10.88.0.1", "two")).toEqual(["10.88.0.3"]);
  }, ["prlimit"]);
}

const MODULES = ["ffi/sys/lock.ts", "ffi/sys/unix_socket.ts"].map((path) =>
  JSON.stringify(join(REPOSITORY_ROOT, path))
);
const REPLY = '{"version":1,"problems":[]}';

/** A server that answers the first question after three seconds, and does this meanwhile. */
async function startSlowServer({ paths }: NameSite, meanwhile: string): Promise<Disposable> {
  mkdirSync(paths.state);
  const script = `const { lockFile } = await import(${MODULES[0]});
    const { acceptConnection, listenAt, receivePacket, sendPacket } = await import(${MODULES[1]});
    const lock = lockFile(${JSON.stringify(join(paths.state, "lock"))}, { timeoutMs: 0 });
    const { fd: listener } = listenAt(${JSON.stringify(paths.socket)});
    console.log("ready");
    const { fd } = acceptConnection(listener);
    // With a question that nobody has read, the end of this process would reset the connection before its answer is read.
    receivePacket(fd, new Uint8Array(1000));
    ${meanwhile};
    sendPacket(fd, new TextEncoder().encode('${REPLY}'));`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdin: "ignore", stdout: "pipe", stderr: "ignore" });
  await child.stdout.getReader().read();
  return { [Symbol.dispose]: () => child.kill("SIGKILL") };
}

const MEANWHILE = {
  works: "for (const end = performance.now() + 3000; performance.now() < end;);",
  sleeps: "Bun.sleepSync(3000)",
};

nameServerTest("a server that works has more time than one that sleeps", async ({ host }) => {
  const ask = async (meanwhile: string): Promise<unknown> => {
    using site = newNameSite();
    using _server = await startSlowServer(site, meanwhile);
    return askNameServer(host, { daemonSocketPath: site.paths.socket, dataDir: site.paths.state }, { command: "look" });
  };
  expect(await ask(MEANWHILE.works)).toEqual(JSON.parse(REPLY));
  await expect(ask(MEANWHILE.sleeps)).rejects.toThrow("gives no answer: for 2 s");
});
