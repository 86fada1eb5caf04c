import { expect } from "bun:test";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import {
  askOnce,
  askUntilAnswered,
  ipShow,
  linkNames,
  ping,
  runInNetns,
  runShellInNetns,
} from "../../testing/netns.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import bridge from "./plugin.ts";
import { type Sandbox, sandboxTest } from "../../testing/sandbox.ts";
import { newFixedIpam } from "../../testing/fixed_ipam.ts";

const { fixed, counts } = newFixedIpam();

const address = (each: string, gateway?: string) => ({
  address: parseCidr(each),
  ...gateway ? { gateway: parseIp(gateway) } : {},
});
const ipam = (...ips: ReturnType<typeof address>[]) => ({ type: "fixed", result: { ips } });
const four = ipam(address("10.1.2.2/24", "10.1.2.1"));
const both = ipam(address("10.1.2.2/24", "10.1.2.1"), address("fd00:1::2/64", "fd00:1::1"));

const bridgeTest = (name: string, body: (sandbox: Sandbox) => void) => sandboxTest(name, [fixed], body);

bridgeTest(
  "bridge ADD attaches on IPv4 and IPv6 with gateways and default routes; every address is usable at once",
  ({ call, host, container }) => {
    const result = call(bridge, "ADD", { isDefaultGateway: true, mtu: 1400, ipam: both });
    expect(result.interfaces!.map(({ name, sandbox }) => [name, sandbox])).toEqual([
      ["cni0", undefined],
      [expect.stringMatching(/^veth[0-9a-f]{8}$/), undefined],
      ["eth0", container.path],
    ]);
    expect(result.ips!.map((ip) => ip.interface)).toEqual([2, 2]);
    expect(result.routes as unknown).toEqual([{ dst: "0.0.0.0/0", gw: "10.1.2.1" }, { dst: "::/0", gw: "fd00:1::1" }]);

    // While an address of the bridge is tentative, the host can ask for no container's hardware address for those outside.
    expect(ipShow(host, "-6", "addr", "show", "cni0", "tentative")).toEqual([]);
    ping(container, "10.1.2.1");
    ping(container, "fd00:1::1");
    ping(host, "10.1.2.2");
    ping(host, "fd00:1::2");
    expect(ipShow(container, "link", "show", "eth0")[0]).toMatchObject({
      mtu: 1400,
      address: result.interfaces![2]!.mac,
      operstate: "UP",
    });
    expect(ipShow(container, "route", "show", "default")[0]).toMatchObject({ gateway: "10.1.2.1", dev: "eth0" });
    expect(ipShow(container, "-6", "route", "show", "default")[0]).toMatchObject({ gateway: "fd00:1::1", dev: "eth0" });
    expect(runInNetns(host, "cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding")).toBe(
      "1\n1\n",
    );
  },
);

