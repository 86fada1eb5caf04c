/** Leases outlive the server of leases: what the next one knows, and what it does about it. */
import { expect } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { SOCK_STREAM } from "../../../ffi/sys/uapi.ts";
import { listenAt } from "../../../ffi/sys/unix_socket.ts";
import { type DhcpLan, dhcpLanTest, dnsmasqMessages } from "../../../testing/dhcp.ts";
import { until } from "../../../testing/netns.ts";
import { errorOfCall } from "../../../testing/plugin_call.ts";

const lanTest = (name: string, body: (lan: DhcpLan) => Promise<void>) => dhcpLanTest(name, body);

const stateDirectory = ({ directory }: DhcpLan): string => join(directory, "dhcp");

const leaseFiles = (lan: DhcpLan): string[] =>
  readdirSync(stateDirectory(lan)).filter((name) => name.endsWith(".json")).map((name) =>
    join(stateDirectory(lan), name)
  );

/** Changes the file of the only lease. */
function changeLease(lan: DhcpLan, change: (record: Record<string, unknown>) => object): void {
  const [path = ""] = leaseFiles(lan);
  writeFileSync(path, JSON.stringify(change(JSON.parse(readFileSync(path, "utf8")))));
}

for (const signal of ["SIGTERM", "SIGKILL"] as const) {
  lanTest(`after ${signal}, the next server knows the lease without a question to anybody`, async (lan) => {
    const dnsmasq = await lan.startDnsmasq();
    const server = await lan.startLeaseServer();
    const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", lan.config) };
    const messages = dnsmasqMessages(dnsmasq);
    await server.stop(signal);
    expect(server.process.exitCode).toBe(signal === "SIGTERM" ? 0 : null);
    expect(errorOfCall(() => lan.call("bridge", "STATUS", lan.config)).code).toBe(50);
    expect(errorOfCall(() => lan.call("bridge", "CHECK", { ...lan.config, prevResult })).message)
      .toBe(`Check failed: no server of DHCP leases listens on "${lan.socket}"`);
    const next = await lan.startLeaseServer();
    lan.call("bridge", "CHECK", { ...lan.config, prevResult });
    expect(next.log()).toBe(`Listening on "${lan.socket}"\n`);
    expect(dnsmasqMessages(dnsmasq)).toEqual(messages);
    lan.call("bridge", "DEL", { ...lan.config, prevResult });
    await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.10"));
  });
}

lanTest("the end of its lifetime pipe ends the server, and leaves the leases", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  const listener = listenAt(lan.socket, SOCK_STREAM);
  const script = `
    const { serveDhcp } = await import(${JSON.stringify(join(import.meta.dir, "serve.ts"))});
    const counts = {};
    serveDhcp({
      listener: 3,
      lifetime: 0,
      stateDirectory: ${JSON.stringify(stateDirectory(lan))},
      log() {},
      countMessage: (type) => counts[type] = (counts[type] ?? 0) + 1,
    });
    console.log(JSON.stringify(counts));`;
  const server = lan.host.run(() =>
    Bun.spawn([process.execPath, "-e", script], { stdio: ["pipe", "pipe", "inherit", listener.fd] })
  );
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", lan.config) };
  server.stdin.end();
  // On a busy machine, some are sent twice.
  expect(Object.keys(await new Response(server.stdout).json())).toEqual(["discover", "offer", "request", "ack"]);
  expect(await server.exited).toBe(0);
  expect(leaseFiles(lan)).toHaveLength(1);
  listener[Symbol.dispose]();
  await lan.startLeaseServer();
  lan.call("bridge", "DEL", { ...lan.config, prevResult });
  await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.10"));
});

