/** What the reference plugins do wrong and no other test is about: none of it is done by the compiled binary. */
import { expect, test } from "bun:test";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type ConformanceNode, newConformanceNode, type NodeCallOptions } from "../testing/conformance.ts";
import {
  addContainerInterface,
  bridgeTestConfig,
  earlierResult,
  hostLocalConfig,
  lowerDeviceConfig,
} from "../testing/fixture_configs.ts";
import type { JsonDocument } from "../testing/json_document.ts";
import { ipShow, linkNames, runInNetns, runIp } from "../testing/netns.ts";

/** Calls a plugin of the compiled binary, which must succeed. @returns what it printed */
function succeed(node: ConformanceNode, type: string, verb: string, config: object, options?: NodeCallOptions) {
  const { exitCode, stdout } = node.exec(type, verb, config, options);
  expect(exitCode, `${type} ${verb}: ${stdout}`).toBe(0);
  return (stdout === "" ? {} : JSON.parse(stdout)) as JsonDocument;
}

/** Calls a plugin of the compiled binary, which must fail. @returns its error object */
function fail(node: ConformanceNode, type: string, verb: string, config: object, options?: NodeCallOptions) {
  const { exitCode, stdout } = node.exec(type, verb, config, options);
  expect(exitCode, `${type} ${verb}: ${stdout}`).toBe(1);
  return JSON.parse(stdout) as JsonDocument;
}

const stateFile = (node: ConformanceNode, ...names: string[]) => join(node.directory, ...names);

const sysctl = (netns: ConformanceNode["host"], name: string) =>
  runInNetns(netns, "cat", `/proc/sys/net/${name}`).trim();

const DNS = { nameservers: ["192.0.2.53"], search: ["one.example"] };

/** An IPAM plugin that gives an address and DNS settings. */
function ipamWithDns(node: ConformanceNode): JsonDocument {
  const result = { cniVersion: "1.0.0", ips: [{ address: "10.5.0.7/24" }], dns: DNS };
  node.program("with-dns", `[ "$CNI_COMMAND" != ADD ] || echo '${JSON.stringify(result)}'`);
  return { type: "with-dns" };
}