bridgeTest("bridge CHECK passes after ADD and names what has changed since", ({ call, host, container }) => {
  const config = { isGateway: true, ipam: both };
  const prevResult = { cniVersion: "1.1.0", ...call(bridge, "ADD", config) };
  const check = () => call(bridge, "CHECK", { ...config, prevResult });
  check();
  check();
  const port = prevResult.interfaces![1]!.name;
  runInNetns(host, "ip", "link", "add", "other", "type", "bridge");
  const drift: [Netns, string[], string[], string][] = [
    [
      container,
      ["addr", "del", "10.1.2.2/24", "dev", "eth0"],
      ["addr", "add", "10.1.2.2/24", "dev", "eth0"],
      '"eth0" lacks address 10.1.2.2/24',
    ],
    [
      host,
      ["link", "set", port, "nomaster"],
      ["link", "set", port, "master", "cni0"],
      `bridge of "${port}" is missing, expected "cni0"`,
    ],
    [
      host,
      ["link", "set", port, "master", "other"],
      ["link", "set", port, "master", "cni0"],
      `bridge of "${port}" is "other", expected "cni0"`,
    ],
    [
      host,
      ["addr", "del", "10.1.2.1/24", "dev", "cni0"],
      ["addr", "add", "10.1.2.1/24", "dev", "cni0"],
      'gateway address 10.1.2.1/24 is missing on "cni0"',
    ],
    [host, ["link", "set", port, "type", "bridge_slave", "hairpin", "on"], [
      "link",
      "set",
      port,
      "type",
      "bridge_slave",
      "hairpin",
      "off",
    ], "hairpin mode"],
    [container, ["link", "set", "eth0", "address", "0a:00:00:00:00:09"], [
      "link",
      "set",
      "eth0",
      "address",
      prevResult.interfaces![2]!.mac!,
    ], 'MAC address of "eth0"'],
    [host, ["link", "set", "cni0", "down"], ["link", "set", "cni0", "up"], 'bridge "cni0" is down'],
  ];
  for (const [netns, change, back, message] of drift) {
    runInNetns(netns, "ip", ...change);
    expect(check, change.join(" ")).toThrow(message);
    runInNetns(netns, "ip", ...back);
  }
  runInNetns(host, "ip", "addr", "add", "fd00:1::1/64", "dev", "cni0");
  runInNetns(container, "ip", "link", "del", "eth0");
  expect(check).toThrow('interface "eth0" is missing');
});

bridgeTest("bridge CHECK of a network without IPAM needs none", ({ call }) => {
  const prevResult = { cniVersion: "1.1.0", ...call(bridge, "ADD", {}) };
  call(bridge, "CHECK", { prevResult });
  expect(() => call(bridge, "CHECK", {})).toThrow("prevResult is missing");
});

bridgeTest(
  "bridge DEL removes both ends and the reservation, and succeeds when all is gone",
  ({ call, host, container }) => {
    const config = { ipam: four };
    const prevResult = { cniVersion: "1.1.0", ...call(bridge, "ADD", config) };
    const released = counts.del;
    call(bridge, "DEL", { ...config, prevResult });
    expect(linkNames(container)).toEqual(["lo"]);
    expect(linkNames(host)).toEqual(["cni0", "lo"]);
    call(bridge, "DEL", { ...config, prevResult });
    call(bridge, "DEL", config, { netns: null });
    call(bridge, "DEL", config, { netns: "/run/netns/never" });
    expect(counts.del).toBe(released + 4);
  },
);

bridgeTest(
  "bridge DEL without a namespace removes the host's end, but never one that another container has by now",
  ({ call, host }) => {
    const prevResult = { cniVersion: "1.1.0", ...call(bridge, "ADD", { ipam: four }) };
    const port = prevResult.interfaces![1]!;
    const alias = (text: string) => runInNetns(host, "ip", "link", "set", port.name, "alias", text);
    alias("cni:test another eth0");
    call(bridge, "DEL", { ipam: four, prevResult }, { netns: null });
    expect(linkNames(host)).toContain(port.name);
    // A port that the reference plugin made names nobody; then its address must be the one that was reported.
    alias("");
    const foreign = { ...prevResult, interfaces: [{ ...port, mac: "0a:11:22:33:44:55" }] };
    call(bridge, "DEL", { ipam: four, prevResult: foreign }, { netns: null });
    expect(linkNames(host)).toContain(port.name);
    call(bridge, "DEL", { ipam: four, prevResult }, { netns: null });
    expect(linkNames(host)).toEqual(["cni0", "lo"]);
  },
);

