/** Leases of dnsmasq on a bridge, by the server as a process of its own. */
import { expect } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../../ffi/netns/netns.ts";
import { fullProgramLink } from "../../testing/binary.ts";
import { type DhcpLan, dhcpLanTest, dnsmasqMessages } from "../../testing/dhcp.ts";
import { findShownLink, shownAddresses } from "../../testing/fixture_configs.ts";
import { ipShow, ping, runIp, runShellInNetns, until } from "../../testing/netns.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import { awaitReadable } from "../../ffi/sys/poll.ts";
import { receiveAvailable } from "../../ffi/sys/stream_socket.ts";
import { SOCK_STREAM } from "../../ffi/sys/uapi.ts";
import { acceptConnection, listenAt } from "../../ffi/sys/unix_socket.ts";
import { askDhcpServer } from "./client.ts";
import { dryRun } from "../../inspect/effects/dry_run.ts";

const lanTest = (name: string, body: (lan: DhcpLan) => void | Promise<void>) => dhcpLanTest(name, body);

/** The files of leases. */
const leaseFiles = ({ directory }: DhcpLan): string[] =>
  readdirSync(join(directory, "dhcp")).filter((name) => name.endsWith(".json"));

const DISCOVERY = ["DHCPDISCOVER", "DHCPOFFER 10.7.0.10", "DHCPREQUEST 10.7.0.10", "DHCPACK 10.7.0.10"];

lanTest(
  "ADD gives what the server says; CHECK finds the lease; DEL releases it while the link is there",
  async (lan) => {
    const dnsmasq = await lan.startDnsmasq(
      ...["--domain=example.org", "--dhcp-option=6,10.7.0.53", "--dhcp-option=119,a.example.org,b.example.org"],
      ...["--dhcp-option=26,1400", "--dhcp-option=121,10.9.0.0/16,10.7.0.2,0.0.0.0/0,10.7.0.1"],
    );
    await lan.startLeaseServer();
    const result = lan.call("bridge", "ADD", lan.config);
    expect(result).toMatchObject({
      ips: [{ address: "10.7.0.10/24", gateway: "10.7.0.1" }],
      routes: [{ dst: "10.9.0.0/16", gw: "10.7.0.2", mtu: 1400 }, { dst: "0.0.0.0/0", gw: "10.7.0.1", mtu: 1400 }],
      dns: { nameservers: ["10.7.0.53"], domain: "example.org", search: ["a.example.org", "b.example.org"] },
    } as object);
    expect(shownAddresses(findShownLink(lan.container))).toEqual(["10.7.0.10"]);
    ping(lan.container, "10.7.0.1");
    const prevResult = { cniVersion: "1.1.0", ...result };
    lan.call("bridge", "CHECK", { ...lan.config, prevResult });
    lan.call("bridge", "DEL", { ...lan.config, prevResult });
    await until(() => dnsmasq.log().includes("DHCPRELEASE"));
    // On a busy machine, some are sent twice.
    expect([...new Set(dnsmasqMessages(dnsmasq))]).toEqual([...DISCOVERY, "DHCPRELEASE 10.7.0.10"]);
    expect(leaseFiles(lan)).toEqual([]);
    expect(errorOfCall(() => lan.call("dhcp", "CHECK", { ...lan.config, prevResult })).message)
      .toBe("error calling DHCP.Allocate: c1/lan/eth0 has no lease");
    for (let i = 0; i < 2; i++) lan.call("bridge", "DEL", { ...lan.config, prevResult });
  },
);

lanTest("an interface without a way from the host is released before DEL or GC takes it away", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  await lan.startLeaseServer();
  // The host has no link to the network but this one.
  runShellInNetns(lan.host, "ip link del br0", "ip link set up0 name dev0");
  const config = { ...lan.config, device: "dev0", dataDir: lan.directory };
  const releases = () => dnsmasqMessages(dnsmasq).filter((message) => message.startsWith("DHCPRELEASE")).length;
  const result = lan.call("host-device", "ADD", config);
  lan.call("host-device", "DEL", { ...config, prevResult: { cniVersion: "1.1.0", ...result } });
  await until(() => releases() === 1);
  lan.call("host-device", "ADD", config);
  lan.call("host-device", "GC", { ...config, "cni.dev/valid-attachments": [] });
  await until(() => releases() === 2);
});

