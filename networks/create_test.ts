import { beforeAll, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { parseCidr, parseIp } from "../ffi/address.ts";
import { createNetns } from "../ffi/netns/netns.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { CniError } from "../spec/error.ts";
import { newNetworksSite } from "../testing/networks.ts";
import { netnsTest, runShellInNetns } from "../testing/netns.ts";
import { loadNetwork } from "../runtime/load.ts";
import { NetworkRequestError } from "./new_network.ts";

beforeAll(() => loadPlugins());

function problemOf(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    if (error instanceof NetworkRequestError) return `usage: ${error.message}`;
    const { message, details } = CniError.from(error);
    return `${message}; ${details}`;
  }
  return "";
}

netnsTest("new networks have subnets, bridges and files of their own, and no key is unknown", ({ host }) => {
  using site = newNetworksSite();
  const { create, runtime, conf } = site;
  site.write("87-podman-bridge.conflist", {
    ...{ cniVersion: "0.4.0", name: "podman" },
    plugins: [{ type: "bridge", bridge: "cni1", ipam: { type: "host-local", ranges: [[{ subnet: "10.64.0.0/23" }]] } }],
  });
  site.write("90-broken.conflist", "{");
  const web = create(host, "web");
  expect(web.file).toBe(`${conf}/91-web.conflist`);
  expect(web.configuration).toMatchObject({
    ...{ cniVersion: "1.0.0", name: "web" },
    plugins: [
      { type: "bridge", bridge: "cni-web", isGateway: true, ipam: { ranges: [[{ subnet: "10.64.2.0/24" }]] } },
      { type: "portmap" },
      { type: "firewall" },
    ],
  });
  const long = create(host, "a-name-that-no-interface-can-have", { ipv6: true });
  expect(long.configuration).toMatchObject({
    plugins: [{ bridge: "cni2", ipam: { routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }] } }, {}, {}],
  });
  const db = create(host, "db", { internal: true, mtu: 1400 });
  expect(db.configuration).toMatchObject({
    plugins: [{ isGateway: false, ipMasq: false, mtu: 1400, ipam: { ranges: [[{ subnet: "10.64.4.0/24" }]] } }, {
      type: "firewall",
    }],
  });
  for (const name of ["web", "db"]) {
    const network = loadNetwork(name, { directory: conf });
    expect(runtime.unknownKeys(network)).toEqual([]);
    // Other programs read the directory, and know JSON alone.
    expect(JSON.parse(readFileSync(network.source!, "utf8"))).toMatchObject({ name });
  }
});

netnsTest("a network has what was asked for", ({ host }) => {
  using site = newNetworksSite();
  runShellInNetns(host, "ip link add eth0 type veth peer name eth1");
  const options = (text: string) => ({
    options: new Map(text.split(" ").map((pair) => pair.split("=") as [string, string])),
  });
  const pluginsOf = (name: string, request: object) => {
    const { configuration } = site.create(host, name, request);
    return configuration["plugins"] as Record<string, unknown>[];
  };
  const lan = pluginsOf("lan", {
    ...{ driver: "macvlan", subnets: [parseCidr("192.0.2.0/24")], gateways: [parseIp("192.0.2.254")] },
    ...{ ipRanges: [parseCidr("192.0.2.128/25")], ...options("parent=eth0 mode=private") },
  });
  expect(lan).toEqual([{
    ...{ type: "macvlan", master: "eth0", mode: "private", capabilities: { ips: true, mac: true } },
    ipam: {
      type: "host-local",
      ranges: [[{
        ...{ subnet: "192.0.2.0/24", rangeStart: "192.0.2.128", rangeEnd: "192.0.2.254", gateway: "192.0.2.254" },
      }]],
      routes: [{ dst: "0.0.0.0/0" }],
    },
  }]);
  expect(pluginsOf("l3", { driver: "ipvlan", subnets: [parseCidr("192.0.2.0/24")], ...options("mode=l3") })[0])
    .toMatchObject({ type: "ipvlan", mode: "l3" });
  expect(pluginsOf("p2p", { driver: "ptp" }).map(({ type }) => type)).toEqual(["ptp", "portmap", "firewall"]);
  // The host's interface in the VLAN would need 19 bytes.
  expect(pluginsOf("abcdefghijk", options("vlan=100"))[0]).toMatchObject({ bridge: "cni1", vlan: 100 });
  expect(pluginsOf("vlan", { vlan: 7, ...options("isolate=true hairpinMode=false bridge=br7") })).toMatchObject([
    { type: "bridge", bridge: "br7", vlan: 7, hairpinMode: false },
    { type: "portmap" },
    { type: "firewall", ingressPolicy: "same-bridge" },
  ]);
});

