import { expect } from "bun:test";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { BridgeContainer, BridgeNetwork } from "../../testing/bridge_network.ts";
import {
  dig,
  digValues,
  nameServerTest,
  type NameSite,
  newNameSite,
  servedNamesTest,
  startNameServer,
  untilLogged,
} from "../../testing/dnsname.ts";
import { runIp, runShellInNetns } from "../../testing/netns.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import { serveTcp, serveUdp } from "../../testing/traffic.ts";
import { SYS_getdents64 } from "../../ffi/sys/directory.ts";
import { interceptSystemCalls } from "../../ffi/sys/intercept.ts";
import { listenAt } from "../../ffi/sys/unix_socket.ts";
import { askNameServer } from "./client.ts";
import tested from "./plugin.ts";

/** `bun`, or `bun.exe`, as it was started. */
const OWN_NAME = readFileSync("/proc/self/comm", "utf8").trimEnd();

const DOMAIN = "dns.test";

/** ADD of a container with this id. */
function attach(
  network: BridgeNetwork,
  container: BridgeContainer,
  { config }: NameSite,
  containerId: string,
  more: object = {},
  podName = "",
): unknown {
  const parameters = { container, containerId, env: { CNI_ARGS: `K8S_POD_NAME=${podName}` } };
  return network.call(tested, "ADD", { ...config, ...more }, parameters);
}

const recordsOf = ({ paths }: NameSite): string[] =>
  readdirSync(paths.state).filter((name) => !["lock", "rules.lock"].includes(name));

const detach = (network: BridgeNetwork, container: BridgeContainer, { config }: NameSite, name: string) =>
  network.call(tested, "DEL", config, { container, containerId: name });

servedNamesTest("containers resolve each other by name, alias and id, forward and reverse", (network, site) => {
  const [one, two] = [network.container(2), network.container(3)];
  const aliases = { runtimeConfig: { aliases: { web: ["db", "Cache"], other: ["no"] } } };
  expect(attach(network, one, site, "one", aliases, "Pod")).toMatchObject({
    dns: { nameservers: ["10.88.0.1", "fd88::1"], search: [DOMAIN] },
  });
  attach(network, two, site, "two", { runtimeConfig: { aliases: ["db"] } });
  for (const server of ["@10.88.0.1", "@fd88::1"]) {
    for (const name of ["one", "pod", "cache", "CACHE", `one.${DOMAIN}`, `Cache.${DOMAIN.toUpperCase()}.`]) {
      expect([name, digValues(two.netns, server, name), digValues(two.netns, server, "+tcp", name, "AAAA")])
        .toEqual([name, ["10.88.0.2"], ["fd88::2"]]);
    }
    expect(digValues(two.netns, server, "db")).toEqual(["10.88.0.2", "10.88.0.3"]);
    expect(digValues(two.netns, server, "-x", "10.88.0.2")).toEqual([`Pod.${DOMAIN}.`]);
    expect(digValues(one.netns, server, "-x", "10.88.0.3")).toEqual([`db.${DOMAIN}.`]);
    expect(digValues(one.netns, server, "-x", "fd88::3")).toEqual([`db.${DOMAIN}.`]);
  }
  expect(dig(one.netns, "@10.88.0.1", `no.${DOMAIN}`)?.status).toBe("NXDOMAIN");
  expect(dig(one.netns, "@10.88.0.1", "-x", "10.88.0.77")?.status).toBe("NXDOMAIN");
  const env = { CNI_ARGS: "K8S_POD_NAME=Pod" };
  network.call(tested, "CHECK", { ...site.config, ...aliases }, { container: one, containerId: "one", env });

  detach(network, one, site, "one");
  expect(dig(two.netns, "@10.88.0.1", `one.${DOMAIN}`)?.status).toBe("NXDOMAIN");
  expect(digValues(two.netns, "@10.88.0.1", "db")).toEqual(["10.88.0.3"]);
  detach(network, two, site, "two");
  expect(recordsOf(site)).toEqual([]);
  expect(dig(two.netns, "@10.88.0.1", "+timeout=1", "db")).toBeUndefined();
});