lanTest("a lease that was due meanwhile is renewed by unicast at once", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  lan.call("bridge", "ADD", lan.config);
  await server.stop();
  const { length } = dnsmasqMessages(dnsmasq);
  // T1 is 60 s, T2 105 s.
  changeLease(lan, (record) => ({ ...record, requestedAt: Math.max(0, Number(record.requestedAt) - 70_000) }));
  const next = await lan.startLeaseServer();
  await until(() => next.log().includes("10.7.0.10 is renewed for 120 s"));
  expect([...new Set(dnsmasqMessages(dnsmasq).slice(length))]).toEqual([
    "DHCPREQUEST 10.7.0.10",
    "DHCPACK 10.7.0.10",
  ]);
});

lanTest("a DEL without a server is made up for by the next one", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", lan.config) };
  await server.stop("SIGKILL");
  lan.call("bridge", "DEL", { ...lan.config, prevResult });
  expect(lan.log.at(-1)).toContain("the next server does");
  await lan.startLeaseServer();
  await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.10"));
  await until(() => leaseFiles(lan).length === 0);
});

lanTest("an ADD that was cut short between REQUEST and ACK leaves no address with the server", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  lan.call("bridge", "ADD", lan.config);
  await server.stop("SIGKILL");
  changeLease(lan, (record) => ({ ...record, state: "requesting" }));
  await lan.startLeaseServer();
  await until(() => dnsmasqMessages(dnsmasq).includes("DHCPRELEASE 10.7.0.10"));
  await until(() => leaseFiles(lan).length === 0);
});

lanTest("a broken file of a lease is named, kept, and no obstacle", async (lan) => {
  await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  lan.call("bridge", "ADD", lan.config);
  await server.stop();
  changeLease(lan, () => ({ version: 1 }));
  const next = await lan.startLeaseServer();
  await until(() => next.log().includes(`Cannot use "${leaseFiles(lan)[0]}"`));
  lan.call("bridge", "DEL", lan.config);
  lan.call("bridge", "ADD", lan.config);
});

lanTest("a file of a bound lease without its subnet is named, and CHECK finds no lease", async (lan) => {
  await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", lan.config) };
  await server.stop();
  changeLease(lan, ({ terms, ...record }) => ({ ...record, terms: { ...terms as object, cidr: undefined } }));
  const next = await lan.startLeaseServer();
  await until(() => next.log().includes("terms.cidr"));
  expect(errorOfCall(() => lan.call("bridge", "CHECK", { ...lan.config, prevResult })).message)
    .toBe("error calling DHCP.Allocate: c1/lan/eth0 has no lease");
});

lanTest("an ADD that the server's end interrupts is carried out by the next server", async (lan) => {
  // Nobody answers yet.
  const first = await lan.startLeaseServer();
  const script = `
    const { askDhcpServer } = await import(${JSON.stringify(join(import.meta.dir, "../client.ts"))});
    const { currentNetns } = await import(${JSON.stringify(join(import.meta.dir, "../../../ffi/netns/netns.ts"))});
    const [host, socket] = [currentNetns(), ${JSON.stringify(lan.socket)}];
    const settings = JSON.parse(process.argv[1]);
    console.log(JSON.stringify(askDhcpServer(host, socket, { command: "add", settings })));`;
  lan.host.run(() =>
    Bun.spawnSync(["sh", "-ec", `ip link add v0 master br0 up type veth peer name eth0 netns ${lan.container.path}`])
  );
  lan.container.run(() => Bun.spawnSync(["ip", "link", "set", "eth0", "up"]));
  const settings = {
    network: "lan",
    containerId: "c1",
    ifname: "eth0",
    netns: lan.container.path,
    netnsRecord: { identity: lan.container.identity, cookie: lan.container.cookie },
    clientId: "0063",
    provided: [],
    requested: [1, 3],
    priority: 0,
  };
  const client = Bun.spawn([process.execPath, "-e", script, JSON.stringify(settings)], { stderr: "inherit" });
  await until(() => first.log().includes("asks for an address"));
  await first.stop();
  await lan.startDnsmasq();
  await lan.startLeaseServer();
  expect(JSON.parse(await new Response(client.stdout).text()).lease.address).toBe("10.7.0.10/24");
});