lanTest("without a container, the lease is released by the host's bridge", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  const netns = createNetns();
  lan.call("bridge", "ADD", lan.config, { netns });
  netns[Symbol.dispose]();
  await until(() => dnsmasq.log().includes("DHCPRELEASE"));
  expect(server.log()).toContain("the lease ends");
  await until(() => leaseFiles(lan).length === 0);
  lan.call("bridge", "DEL", lan.config, { netns: null });
});

lanTest("options go to the server as configured, and those of CNI_ARGS", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  await lan.startLeaseServer();
  const provide = [
    { option: "host-name", value: "unused", fromArg: "K8S_POD_NAME" },
    { option: "vendor-class-identifier", value: "cni" },
    { option: "77", value: "class" },
  ];
  const config = { ...lan.config, ipam: { ...lan.config.ipam, provide, request: [{ option: "15" }], priority: 50 } };
  const result = lan.call("bridge", "ADD", config, { env: { CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAME=web-0" } });
  expect(result.routes).toEqual([{ dst: "0.0.0.0/0", gw: "10.7.0.1", priority: 50 }] as never);
  const log = dnsmasq.log();
  expect(log).toContain("client provides name: web-0");
  expect(log).toContain("vendor class: cni");
  expect(log).toMatch(/user class: (class|lass)/);
  expect(log).toMatch(/requested options: 15:domain-name, 3:router, 1:netmask\n/);
});

lanTest("request with skipDefault leaves out what is asked for as well otherwise", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  await lan.startLeaseServer();
  const request = [{ option: "6" }, { option: "subnet-mask" }, { skipDefault: true }];
  const result = lan.call("bridge", "ADD", { ...lan.config, ipam: { ...lan.config.ipam, request } });
  expect([result.routes, result.ips?.[0]?.gateway]).toEqual([undefined, undefined]);
  expect(dnsmasq.log()).toMatch(/requested options: 6:dns-server, 1:netmask\n/);
});

lanTest("the client id is the reference plugin's, and the configuration may replace it", async (lan) => {
  await lan.startDnsmasq();
  await lan.startLeaseServer();
  const clientIds = () =>
    runShellInNetns(lan.host, `cat ${lan.directory}/dnsmasq.leases`).trim().split("\n").map((line) =>
      Buffer.from(line.split(" ")[4]!.replaceAll(":", ""), "hex").toString()
    );
  lan.call("bridge", "ADD", lan.config);
  expect(clientIds()).toEqual(["\0c1/lan/eth0"]);
  const provide = [{ option: "dhcp-client-identifier", value: "mine" }];
  lan.call("bridge", "ADD", { ...lan.config, ipam: { ...lan.config.ipam, provide } }, { ifname: "eth1" });
  expect(clientIds().sort()).toEqual(["\0c1/lan/eth0", "mine"]);
  // The reference plugin's release names another client.
  lan.call("bridge", "DEL", lan.config, { ifname: "eth1" });
  await until(() => clientIds().length === 1);
});

lanTest("a pool that is exhausted is code 11, in the reference plugin's words, and DEL succeeds", async (lan) => {
  await lan.startDnsmasq("--dhcp-range=10.7.0.10,10.7.0.10,255.255.255.0,2m");
  await lan.startLeaseServer("-timeout", "200ms", "-resendmax=300ms", "--resendtimeout", "600ms");
  lan.call("bridge", "ADD", lan.config);
  const { code, message, details } = errorOfCall(() => lan.call("bridge", "ADD", lan.config, { ifname: "eth1" }));
  expect([code, message]).toEqual([11, "error calling DHCP.Allocate: no more tries"]);
  expect(details).toContain("its pool is exhausted");
  expect(leaseFiles(lan)).toHaveLength(1);
  lan.call("bridge", "DEL", lan.config, { ifname: "eth1" });
});

lanTest("an address that another host uses is declined, and another is leased", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  const server = await lan.startLeaseServer();
  runIp(lan.host, "addr add 10.7.0.10/24 dev br0");
  const result = lan.call("bridge", "ADD", lan.config);
  expect(result.ips).toMatchObject([{ address: "10.7.0.11/24" }] as object[]);
  expect(dnsmasqMessages(dnsmasq)).toContain("DHCPDECLINE 10.7.0.10");
  expect(server.log()).toContain("10.7.0.10 is in use by ");
});