servedNamesTest("a name without an address of the family is there all the same", (network, site) => {
  const container = network.container(2);
  const [v4] = container.result.ips!;
  attach(network, container, site, "one", { prevResult: { ...container.result, ips: [v4] } });
  for (const type of ["AAAA", "MX", "TXT", "HTTPS"]) {
    expect(dig(container.netns, "@10.88.0.1", `one.${DOMAIN}`, type)).toMatchObject({ status: "NOERROR", answers: [] });
  }
  expect(dig(container.netns, "@10.88.0.1", DOMAIN)).toMatchObject({ status: "NOERROR", answers: [] });
  expect(dig(container.netns, "@10.88.0.1", "one", "AXFR", "+tcp")?.status).not.toBe("NOERROR");
  expect(dig(container.netns, "@10.88.0.1", "-c", "CH", "one", "TXT")?.status).toBe("REFUSED");
});

servedNamesTest("a network knows another's names only where the container is on both", (network, site) => {
  runIp(network.host, "link add br1 type bridge", "addr add 10.99.0.1/24 dev br1", "link set br1 up");
  const [one, two, both] = [2, 3, 4].map((n) => network.container(n)) as [
    BridgeContainer,
    BridgeContainer,
    BridgeContainer,
  ];
  // `two` is on the other network only.
  const onOther = (container: BridgeContainer, n: number) => {
    const { netns } = container;
    const veth = `other${n}`;
    runShellInNetns(network.host, `ip link add ${veth} master br1 up type veth peer name eth1 netns ${netns.path}`);
    runShellInNetns(netns, `ip addr add 10.99.0.${n}/24 dev eth1; ip link set eth1 up`);
    const interfaces = [{ name: "br1" }, { name: veth }, { name: "eth1", sandbox: netns.path }];
    const prevResult = { interfaces, ips: [{ address: `10.99.0.${n}/24`, interface: 2 }] };
    const config = { ...site.config, name: "other", domainName: "other.test", prevResult };
    const containerId = n === 3 ? "two" : "both";
    network.call(tested, "ADD", config, { container, containerId, ifname: "eth1" });
  };
  attach(network, one, site, "one");
  attach(network, both, site, "both");
  onOther(two, 3);
  onOther(both, 4);
  expect(digValues(both.netns, "@10.88.0.1", "two")).toEqual(["10.99.0.3"]);
  expect(digValues(both.netns, "@10.88.0.1", "two.other.test")).toEqual(["10.99.0.3"]);
  expect(digValues(both.netns, "@10.99.0.1", "one")).toEqual(["10.88.0.2"]);
  expect(digValues(both.netns, "@10.99.0.1", "-x", "10.88.0.2")).toEqual([`one.${DOMAIN}.`]);
  // Each network has its own address of the container.
  expect(digValues(one.netns, "@10.88.0.1", "both")).toEqual(["10.88.0.4"]);
  expect(digValues(two.netns, "@10.99.0.1", "both")).toEqual(["10.99.0.4"]);
  expect(digValues(one.netns, "@10.88.0.1", "two")).toEqual([]);
  expect(digValues(two.netns, "@10.99.0.1", "one")).toEqual([]);
  expect(digValues(one.netns, "@10.88.0.1", "two.other.test")).toEqual([]);
  // The other network's server, by way of the host.
  expect(dig(one.netns, "@10.99.0.1", "+timeout=1", "two")).toBeUndefined();
});

servedNamesTest("networks of one bridge and subnet do not know each other's names", (network, site) => {
  const [one, two] = [network.container(2), network.container(3)];
  attach(network, one, site, "one");
  attach(network, two, site, "two", { name: "other", domainName: "other.test" });
  for (const [container, own, foreign] of [[one, "one", "two"], [two, "two", "one"]] as const) {
    expect(digValues(container.netns, "@10.88.0.1", own)).toEqual([`${container.v4}`]);
    expect(digValues(container.netns, "@10.88.0.1", foreign)).toEqual([]);
    expect(digValues(container.netns, "@fd88::1", "-x", `${(container === one ? two : one).v4}`)).toEqual([]);
  }
});

servedNamesTest("strangers get no answer, with an address of another subnet neither", (network, site) => {
  const [one, stranger] = [network.container(2), network.container(3)];
  attach(network, one, site, "one");
  runShellInNetns(stranger.netns, "ip addr add 172.16.0.9/12 dev eth0");
  runIp(network.host, "route add 172.16.0.0/12 dev br0");
  expect(digValues(stranger.netns, "@10.88.0.1", "one")).toEqual(["10.88.0.2"]);
  expect(dig(stranger.netns, "@10.88.0.1", "-b", "172.16.0.9", "+timeout=1", "one")).toBeUndefined();
  runShellInNetns(network.outside, "ip route add 10.88.0.0/16 via 192.0.2.1");
  expect(dig(network.outside, "@10.88.0.1", "+timeout=1", "one")).toBeUndefined();
});

