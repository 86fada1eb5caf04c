/** A server that the next call starts again ends without work. */
import { expect } from "bun:test";
import { mkdirSync, readdirSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Netns } from "../../ffi/netns/netns.ts";
import { SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import dnsname from "../../plugins/dnsname/plugin.ts";
import firewall from "../../plugins/firewall/plugin.ts";
import type { BridgeNetwork } from "../../testing/bridge_network.ts";
import { dhcpLanTest, dnsmasqMessages } from "../../testing/dhcp.ts";
import { digValues, nameServerTest } from "../../testing/dnsname.ts";
import { until } from "../../testing/netns.ts";
import { newServerSite, type ServerProcess, type ServerSite, type ServerStart } from "../../testing/server_site.ts";
import { newActivatedSocket, WITH_LISTEN_PID } from "../../testing/systemd.ts";

const IDLE_MS = 1000;
const OPTIONS = ["--idle-timeout", `${IDLE_MS / 1000}`];
const END = "No call has come, and no part has work: this server ends, and the next call starts one\n";

/** Starts servers with the sockets of a unit, in a host's namespace. */
function newUnit(site: ServerSite, host: Netns, resources: DisposableStack) {
  mkdirSync(dirname(site.socket), { mode: 0o700 });
  const path = (name: string) => join(dirname(site.socket), name);
  const listener = resources.use(newActivatedSocket(site.socket)).fd;
  const names = resources.use(newActivatedSocket(path("dnsname.sock"))).fd;
  const leases = resources.use(newActivatedSocket(path("dhcp.sock"), SOCK_STREAM)).fd;
  const start = (descriptors: readonly number[] = [listener, names, leases], more: ServerStart = {}): ServerProcess => {
    const env = { LISTEN_FDS: `${descriptors.length}` };
    const all = { wrapper: WITH_LISTEN_PID, env, descriptors, options: OPTIONS, heals: true, ...more };
    return host.run(() => ({ server: site.start(all) })).server;
  };
  return { listener, start, path };
}

/** Whether it is there after it could have ended three times. */
async function stays({ process }: ServerProcess): Promise<boolean> {
  await Bun.sleep(3 * IDLE_MS);
  return process.exitCode === null;
}

const states = (site: ServerSite): Record<string, boolean> =>
  Object.fromEntries(site.status().parts.map(({ name, isIdle }) => [name, isIdle]));

nameServerTest(
  "a server without work ends in order, and stays where nobody would start it again",
  async ({ host }) => {
    using resources = new DisposableStack();
    await using site = newServerSite();
    const { listener, start, path } = newUnit(site, host, resources);
    const first = start();
    await first.untilReady();
    expect(await site.callVersion()).toMatchObject({ exitCode: 0 });
    expect(await first.process.exited).toBe(0);
    expect(first.log()).toEndWith(END);
    expect(readdirSync(dirname(site.socket)).filter((name) => /\.sock/.test(name)).sort()).toEqual([
      ...["cni.sock", "cni.sock.lock", "dhcp.sock", "dnsname.sock"],
    ]);

    const second = start();
    await second.untilReady();
    const waiting = site.startWaitingCall();
    await until(() => site.busyWorkers().length === 1);
    expect(await stays(second)).toBe(true);
    await waiting.finish();
    expect(await second.process.exited).toBe(0);

    const stay = async (descriptors: readonly number[] | undefined, more: ServerStart) => {
      const server = start(descriptors, more);
      await server.untilReady();
      expect(await stays(server)).toBe(true);
      server.process.kill("SIGTERM");
      expect(await server.process.exited).toBe(0);
    };
    await stay(undefined, { options: [...OPTIONS, "--metrics", `unix:${site.directory}/metrics.sock`] });
    await stay(undefined, { options: [...OPTIONS, "--heal", "links"] });
    await stay(undefined, { options: ["--idle-timeout", "0"] });
    // Nobody would listen for its parts then.
    for (const name of ["dnsname.sock", "dhcp.sock"]) rmSync(path(name));
    await stay([listener], {});

    // By a call that found no server, not by systemd.
    rmSync(site.socket);
    const last = start([], { options: [...OPTIONS, "--on-demand"], wrapper: [] });
    await last.untilReady();
    expect(site.status().isOnDemand).toBe(true);
    expect(await last.process.exited).toBe(0);
    expect(last.log()).toEndWith(END);
  },
  [],
  120_000,
);

/** What a part has to do after an ADD, and how it sees that. */
const WORK: Readonly<Record<string, (network: BridgeNetwork, site: ServerSite) => (verb: "ADD" | "DEL") => void>> = {
  dnsname(network, site) {
    const directory = dirname(site.socket);
    const config = { dataDir: join(directory, "dnsname"), daemonSocketPath: join(directory, "dnsname.sock") };
    const container = network.container(2);
    return (verb) => void network.call(dnsname, verb, config, { container, containerId: "pod" });
  },
  heal(network) {
    const container = network.container(2);
    return (verb) => void network.call(firewall, verb, {}, { container, containerId: "pod" });
  },
};

for (const [part, newWork] of Object.entries(WORK)) {
  nameServerTest(
    `as long as ${part} has work, the server stays, also after calls that it does not see`,
    async (network) => {
      using resources = new DisposableStack();
      await using site = newServerSite();
      const { start } = newUnit(site, network.host, resources);
      const call = newWork(network, site);
      const server = start();
      await server.untilReady();
      call("ADD");
      await until(() => states(site)[part] === false);
      expect(await stays(server)).toBe(true);
      expect(network.log).toEqual([]);
      const { pid } = site.status().parts.find(({ name }) => name === part)!;
      // Only a part that says so has no work.
      process.kill(pid!, "SIGTERM");
      await until(() => ![undefined, pid].includes(site.status().parts.find(({ name }) => name === part)?.pid));
      expect(await stays(server)).toBe(true);
      if (part === "dnsname") expect(digValues(network.container(3).netns, "@10.88.0.1", "pod")).toEqual(["10.88.0.2"]);
      call("DEL");
      expect(await server.process.exited).toBe(0);
      expect(server.log()).toEndWith(END);
    },
    [],
    120_000,
  );
}

dhcpLanTest("as long as dhcp has a lease, the server stays", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  using resources = new DisposableStack();
  await using site = newServerSite();
  const { start, path } = newUnit(site, lan.host, resources);
  const server = start();
  const config = { ...lan.config, ipam: { type: "dhcp", daemonSocketPath: path("dhcp.sock") } };
  // The question waits until the server has started.
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", config) };
  await server.untilReady();
  expect(await stays(server)).toBe(true);
  expect(states(site)).toEqual({ dhcp: false, dnsname: false, heal: true });
  lan.call("bridge", "DEL", { ...config, prevResult });
  expect(await server.process.exited).toBe(0);
  await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.10"));
});