lanTest(
  "without a server at daemonSocketPath, STATUS is code 50, ADD code 11; DEL and GC succeed and say so",
  async (lan) => {
    const failureOf = (verb: "STATUS" | "ADD") => errorOfCall(() => lan.call("bridge", verb, lan.config));
    const message = `no server of DHCP leases listens on "${lan.socket}"`;
    const details = 'start "cni serve" or "dhcp daemon"';
    expect(failureOf("STATUS")).toMatchObject({ code: 50, message, details });
    expect(failureOf("ADD")).toMatchObject({ code: 11, message: `error calling DHCP.Allocate: ${message}`, details });
    lan.call("bridge", "DEL", lan.config);
    // There is nothing to release.
    expect(lan.log).toEqual([]);
    lan.call("bridge", "GC", { ...lan.config, "cni.dev/valid-attachments": [] });
    expect(lan.log.at(-1)).toContain("Cannot release the leases of stale attachments now");
    await lan.startLeaseServer();
    lan.call("bridge", "STATUS", lan.config);
    // The failed ADD left nothing.
    expect(ipShow(lan.host, "link", "show").map(({ ifname }) => ifname).filter((name) => name.startsWith("veth")))
      .toEqual([]);
  },
);

lanTest("GC releases what is not on its list", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  await lan.startLeaseServer();
  for (const ifname of ["eth0", "eth1"]) lan.call("bridge", "ADD", lan.config, { ifname });
  const valid = [{ containerID: "c1", ifname: "eth1" }];
  lan.call("bridge", "GC", { ...lan.config, name: "other", "cni.dev/valid-attachments": [] });
  lan.call("bridge", "GC", { ...lan.config, "cni.dev/valid-attachments": valid });
  await until(() => dnsmasq.log().includes("DHCPRELEASE"));
  expect(dnsmasqMessages(dnsmasq).filter((line) => line.startsWith("DHCPREL"))).toEqual(["DHCPRELEASE 10.7.0.10"]);
  expect(leaseFiles(lan)).toHaveLength(1);
});

lanTest("GC keeps the leases of thousands of attachments", async (lan) => {
  await lan.startDnsmasq();
  await lan.startLeaseServer();
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", lan.config) };
  const others = Array.from({ length: 5000 }, (_, i) => ({ containerID: `c${i}`.padEnd(64, "0"), ifname: "eth0" }));
  const valid = [...others, { containerID: "c1", ifname: "eth0" }];
  lan.call("bridge", "GC", { ...lan.config, "cni.dev/valid-attachments": valid });
  expect(lan.log).toEqual([]);
  lan.call("bridge", "CHECK", { ...lan.config, prevResult });
});

lanTest("a dry run names addresses that the server would release, which it keeps", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  await lan.startLeaseServer();
  const told = (verb: "ADD" | "DEL" | "GC", config: object) => {
    const { effects, failure } = lan.host.run(() => dryRun(() => lan.call("dhcp", verb, { ...lan.config, ...config })));
    const sentences = effects.flatMap(({ kind, sentence }) => kind === "program" ? [sentence] : []);
    return { sentences, failure };
  };
  // Nobody listens there.
  expect(told("DEL", { ipam: { ...lan.config.ipam, daemonSocketPath: `${lan.directory}/none` } }))
    .toEqual({ sentences: [], failure: undefined });
  expect(told("DEL", {})).toEqual({ sentences: [], failure: undefined });
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", lan.config) };
  const expected = { sentences: ["have the server release 10.7.0.10 of c1"], failure: undefined };
  expect(told("DEL", { prevResult })).toEqual(expected);
  expect(told("GC", { "cni.dev/valid-attachments": [] })).toEqual(expected);
  const add = told("ADD", {});
  expect(add.sentences).toEqual(["have the server lease an address for c1/lan/eth0"]);
  expect(String(add.failure)).toContain(`the server at "${lan.socket}" would answer: a dry run does not ask it`);
  lan.call("bridge", "CHECK", { ...lan.config, prevResult });
  expect([...new Set(dnsmasqMessages(dnsmasq))]).toEqual(DISCOVERY);
});