nameServerTest("a server that was killed serves all names as soon as it runs again", async (network) => {
  using site = newNameSite();
  const container = network.container(2);
  {
    using server = startNameServer(network.host, site.paths);
    attach(network, container, site, "one");
    await server.kill();
  }
  writeFileSync(join(site.paths.state, "web:broken:eth0.json"), '{"version":1,');
  writeFileSync(join(site.paths.state, "web:newer:eth0.json"), '{"version":2}');
  mkdirSync(join(site.paths.state, "web:directory:eth0.json"));
  const [file] = readdirSync(site.paths.state).filter((name) => name.includes(":one:"));
  const record = JSON.parse(readFileSync(join(site.paths.state, file!), "utf8"));
  record.host = { identity: "1:1", cookie: "1" };
  writeFileSync(join(site.paths.state, "web:elsewhere:eth0.json"), JSON.stringify({ ...record, names: ["elsewhere"] }));
  using server = startNameServer(network.host, site.paths);
  expect(digValues(container.netns, "@10.88.0.1", "one")).toEqual(["10.88.0.2"]);
  expect(digValues(container.netns, "@10.88.0.1", "elsewhere")).toEqual([]);
  for (const name of ["broken", "newer", "directory"]) await untilLogged(server, `web:${name}:eth0.json`);
  expect(await server.end()).toBe(0);
});

servedNamesTest("daemonSocketPath and dataDir lead to the server: another dataDir is an error", (network, site) => {
  const dataDir = join(site.directory, "other");
  const error = errorOfCall(() => attach(network, network.container(2), site, "one", { dataDir }));
  expect(error.message).toContain(`there is no usable file "${site.paths.state}/web:one:eth0.json"`);
  expect(error.details).toContain(site.paths.socket);
  expect(readdirSync(dataDir)).toEqual(["rules.lock"]);
});

nameServerTest(
  "without a server, each command succeeds and warns, and a later server has the names",
  async (network) => {
    using site = newNameSite();
    const container = network.container(2);
    const warning = `dnsname: Names of network "web" do not resolve: no server listens on "${site.paths.socket}"; ` +
      "start one: systemctl enable --now cni.socket, or cni serve";
    const status = () => network.call(tested, "STATUS", site.config);
    const check = () => network.call(tested, "CHECK", site.config, { container, containerId: "one" });
    status();
    expect(attach(network, container, site, "one")).toMatchObject({ dns: { nameservers: ["10.88.0.1", "fd88::1"] } });
    check();
    expect(network.log).toEqual([warning, warning, warning]);
    expect(dig(container.netns, "@10.88.0.1", "+timeout=1", "one")).toBeUndefined();
    {
      using server = startNameServer(network.host, site.paths);
      expect(digValues(container.netns, "@10.88.0.1", "one")).toEqual(["10.88.0.2"]);
      status();
      check();
      expect(network.log).toHaveLength(3);
      await server.kill();
    }
    detach(network, container, site, "one");
    detach(network, container, site, "one");
    expect(recordsOf(site)).toEqual([]);
    using _server = startNameServer(network.host, site.paths);
    expect(dig(container.netns, "@10.88.0.1", "+timeout=1", "one")).toBeUndefined();
  },
);

servedNamesTest("a port that another program has is an error that names it", async (network, site) => {
  const container = network.container(2);
  const errorOfAdd = () => errorOfCall(() => attach(network, container, site, "one"));
  {
    using _ = serveTcp(network.host, "other", 53, "10.88.0.1");
    expect(errorOfAdd()).toMatchObject({
      code: 100,
      message: `Cannot serve names on 10.88.0.1:53/tcp: "${OWN_NAME}" (process ${process.pid}) listens on 10.88.0.1:53`,
    });
  }
  {
    using _ = await serveUdp(network.host, "other", 53, "::");
    expect(errorOfAdd().message).toContain(`"${OWN_NAME}" (process ${process.pid}) listens on [::]:53`);
  }
  expect(recordsOf(site)).toEqual([]);
  // As systemd-resolved's.
  using _ = await serveUdp(network.host, "other", 53, "127.0.0.53");
  attach(network, container, site, "one");
  expect(digValues(container.netns, "@10.88.0.1", "one")).toEqual(["10.88.0.2"]);
});