/** As the reference does, in the words of what it gets wrong. */
const DEFECTS: Readonly<Record<string, (node: ConformanceNode) => void>> = {
  "mtu and advmss of a route are left out"(node) {
    const routes = [{ dst: "192.0.2.0/24", mtu: 1300, advmss: 1200 }];
    const config = bridgeTestConfig(node, { ipam: hostLocalConfig(node, { routes }) });
    const prevResult = succeed(node, "bridge", "ADD", config);
    const [{ metrics }] = ipShow(node.container, "route", "show", "192.0.2.0/24");
    expect(metrics).toEqual([expect.objectContaining({ mtu: 1300, advmss: 1200 })]);
    succeed(node, "bridge", "CHECK", { ...config, prevResult });
  },
  "CHECK does not compare the gateway of a default route"(node) {
    const config = bridgeTestConfig(node);
    const prevResult = succeed(node, "bridge", "ADD", config);
    runIp(node.container, "route replace default via 10.5.0.77");
    expect(fail(node, "bridge", "CHECK", { ...config, prevResult })["msg"]).toContain("10.5.0.1");
  },
  "CHECK takes addresses, interfaces and routes of other plugins for its own"(node) {
    const config = bridgeTestConfig(node);
    const result = succeed(node, "bridge", "ADD", config);
    const strangers = [{ name: "gone0" }, { name: "gone1", sandbox: "/run/netns/other" }];
    const move = (ip: JsonDocument) => ({ ...ip, interface: ip["interface"] + strangers.length });
    const ips = [{ address: "10.9.0.2/24", interface: 1 }, ...result["ips"].map(move)];
    const prevResult = { ...result, interfaces: [...strangers, ...result["interfaces"]], ips };
    succeed(node, "bridge", "CHECK", { ...config, prevResult });
  },
  "CHECK fails while somebody captures packets at the bridge"(node) {
    const config = bridgeTestConfig(node);
    const prevResult = succeed(node, "bridge", "ADD", config);
    runIp(node.host, "link set br5 promisc on");
    succeed(node, "bridge", "CHECK", { ...config, prevResult });
  },
  "forceAddress fails where one of the bridge's addresses is secondary"(node) {
    runIp(node.host, "link add br5 type bridge", "addr add 10.9.0.1/24 dev br5", "addr add 10.9.0.2/24 dev br5");
    succeed(node, "bridge", "ADD", bridgeTestConfig(node, { forceAddress: true }));
    const [{ addr_info }] = ipShow(node.host, "-4", "addr", "show", "br5");
    expect(addr_info.map(({ local }: JsonDocument) => local)).toEqual(["10.5.0.1"]);
  },
  "DPDKMode of the configuration keeps a device from being moved"(node) {
    runIp(node.host, "link add nic5 type veth peer name far5");
    const config = { device: "nic5", DPDKMode: true, dataDir: stateFile(node, "devices") };
    succeed(node, "host-device", "ADD", config);
    expect(linkNames(node.container)).toContain("eth0");
    succeed(node, "host-device", "DEL", config);
    expect(linkNames(node.host)).toContain("nic5");
  },
  "the gateway of a VLAN has a name that is too long, which ADD finds out late"(node) {
    const config = bridgeTestConfig(node, { bridge: "a12345678901", vlan: 100 });
    expect(fail(node, "bridge", "ADD", config)).toMatchObject({ code: 7 });
    expect(linkNames(node.host)).toEqual(["lo"]);
  },
  "DNS settings of IPAM get lost"(node) {
    const master = lowerDeviceConfig(node, { ipam: ipamWithDns(node) });
    runIp(node.host, "link add nic5 type veth peer name far5");
    const configs = {
      "macvlan": master,
      "tap": { ipam: master["ipam"] },
      "host-device": { device: "nic5", dataDir: stateFile(node, "devices"), ipam: master["ipam"] },
    };
    for (const [type, config] of Object.entries(configs)) {
      const netns = node.newContainer();
      expect(succeed(node, type, "ADD", config, { netns, containerId: type })["dns"], type).toEqual(DNS);
    }
  },
  "where a subnet has one address or two, the container gets the bridge's"(node) {
    for (const [index, address] of ["10.6.0.1/32", "10.6.0.1/31", "10.6.0.1/24", "fd06::1/64"].entries()) {
      const config = { bridge: "br6", isDefaultGateway: true, ipam: { type: "static", addresses: [{ address }] } };
      const options = { netns: node.newContainer(), containerId: `c${index}` };
      expect(fail(node, "bridge", "ADD", config, options), address).toMatchObject({ code: 7 });
    }
    expect(linkNames(node.host)).toEqual(["lo"]);
  },
  "neighbours do not learn at once who has an address now"(node) {
    runIp(node.host, "link add nic5 type veth peer name far5");
    const configs = {
      "ptp": { ipam: hostLocalConfig(node) },
      "host-device": { device: "nic5", dataDir: stateFile(node, "devices"), ipam: hostLocalConfig(node) },
    };
    for (const [type, config] of Object.entries(configs)) {
      const netns = node.newContainer();
      succeed(node, type, "ADD", config, { netns, containerId: type });
      expect(sysctl(netns, "ipv4/conf/eth0/arp_notify"), type).toBe("1");
    }
  },
  "DEL of macspoofchk complains where nothing is left"(node) {
    const config = bridgeTestConfig(node, { macspoofchk: true });
    succeed(node, "bridge", "ADD", config);
    for (let i = 0; i < 2; i++) {
      expect(node.exec("bridge", "DEL", config)).toEqual({ exitCode: 0, stdout: "", stderr: "" });
    }
  },
  "an attachment that version 0.2.0 cannot tell stays"(node) {
    const before = [linkNames(node.host), linkNames(node.container)];
    fail(node, "bridge", "ADD", { cniVersion: "0.2.0", bridge: "br5" });
    fail(node, "macvlan", "ADD", { ...lowerDeviceConfig(node), ipam: {}, cniVersion: "0.2.0" });
    runIp(node.host, "link del up0");
    expect([linkNames(node.host), linkNames(node.container)]).toEqual(before);
  },
  "a container whose id is an address takes the memory of the last one away"(node) {
    const config = { ipam: hostLocalConfig(node) };
    succeed(node, "host-local", "ADD", config);
    const last = stateFile(node, "ipam/net/last_reserved_ip.0");
    const before = readFileSync(last, "utf8");
    for (const containerId of [before, "10.5.0.2"]) succeed(node, "host-local", "DEL", config, { containerId });
    expect(readFileSync(last, "utf8")).toBe(before);
  },
  "firewall: CHECK makes chains, and an unknown policy is noticed once rules are there"(node) {
    const ruleset = () => runInNetns(node.host, "nft", "list", "ruleset");
    const config = { prevResult: earlierResult(node) };
    fail(node, "firewall", "CHECK", config);
    for (const wrong of [{ ingressPolicy: "closed" }, { backend: "iptable" }]) {
      expect(fail(node, "firewall", "ADD", { ...config, ...wrong })).toMatchObject({ code: 7 });
    }
    expect(ruleset()).toBe("");
  },
  "tuning: CHECK compares a MAC address as text, and wants promiscuous mode off where nobody asked for it"(node) {
    addContainerInterface(node);
    const config = {
      mac: "0A-00-00-00-00-0B",
      sysctl: { "net.ipv4.tcp_rmem": "4096 131072 6291456" },
      dataDir: stateFile(node, "tuning"),
    };
    const prevResult = succeed(node, "tuning", "ADD", { ...config, prevResult: earlierResult(node) });
    runIp(node.container, "link set eth0 promisc on");
    succeed(node, "tuning", "CHECK", { ...config, prevResult });
    // Mode 0600, as the reference has it, lets nobody but root search.
    expect(statSync(config.dataDir).mode & 0o777).toBe(0o700);
  },
  "a previous result that does not say its version is refused"(node) {
    addContainerInterface(node);
    for (const cniVersion of [{}, { cniVersion: "" }, { cniVersion: null }]) {
      const { cniVersion: _, ...result } = earlierResult(node);
      const prevResult = { ...result, ...cniVersion };
      for (const type of ["sbr", "firewall", "portmap", "tuning", "bandwidth"]) {
        const config = { cniVersion: "1.0.0", prevResult, dataDir: stateFile(node, "state") };
        expect(succeed(node, type, "ADD", config)["ips"], type).toHaveLength(1);
        succeed(node, type, "DEL", config);
      }
    }
  },
  "a program is searched in PATH where CNI_PATH says the working directory"(node) {
    node.program("with-dns", `touch '${stateFile(node, "ran")}'; echo '{}'`, "bin2");
    const config = { bridge: "br5", ipam: { type: "with-dns" } };
    for (const CNI_PATH of [".", "", ":", ".:/nonexistent"]) {
      fail(node, "bridge", "ADD", config, { env: { CNI_PATH, PATH: `${stateFile(node, "bin2")}:/usr/bin:/bin` } });
    }
    expect(existsSync(stateFile(node, "ran"))).toBe(false);
  },
  "cnitool says an error twice, with the usage between, and no code"(node) {
    writeFileSync(stateFile(node, "broken.conflist"), "{");
    const { exitCode, stdout, stderr } = node.run("add", "nosuch", node.container.path, "--conf-dir", node.directory);
    expect([exitCode, stdout]).toEqual([1, ""]);
    expect(stderr.match(/"nosuch"/g)).toHaveLength(1);
    expect(stderr).not.toContain("Usage");
    const json = node.run("add", "nosuch", node.container.path, "--conf-dir", node.directory, "--json").stdout;
    expect(JSON.parse(json)).toMatchObject({ cniVersion: "1.1.0", code: 7 });
    // One broken neighbour hides no network.
    writeFileSync(
      stateFile(node, "zz.conflist"),
      JSON.stringify({ cniVersion: "1.1.0", name: "zz", plugins: [{ type: "loopback" }] }),
    );
    const added = node.run("add", "zz", node.container.path, "--conf-dir", node.directory);
    expect(added.exitCode).toBe(0);
    expect(added.stdout).toEndWith("}\n");
  },
};

for (const [name, body] of Object.entries(DEFECTS)) {
  test(`not so here: ${name}`, () => {
    using node = newConformanceNode();
    body(node);
  });
}