lanTest("after one silent answer, no verb of the same command waits for the server", (lan) => {
  // It takes connections, and does no more.
  using _listener = listenAt(lan.socket, SOCK_STREAM);
  const ask = () => askDhcpServer(lan.host, lan.socket, { command: "status" }, 70);
  expect(ask).toThrow("does not answer");
  // Each would wait longer than the test may last.
  for (let i = 0; i < 10; i++) {
    lan.call("dhcp", "GC", { ...lan.config, "cni.dev/valid-attachments": [] });
    lan.call("dhcp", "DEL", lan.config);
    const check = () => lan.call("dhcp", "CHECK", { ...lan.config, prevResult: { cniVersion: "1.1.0" } });
    expect(errorOfCall(check).message).toContain("the server of DHCP leases does not answer");
  }
  expect(lan.log[0]).toContain("does not answer; the next server does");
  expect(errorOfCall(() => lan.call("bridge", "STATUS", lan.config)))
    .toMatchObject({ code: 50, message: "the server of DHCP leases does not answer" });
  expect(errorOfCall(() => lan.call("bridge", "ADD", lan.config))).toMatchObject({
    code: 11,
    message: "error calling DHCP.Allocate: the server of DHCP leases does not answer",
  });
});

lanTest("an ADD at a server that hangs asks after two seconds whether it works, and waits two more", (lan) => {
  const connections = listenAt(lan.socket, SOCK_STREAM);
  using _listener = connections;
  const start = performance.now();
  const { code, message } = errorOfCall(() => lan.call("bridge", "ADD", lan.config));
  expect([code, message]).toEqual([11, "error calling DHCP.Allocate: the server of DHCP leases does not answer"]);
  // A busy machine adds to that.
  expect(performance.now() - start).toBeLessThan(20_000);
  // The ADD, whether the server works, and the end of what the ADD began.
  const requests: string[] = [];
  while (awaitReadable(connections.fd, 0)) {
    using connection = acceptConnection(connections.fd);
    requests.push(JSON.parse(new TextDecoder().decode(receiveAvailable(connection.fd))).command);
  }
  expect(requests.slice(0, 3)).toEqual(["add", "status", "del"]);
});

lanTest("the server finds a namespace that was given as a descriptor after the end of the plugin", async (lan) => {
  await lan.startDnsmasq();
  runShellInNetns(lan.host, `ip link add v0 master br0 up type veth peer name eth0 netns ${lan.container.path}`);
  // In mounts of its own, a directory has the namespace.
  const script = `
    cd ${lan.directory}; : >netns; mount --bind ${lan.container.path} netns
    ${fullProgramLink("dhcp")} daemon -socketpath ${lan.socket} 2>server.log & trap "kill $!" EXIT
    until grep -q Listening server.log; do sleep 0.02; done
    export CNI_COMMAND=ADD CNI_CONTAINERID=c1 CNI_IFNAME=eth0 CNI_PATH=/nonexistent
    CNI_NETNS=/proc/self/fd/9 ${fullProgramLink("dhcp")} 9<netns`;
  const { exitCode } = lan.host.run(() =>
    Bun.spawnSync(["unshare", "--mount", "sh", "-ec", script], {
      env: { PATH: process.env.PATH },
      stdin: Buffer.from(JSON.stringify({ cniVersion: "1.1.0", type: "dhcp", ...lan.config })),
    })
  );
  expect(exitCode).toBe(0);
  const [name = ""] = leaseFiles(lan);
  const { settings } = JSON.parse(readFileSync(join(lan.directory, "dhcp", name), "utf8"));
  expect(settings.netns).toBe(join(lan.directory, "netns"));
});

lanTest("a server that ends at each request gets it five times", async (lan) => {
  const script = `
    let connections = 0;
    const socket = { data() {}, open: (client) => (console.log(++connections), client.end()) };
    Bun.listen({ unix: process.argv[1], socket });
    console.log("ready");`;
  const server = Bun.spawn([process.execPath, "-e", script, lan.socket], { stdout: "pipe" });
  using _ = { [Symbol.dispose]: () => server.kill("SIGKILL") };
  const output = server.stdout[Symbol.asyncIterator]();
  await output.next();
  const message = "the server of DHCP leases ends when it gets the request";
  expect(errorOfCall(() => askDhcpServer(lan.host, lan.socket, { command: "add" }))).toMatchObject({
    code: 11,
    message,
  });
  expect(errorOfCall(() => askDhcpServer(lan.host, lan.socket, { command: "status" }))).toMatchObject({ message });
  server.kill("SIGKILL");
  const { value } = await output.next();
  expect(new TextDecoder().decode(value)).toMatch(/^10$/m);
});