nameServerTest("GC removes what no valid attachment needs, and CHECK notices what is missing", async (network) => {
  using site = newNameSite();
  const [one, two] = [network.container(2), network.container(3)];
  using server = startNameServer(network.host, site.paths);
  attach(network, one, site, "one");
  attach(network, two, site, "two");
  const valid = [{ containerID: "two", ifname: "eth0" }];
  network.call(tested, "GC", { ...site.config, "cni.dev/valid-attachments": valid });
  expect(digValues(two.netns, "@10.88.0.1", "one")).toEqual([]);
  expect(digValues(two.netns, "@10.88.0.1", "two")).toEqual(["10.88.0.3"]);
  const check = (container: BridgeContainer, containerId: string) => () =>
    network.call(tested, "CHECK", site.config, { container, containerId });
  check(two, "two")();
  expect(errorOfCall(check(one, "one")).message).toContain("there is no usable file");
  await server.kill();
  check(two, "two")();
});

servedNamesTest("CHECK has the server listen on a bridge that was made anew", (network, site) => {
  const container = network.container(2);
  attach(network, container, site, "one");
  runIp(network.host, "link del br0", "link add br0 type bridge", "link set veth2 master br0", "link set br0 up");
  runIp(network.host, "addr add 10.88.0.1/16 dev br0", "addr add fd88::1/64 dev br0 nodad");
  network.call(tested, "CHECK", site.config, { container, containerId: "one" });
  expect(digValues(container.netns, "@10.88.0.1", "one")).toEqual(["10.88.0.2"]);
});

servedNamesTest("ADD and DEL do not read through the records of all others", (network, site) => {
  const container = network.container(2);
  attach(network, container, site, "one");
  const record = readFileSync(join(site.paths.state, "web:one:eth0.json"), "utf8");
  for (let i = 0; i < 2000; i++) writeFileSync(join(site.paths.state, `web:other${i}:eth0.json`), record);
  let reads = 0;
  using _ = interceptSystemCalls(["syscall"], (_name, args, call) => {
    if (args[0] === SYS_getdents64) reads++;
    return call(...args);
  });
  attach(network, container, site, "one");
  expect(reads).toBe(0);
  detach(network, container, site, "one");
  expect(reads).toBe(1);
});

servedNamesTest(
  "a network whose host has no address in it is refused, and a name that DNS cannot have is skipped",
  (network, site) => {
    const container = network.container(2);
    runIp(network.host, "addr flush dev br0");
    expect(errorOfCall(() => attach(network, container, site, "one"))).toMatchObject({
      code: 7,
      message: 'Cannot serve names of network "web": "br0" and "veth2" has no address in it',
    });
    runIp(network.host, "addr add 10.88.0.1/16 dev br0");
    attach(network, container, site, "x".repeat(64), {}, "y".repeat(64));
    expect(network.log).toEqual([`dnsname: "${"y".repeat(64)}" is no name for DNS: it does not resolve`]);
    expect(digValues(container.netns, "@10.88.0.1", "x".repeat(12))).toEqual(["10.88.0.2"]);
    expect(existsSync(site.paths.state)).toBe(true);
  },
);

nameServerTest(
  "after one silent answer, GC, DEL and CHECK of the same command do not wait for the server",
  (network) => {
    using site = newNameSite();
    const [one, two, three] = [2, 3, 4].map((n) => network.container(n)) as [
      ...[BridgeContainer, BridgeContainer, BridgeContainer],
    ];
    {
      using _server = startNameServer(network.host, site.paths);
      attach(network, one, site, "one");
      attach(network, two, site, "two");
      attach(network, three, site, "three");
    }
    // It takes connections, and does no more.
    rmSync(site.paths.socket);
    using _listener = listenAt(site.paths.socket);
    const place = { daemonSocketPath: site.paths.socket, dataDir: site.paths.state };
    expect(() => askNameServer(network.host, place, { command: "look" }, 1)).toThrow("for 0.001 s");
    const silent = `The server at "${site.paths.socket}" gives no answer: as to an earlier question`;
    const check = () => network.call(tested, "CHECK", site.config, { container: one, containerId: "one" });
    expect(errorOfCall(check)).toMatchObject({ code: 11, message: silent });
    const status = () => network.call(tested, "STATUS", site.config);
    expect(errorOfCall(status)).toMatchObject({ code: 50, message: silent });
    detach(network, one, site, "one");
    network.call(tested, "GC", { ...site.config, "cni.dev/valid-attachments": [] });
    expect(network.log.filter((line) => line.includes(silent))).toHaveLength(3);
    expect(recordsOf(site)).toEqual([]);
  },
);