bridgeTest(
  "bridge ADD that fails leaves nothing of the container, and releases its address",
  ({ call, host, container }) => {
    const failures: [object, string | RegExp][] = [
      [{ ipam: { ...four, fail: true } }, "no address now"],
      [{ ipam: ipam() }, 'IPAM plugin "fixed" returned no address'],
      [{ isGateway: true, ipam: ipam(address("10.1.2.2/32")) }, "Cannot choose a gateway for 10.1.2.2/32"],
      [{ isGateway: true, ipam: ipam(address("10.1.2.1/24")) }, "Cannot choose a gateway for 10.1.2.1/24"],
      [
        { ipam: { type: "fixed", result: { ...four.result, routes: [{ dst: "192.0.2.0/24", gw: "172.16.0.1" }] } } },
        /Cannot add route to 192\.0\.2\.0\/24 via 172\.16\.0\.1 dev "eth0": Network is unreachable/,
      ],
      [
        { ipam: ipam(address("10.1.2.2/24"), address("10.1.2.2/24")) },
        'Cannot add address 10.1.2.2/24 to "eth0": File exists',
      ],
      [{ ipam: { type: "absent" } }, 'Cannot run plugin "absent"'],
    ];
    for (const [config, message] of failures) {
      const { add, del } = counts;
      expect(() => call(bridge, "ADD", config), JSON.stringify(config)).toThrow(message);
      expect(counts.del - del, JSON.stringify(config)).toBe(counts.add - add);
      expect(linkNames(container)).toEqual(["lo"]);
      expect(linkNames(host).filter((name) => name.startsWith("veth"))).toEqual([]);
    }
  },
);

bridgeTest("bridge ADD refuses a name that the container has, and keeps what was there", ({ call, container }) => {
  call(bridge, "ADD", { ipam: four });
  expect(() => call(bridge, "ADD", { ipam: four }, { containerId: "c1" })).toThrow(
    /Cannot create "eth0" in .*the container has an interface of that name/,
  );
  expect(ipShow(container, "addr", "show", "eth0")[0].addr_info).toContainEqual(
    expect.objectContaining({ local: "10.1.2.2" }),
  );
  call(bridge, "ADD", { ipam: ipam(address("10.1.2.3/24")) }, { ifname: "net1" });
  expect(linkNames(container)).toEqual(["eth0", "lo", "net1"]);
});

bridgeTest("containers of one bridge reach each other; isolated ports do not", ({ call, container, newContainer }) => {
  const second = newContainer();
  const third = newContainer();
  const fourth = newContainer();
  call(bridge, "ADD", { ipam: both });
  call(bridge, "ADD", { ipam: ipam(address("10.1.2.3/24"), address("fd00:1::3/64")) }, {
    containerId: "c2",
    netns: second,
  });
  call(bridge, "ADD", { portIsolation: true, ipam: ipam(address("10.1.2.4/24")) }, { containerId: "c3", netns: third });
  call(bridge, "ADD", { portIsolation: true, ipam: ipam(address("10.1.2.5/24")) }, {
    containerId: "c4",
    netns: fourth,
  });
  ping(container, "10.1.2.3");
  ping(container, "fd00:1::3");
  ping(third, "10.1.2.2");
  expect(() => ping(third, "10.1.2.5", 1)).toThrow("ended with 1");
});

bridgeTest(
  "the bridge's MAC address stays while containers come and go, also on a bridge that was there",
  ({ call, host, newContainer }) => {
    runInNetns(host, "ip", "link", "add", "br9", "type", "bridge");
    runInNetns(
      host,
      "ip",
      "link",
      "add",
      "low",
      "address",
      "02:00:00:00:00:01",
      "type",
      "veth",
      "peer",
      "name",
      "low2",
    );
    for (const [n, name] of ["cni0", "br9"].entries()) {
      const ipamOf = (last: number) => ipam(address(`10.1.${n}.${last}/24`, `10.1.${n}.1`));
      const config = { bridge: name, isGateway: true, ipam: ipamOf(2) };
      const macNow = () => ipShow(host, "link", "show", name)[0].address;
      const { interfaces } = call(bridge, "ADD", config);
      expect(macNow()).toBe(interfaces![0]!.mac);
      runInNetns(host, "ip", "link", "set", "low", "master", name);
      call(bridge, "ADD", { ...config, ipam: ipamOf(3) }, {
        containerId: `c2${name}`,
        netns: newContainer(),
      });
      call(bridge, "DEL", config);
      expect(macNow()).toBe(interfaces![0]!.mac);
    }
  },
);