netnsTest("what cannot be is refused with one sentence, and writes nothing", ({ host }) => {
  using site = newNetworksSite();
  runShellInNetns(
    host,
    "ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip address add 10.7.0.1/16 dev eth0",
  );
  site.create(host, "web");
  site.write("20-broken.conflist", { name: "broken", plugins: [] });
  const refused = (request: object, name = "x") => problemOf(() => site.create(host, name, request));
  const subnets = (...texts: string[]) => ({ subnets: texts.map(parseCidr) });
  const option = (key: string, value: string) => ({ options: new Map([[key, value]]) });
  expect(refused({}, "web")).toContain('there is one of this name, it is in "');
  expect(refused({}, "broken")).toContain("20-broken.conflist");
  expect(refused({}, "default")).toContain("it is built in");
  expect(refused({}, "a/b")).toStartWith("usage: the name");
  expect(refused(subnets("10.64.0.0/16"))).toContain('in use by 10.64.0.0/24 of network "web"');
  expect(refused(subnets("10.7.1.0/24"))).toContain('10.7.0.0/16 of address 10.7.0.1/16 of the host on "eth0"');
  expect(refused(subnets("10.63.0.0/16"))).toContain('the built-in network "default"');
  expect(refused(subnets("10.1.0.0/24", "10.2.0.0/24"))).toContain("one subnet of IPv4");
  expect(refused(subnets("10.1.0.0/31"))).toContain("prefix length 30 or less");
  expect(refused({ gateways: [parseIp("10.9.9.9")] })).toBe("usage: Cannot use 10.9.9.9: it is outside 10.64.1.0/24");
  expect(refused({ dns: true, internal: true })).toContain("--dns needs a gateway");
  expect(refused({ dns: true, driver: "macvlan", subnets: [parseCidr("192.0.2.0/24")] })).toContain("bridge or ptp");
  expect(refused({ internal: true, gateways: [parseIp("10.64.1.1")] })).toContain("has no gateway");
  expect(refused({ ...subnets("10.1.0.0/24"), ipRanges: [parseCidr("10.1.0.0/16")] })).toContain("larger than");
  expect(refused({ driver: "ptp", vlan: 7 })).toContain("has no VLANs");
  expect(refused({ driver: "macvlan" })).toContain("needs --subnet");
  expect(refused({ driver: "macvlan", ...subnets("192.0.2.0/24"), ...option("parent", "eht0") })).toContain(
    'no such interface; did you mean "eth0"?',
  );
  expect(refused(option("hairpinMod", "true"))).toContain('did you mean "hairpinMode"?');
  expect(refused(option("mtu", "big"))).toContain("option mtu must be a whole number");
  expect(refused({ mtu: 67 })).toBe("usage: an MTU of 67 is too small: IPv4 needs 68 bytes or more");
  expect(refused({ ...option("mtu", "1279"), ipv6: true })).toContain("IPv6 needs 1280 bytes or more");
  expect(refused(option("bridge", "eth0"))).toContain('Cannot use "eth0" as a bridge: it is a link of kind veth');
  expect(refused(option("isolate", "x"))).toContain("true or false");
  expect(refused(option("promiscMode", "true"))).toContain("hairpinMode");
  expect(refused({ vlan: 100, ...option("bridge", "a-long-bridge") })).toContain("15 bytes");
  expect(host.run(() => Bun.spawnSync(["ls", site.conf]).stdout.toString())).toBe(
    "10-web.conflist\n20-broken.conflist\n",
  );
});

netnsTest("two networks on one parent interface never give out one address", ({ host }) => {
  using site = newNetworksSite();
  runShellInNetns(
    host,
    "ip link add eth0 type veth peer name eth1; ip link set eth0 up; ip link set eth1 up",
    "ip address add 192.0.2.2/24 dev eth0; ip route add default via 192.0.2.1",
  );
  const create = (name: string, driver: "macvlan" | "ipvlan", ipRange: string, parent?: string) =>
    problemOf(() =>
      site.create(host, name, {
        ...{ driver, subnets: [parseCidr("192.0.2.0/24")], ipRanges: [parseCidr(ipRange)] },
        options: new Map(parent === undefined ? [] : [["parent", parent]]),
      })
    );
  expect(create("lan", "macvlan", "192.0.2.128/26", "eth0")).toBe("");
  const used = `network "lan" in "${site.conf}/10-lan.conflist" gives out 192.0.2.128-192.0.2.191 on "eth0"`;
  const details = "give this one another part of the subnet with --ip-range";
  // Without a parent, it is the default route's.
  for (const parent of ["eth0", undefined]) {
    for (const driver of ["ipvlan", "macvlan"] as const) {
      expect(create("x", driver, "192.0.2.160/27", parent)).toBe(`Cannot create network "x": ${used}; ${details}`);
    }
  }
  expect(create("other", "ipvlan", "192.0.2.192/27", "eth0")).toBe("");
  expect(create("elsewhere", "ipvlan", "192.0.2.160/27", "eth1")).toBe("");
});

test("who can only read the directory cannot keep others from creating a network", async () => {
  using netns = createNetns();
  using site = newNetworksSite();
  await using holder = Bun.spawn(["flock", "--shared", site.conf, "sh", "-c", "echo held; exec sleep 60"], {
    stdout: "pipe",
  });
  const { value } = await holder.stdout.getReader().read();
  expect(new TextDecoder().decode(value)).toBe("held\n");
  expect(site.create(netns, "web").name).toBe("web");
  expect(readdirSync(site.conf)).toEqual(["10-web.conflist"]);
});