bridgeTest(
  "a container cannot make itself the host's router, also not on a bridge that was there",
  ({ call, host }) => {
    runInNetns(host, "ip", "link", "add", "br9", "type", "bridge");
    for (const [ifname, name] of [["eth0", "cni0"], ["net1", "br9"]] as const) {
      call(bridge, "ADD", { bridge: name }, { ifname });
      expect(runInNetns(host, "cat", `/proc/sys/net/ipv6/conf/${name}/accept_ra`)).toBe("0\n");
    }
  },
);

bridgeTest(
  "bridge refuses a gateway address beside another, replaces it if told, and takes disjoint IPv6 networks",
  ({ call, host, newContainer }) => {
    const attach = (config: object, containerId: string) =>
      call(bridge, "ADD", { isGateway: true, ...config }, { containerId, netns: newContainer() });
    const gateways = () =>
      ipShow(host, "addr", "show", "cni0")[0].addr_info.filter((each: { scope: string }) => each.scope === "global")
        .map((each: { local: string }) => each.local).sort();
    attach({ ipam: both }, "a");
    expect(() => attach({ ipam: ipam(address("10.9.0.2/24")) }, "b")).toThrow(
      'Cannot give "cni0" the gateway address 10.9.0.1/24: it has 10.1.2.1/24 already',
    );
    expect(() => attach({ ipam: ipam(address("fd00:1::9/48", "fd00:1::8")) }, "c")).toThrow("fd00:1::1/64 already");
    attach({ ipam: ipam(address("fd00:2::2/64")) }, "d");
    expect(gateways()).toEqual(["10.1.2.1", "fd00:1::1", "fd00:2::1"]);
    attach({ forceAddress: true, ipam: ipam(address("10.9.0.2/24"), address("10.8.0.2/24")) }, "e");
    expect(gateways()).toEqual(["10.8.0.1", "10.9.0.1", "fd00:1::1", "fd00:2::1"]);
  },
);

bridgeTest(
  "bridge takes the container's MAC from runtimeConfig before args.cni before CNI_ARGS",
  ({ call, newContainer }) => {
    const env = { CNI_ARGS: "IgnoreUnknown=1;K8S_POD_NAME=x;MAC=0a:00:00:00:00:01" };
    const macOf = (config: object, containerId: string) =>
      call(bridge, "ADD", config, { env, containerId, netns: newContainer() }).interfaces![2]!.mac;
    expect(macOf({}, "a")).toBe("0a:00:00:00:00:01");
    expect(macOf({ args: { cni: { mac: "0A:00:00:00:00:02" } } }, "b")).toBe("0a:00:00:00:00:02");
    expect(macOf({ args: { cni: { mac: "0a:00:00:00:00:02" } }, RuntimeConfig: { mac: "0a-00-00-00-00-03" } }, "c"))
      .toBe("0a:00:00:00:00:03");
    expect(() => call(bridge, "ADD", {}, { env: { CNI_ARGS: "MAC=x" }, containerId: "d", netns: newContainer() }))
      .toThrow("CNI_ARGS MAC");
    expect(() => call(bridge, "ADD", {}, { env: { CNI_ARGS: "COLOUR=red" }, containerId: "d", netns: newContainer() }))
      .toThrow("unknown args");
    call(bridge, "DEL", {}, { env: { CNI_ARGS: "COLOUR=red;;" }, containerId: "d", netns: newContainer() });
  },
);

bridgeTest(
  "bridge sets promiscuous and hairpin mode, and leaves the container's end down if told",
  ({ call, host, container }) => {
    const { interfaces } = call(bridge, "ADD", { hairpinMode: true, disableContainerInterface: true });
    expect(ipShow(host, "link", "show", interfaces![1]!.name)[0].linkinfo.info_slave_data.hairpin).toBe(true);
    expect(ipShow(container, "link", "show", "eth0")[0].flags).not.toContain("UP");
    call(bridge, "ADD", { promiscMode: true }, { ifname: "net1" });
    call(bridge, "ADD", { promiscMode: true }, { ifname: "net2" });
    expect(ipShow(host, "link", "show", "cni0")[0].promiscuity).toBe(1);
  },
);

bridgeTest("bridge refuses contradictions and wrong values before it changes anything", ({ call, host }) => {
  const wrong: [object, string][] = [
    [{ hairpinMode: true, promiscMode: true }, "promiscMode must be false when hairpinMode is true"],
    [{ disableContainerInterface: true, ipam: four }, "ipam must be absent"],
    [{ vlan: 4095 }, "vlan must be a whole number from 0 to 4094: got 4095"],
    [{ vlanTrunk: [{ minID: 5 }] }, "vlanTrunk[0].maxID must be given together with minID"],
    [{ vlanTrunk: [{ minID: 5, maxID: 4 }] }, "vlanTrunk[0].maxID must be at least minID, 5: got 4"],
    [{ vlanTrunk: [null] }, "vlanTrunk[0]"],
    [{ mtu: -1 }, "mtu must be"],
    [{ bridge: "a-name-that-is-too-long" }, "bridge must be an interface name of 1 to 15 bytes"],
    [{ bridge: "br%d" }, 'bridge must be an interface name of 1 to 15 bytes: got "br%d"'],
    [{ isGateway: "yes" }, 'isGateway must be true or false: got "yes"'],
    [{ ipMasqBackend: "ebpf" }, 'ipMasqBackend must be "iptables" or "nftables"'],
  ];
  for (const [config, message] of wrong) {
    expect(() => call(bridge, "ADD", config), JSON.stringify(config)).toThrow(message);
  }
  expect(linkNames(host)).toEqual(["lo"]);
});

bridgeTest("if the kernel has no VLAN filtering, bridge says so, also of a bridge that exists", ({ call, host }) => {
  const probe = "ip link add probe type bridge vlan_filtering 1 && ip link del probe && echo yes || true";
  const isSupported = runShellInNetns(host, probe).includes("yes");
  for (const prepare of ["true", "ip link add cni0 type bridge"]) {
    runShellInNetns(host, prepare);
    const add = expect(() => call(bridge, "ADD", { vlan: 7 }, { ifname: `net${prepare.length}` }));
    if (isSupported) add.not.toThrow();
    else add.toThrow('Cannot use VLANs on the bridge "cni0": this kernel refuses them');
    runShellInNetns(host, "ip link del cni0 2>/dev/null || true");
  }
});

bridgeTest("bridge refuses a name that another kind of interface has", ({ call, host }) => {
  runInNetns(host, "ip", "link", "add", "cni0", "type", "veth", "peer", "name", "other");
  expect(() => call(bridge, "ADD", {})).toThrow(
    'Cannot use "cni0" as a bridge: it is an interface of another kind (veth)',
  );
  expect(() => call(bridge, "STATUS", {})).toThrow("Cannot attach containers");
});

bridgeTest("a default route of IPAM without a gateway is not added twice", ({ call, container }) => {
  const routes = [{ dst: "0.0.0.0/0" }, { dst: "192.0.2.0/24", mtu: 1300, priority: 7, table: 100 }, {
    dst: "198.51.100.0/24",
    scope: 253,
  }];
  call(bridge, "ADD", { isDefaultGateway: true, ipam: { type: "fixed", result: { ...four.result, routes } } });
  expect(ipShow(container, "route", "show", "default")).toHaveLength(1);
  expect(ipShow(container, "route", "show", "table", "100")[0]).toMatchObject({
    dst: "192.0.2.0/24",
    gateway: "10.1.2.1",
    metric: 7,
    metrics: [{ mtu: 1300 }],
  });
  expect(ipShow(container, "route", "show", "198.51.100.0/24")[0]).toMatchObject({ scope: "link" });
});

bridgeTest(
  "enabledad: an address that another container has is refused, and the container is left clean",
  ({ call, container, newContainer }) => {
    const first = newContainer();
    call(bridge, "ADD", { ipam: ipam(address("fd00:1::9/64")) }, { containerId: "first", netns: first });
    runInNetns(first, "ip", "addr", "add", "fd00:1::2/64", "dev", "eth0", "nodad");
    askUntilAnswered(container);
    expect(() => call(bridge, "ADD", { enabledad: true, ipam: ipam(address("fd00:1::2/64")) })).toThrow(
      'Cannot use address fd00:1::2/64 on "eth0": another host',
    );
    expect(linkNames(container)).toEqual(["lo"]);
    askOnce(container);
    call(bridge, "ADD", { enabledad: true, ipam: ipam(address("fd00:1::3/64")) });
    ping(container, "fd00:1::2");
  },
);

bridgeTest(
  "ipMasq and macspoofchk name their owner in the ruleset, are checked, and go without the namespace",
  ({ call, host }) => {
    const config = { ipMasq: true, macspoofchk: true, isGateway: true, ipam: both };
    const prevResult = { cniVersion: "1.1.0", ...call(bridge, "ADD", config) };
    const rules = () => runInNetns(host, "nft", "list", "ruleset");
    expect(rules().split("test c1 eth0").length - 1).toBeGreaterThanOrEqual(4);
    call(bridge, "CHECK", { ...config, prevResult });
    runInNetns(host, "nft", "flush", "ruleset");
    expect(() => call(bridge, "CHECK", { ...config, prevResult })).toThrow("Check failed");
    call(bridge, "DEL", { ...config, prevResult }, { netns: null });

    call(bridge, "ADD", config);
    const released = counts.gc;
    call(bridge, "GC", { ...config, "cni.dev/valid-attachments": [{ containerID: "c1", ifname: "eth0" }] });
    expect(rules()).toContain("test c1 eth0");
    call(bridge, "GC", { ...config, "cni.dev/valid-attachments": [] });
    expect(rules()).not.toContain("test c1 eth0");
    expect(counts.gc).toBe(released + 2);
    call(bridge, "DEL", config, { netns: null });
    const checked = counts.status;
    call(bridge, "STATUS", config);
    expect(counts.status).toBe(checked + 1);
  },
);

bridgeTest("ipMasqBackend changes nothing: the rules are the same, in the one table", ({ call, host }) => {
  const rulesFor = (more: object) => {
    const config = { ipMasq: true, isGateway: true, ipam: both, ...more };
    const prevResult = { cniVersion: "1.1.0", ...call(bridge, "ADD", config) };
    call(bridge, "CHECK", { ...config, prevResult });
    const rules = runInNetns(host, "nft", "-s", "list", "ruleset");
    call(bridge, "DEL", { ...config, prevResult });
    return rules;
  };
  const expected = rulesFor({});
  expect(expected).toContain("test c1 eth0");
  for (const ipMasqBackend of ["iptables", "nftables"]) expect(rulesFor({ ipMasqBackend })).toBe(expected);
});

bridgeTest(
  "DEL without namespace and result, and GC, find the host's end by the owner that it names",
  ({ call, host, newContainer }) => {
    const attach = (containerId: string) => call(bridge, "ADD", {}, { containerId, netns: newContainer() });
    const aliases = () => ipShow(host, "link", "show", "type", "veth").map((each) => each.ifalias).sort();
    for (const id of ["c1", "c2", "c3"]) attach(id);
    expect(aliases()).toEqual(["cni:test c1 eth0", "cni:test c2 eth0", "cni:test c3 eth0"]);
    call(bridge, "DEL", { ipam: four }, { containerId: "c2", netns: null });
    expect(aliases()).toEqual(["cni:test c1 eth0", "cni:test c3 eth0"]);
    call(bridge, "GC", { name: "other", ipam: four, "cni.dev/valid-attachments": [] });
    expect(aliases()).toEqual(["cni:test c1 eth0", "cni:test c3 eth0"]);
    call(bridge, "GC", { ipam: four, "cni.dev/attachments": [{ containerID: "c3", ifname: "eth0" }] });
    expect(aliases()).toEqual(["cni:test c3 eth0"]);
  },
);

bridgeTest("several interfaces of one container on one network are checked apart", ({ call, container }) => {
  const second = ipam(address("10.1.2.3/24", "10.1.2.1"), address("fd00:1::3/64", "fd00:1::1"));
  const config = (ipam: typeof both) => ({ isDefaultGateway: true, ipMasq: true, ipam });
  const results = {
    eth0: call(bridge, "ADD", config(both)),
    eth1: call(bridge, "ADD", config(second), { ifname: "eth1" }),
  };
  const check = (ifname: "eth0" | "eth1") => () =>
    call(bridge, "CHECK", { ...config(ifname === "eth0" ? both : second), prevResult: results[ifname] }, { ifname });
  check("eth0")();
  check("eth1")();
  runInNetns(container, "ip", "-6", "route", "del", "default", "via", "fd00:1::1", "dev", "eth1");
  check("eth0")();
  expect(check("eth1")).toThrow('Check failed: "eth1" lacks the route to ::/0 via fd00:1::1');
  call(bridge, "DEL", { ...config(second), prevResult: results.eth1 }, { ifname: "eth1" });
  check("eth0")();
});

bridgeTest("bridge DEL leaves alone what is no cable, so that a refused ADD can be undone", ({ call, container }) => {
  expect(() => call(bridge, "ADD", {}, { ifname: "lo" })).toThrow('Cannot create "lo"');
  call(bridge, "DEL", {}, { ifname: "lo" });
  runInNetns(container, "ip", "link", "add", "eth0", "type", "bridge");
  call(bridge, "DEL", {});
  expect(linkNames(container)).toEqual(["eth0", "lo"]);
});

bridgeTest(
  "bridge ADD gives its bridge an IPv6 gateway where IPv6 is switched off by default, and leaves the default alone",
  ({ call, host, container }) => {
    runInNetns(host, "sh", "-c", "echo 1 >/proc/sys/net/ipv6/conf/default/disable_ipv6");
    const another = ipam(address("10.4.2.2/24", "10.4.2.1"));
    call(bridge, "ADD", { bridge: "cni4", isGateway: true, ipam: another }, { containerId: "c4", ifname: "net4" });
    const disabled = (name: string) => runInNetns(host, "cat", `/proc/sys/net/ipv6/conf/${name}/disable_ipv6`).trim();
    expect(disabled("cni4")).toBe("1");
    call(bridge, "ADD", { isGateway: true, ipam: both });
    expect(disabled("cni0")).toBe("0");
    expect(disabled("default")).toBe("1");
    ping(container, "fd00:1::1");
  },
);

bridgeTest("bridge ADD names the gateway's address and the bridge that the kernel refused", ({ call }) => {
  const gateway = ipam(address("10.1.2.2/24", "10.1.2.1"), address("::2/64", "::1"));
  expect(() => call(bridge, "ADD", { isGateway: true, ipam: gateway })).toThrow(
    /^Cannot add address ::1\/64 to "cni0": /,
  );
});

bridgeTest("bridge ADD with an IPAM plugin that is not there says so once", ({ call }) => {
  const error = errorOfCall(() => call(bridge, "ADD", { ipam: { type: "absent" } }));
  expect(error).toMatchObject({ code: 7, message: 'Cannot run plugin "absent": no such plugin is built in' });
  expect(error.details).toBeUndefined();
});
