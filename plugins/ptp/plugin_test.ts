import { expect } from "bun:test";
import { parseCidr, parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { ipShow, linkNames, ping, runInNetns } from "../../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../../testing/traffic.ts";
import { type Sandbox, sandboxTest, withPrevResult } from "../../testing/sandbox.ts";
import { newFixedIpam } from "../../testing/fixed_ipam.ts";
import ptp from "./plugin.ts";
import type { CniError } from "../../spec/error.ts";

const { fixed, counts } = newFixedIpam();

const ip = (address: string, gateway?: string) => ({
  address: parseCidr(address),
  ...gateway ? { gateway: parseIp(gateway) } : {},
});
const ipam = (ips: ReturnType<typeof ip>[], more: object = {}) => ({ type: "fixed", result: { ips, ...more } });
const FOUR = ip("10.1.2.2/24", "10.1.2.1");
const SIX = ip("fd00:1::2/64", "fd00:1::1");
const both = ipam([FOUR, SIX], { routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }] });

const ptpTest = (name: string, body: (sandbox: Sandbox) => void | Promise<void>) => sandboxTest(name, [fixed], body);
/** Each route as `destination gateway device source metric`, without the kernel's own link-local ones. */
const routes = (netns: Netns, family: "-4" | "-6"): string[] =>
  runInNetns(netns, "ip", family, "route", "show").trim().split("\n").map((line) => line.trim().replace(/ +/g, " "))
    .filter((line) => !line.startsWith("fe80::")).map((line) =>
      line.replace(/ (proto \w+|metric 1024|pref medium)/g, "")
    );

ptpTest(
  "ptp ADD connects container and host on IPv4 and IPv6 as soon as it returns, both ways, by routes to addresses alone",
  ({ call, host, container }) => {
    const result = call(ptp, "ADD", { mtu: 1400, ipam: both });
    expect(result.interfaces!.map(({ name, sandbox }) => [name, sandbox])).toEqual([
      [expect.stringMatching(/^veth[0-9a-f]{8}$/), undefined],
      ["eth0", container.path],
    ]);
    expect(result.ips as unknown[]).toEqual([
      { address: "10.1.2.2/24", gateway: "10.1.2.1", interface: 1 },
      { address: "fd00:1::2/64", gateway: "fd00:1::1", interface: 1 },
    ]);
    ping(container, "fd00:1::1");
    ping(container, "10.1.2.1");
    ping(host, "fd00:1::2");
    ping(host, "10.1.2.2");
    const outer = result.interfaces![0]!.name;
    expect(ipShow(container, "link", "show", "eth0")[0]).toMatchObject({
      mtu: 1400,
      address: result.interfaces![1]!.mac,
    });
    expect(ipShow(host, "link", "show", outer)[0]).toMatchObject({
      mtu: 1400,
      address: result.interfaces![0]!.mac,
      ifalias: "cni:test c1 eth0",
      operstate: "UP",
    });
    expect(routes(container, "-4")).toEqual([
      "default via 10.1.2.1 dev eth0",
      "10.1.2.0/24 via 10.1.2.1 dev eth0 src 10.1.2.2",
      "10.1.2.1 dev eth0 scope link src 10.1.2.2",
    ]);
    expect(routes(container, "-6").sort()).toEqual([
      "default via fd00:1::1 dev eth0",
      "fd00:1::/64 via fd00:1::1 dev eth0 src fd00:1::2",
      "fd00:1::1 dev eth0 src fd00:1::2",
    ]);
    expect(routes(host, "-4")).toEqual([`10.1.2.2 dev ${outer} scope host`]);
    expect(routes(host, "-6")).toContain(`fd00:1::2 dev ${outer}`);
    expect(runInNetns(host, "cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding")).toBe(
      "1\n1\n",
    );
    expect(runInNetns(host, "cat", `/proc/sys/net/ipv6/conf/${outer}/accept_ra`)).toBe("0\n");
  },
);

ptpTest("ptp containers of one subnet reach each other through the host", async ({ call, container, newContainer }) => {
  call(ptp, "ADD", { ipam: both });
  const second = newContainer();
  const other = ipam([ip("10.1.2.3/24", "10.1.2.1"), ip("fd00:1::3/64", "fd00:1::1")]);
  call(ptp, "ADD", { ipam: other }, { netns: second, containerId: "c2" });
  using server = serveTcp(second, "second");
  expect(await requestTcp(container, "10.1.2.3", server.port)).toBe("second 10.1.2.2");
  expect(await requestTcp(container, "fd00:1::3", server.port)).toBe("second fd00:1::2");
});

ptpTest(
  "ptp gives single addresses, several of one subnet and several subnets their ways",
  ({ call, host, container }) => {
    const ips = [
      ip("10.1.2.2/32", "10.1.2.1"),
      ip("10.2.0.2/24", "10.2.0.1"),
      ip("10.2.0.3/24", "10.2.0.1"),
      ip("10.3.0.2/31", "10.3.0.3"),
      ip("fd00:1::2/128", "fd00:9::1"),
      ip("fd00:2::2/64", "fd00:2::1"),
    ];
    const config = { ipam: ipam(ips) };
    const result = call(ptp, "ADD", config);
    for (const each of ["10.1.2.1", "10.2.0.1", "10.3.0.3", "fd00:9::1", "fd00:2::1"]) ping(container, each);
    for (const each of ips) ping(host, each.address.split("/")[0]!);
    expect(routes(container, "-4").filter((each) => each.includes("10.2.0."))).toEqual([
      "10.2.0.0/24 via 10.2.0.1 dev eth0 src 10.2.0.2",
      "10.2.0.1 dev eth0 scope link src 10.2.0.2",
    ]);
    call(ptp, "CHECK", withPrevResult(config, result));
  },
);

ptpTest("ptp installs the routes of IPAM, also by another gateway than its own", ({ call, container }) => {
  const wanted = [
    { dst: "192.0.2.0/24" },
    { dst: "198.51.100.0/24", gw: "10.1.2.9", mtu: 1300 },
    { dst: "2001:db8::/32", table: 500 },
    { dst: "203.0.113.0/24", scope: 253, table: 500 },
  ];
  const config = { ipam: ipam([FOUR, SIX], { routes: wanted }) };
  const result = call(ptp, "ADD", config);
  expect(routes(container, "-4")).toEqual(expect.arrayContaining([
    "192.0.2.0/24 via 10.1.2.1 dev eth0",
    "198.51.100.0/24 via 10.1.2.9 dev eth0 onlink mtu 1300",
  ]));
  expect(ipShow(container, "-6", "route", "show", "table", "500")).toMatchObject([{
    dst: "2001:db8::/32",
    gateway: "fd00:1::1",
  }]);
  expect(ipShow(container, "route", "show", "table", "500")).toMatchObject([{ dst: "203.0.113.0/24", scope: "link" }]);
  call(ptp, "CHECK", withPrevResult(config, result));
});

ptpTest("ptp works where IPv6 is off by default, on either side", ({ call, host, container }) => {
  for (const netns of [host, container]) {
    runInNetns(netns, "sh", "-c", "for i in all default; do echo 1 >/proc/sys/net/ipv6/conf/$i/disable_ipv6; done");
  }
  call(ptp, "ADD", { ipam: both });
  ping(container, "fd00:1::1");
});

ptpTest("ptp ADD takes the DNS settings of the configuration, or else those of IPAM", ({ call }) => {
  const config = { ipam: ipam([FOUR], { dns: { nameservers: ["10.1.2.1"] } }) };
  expect(call(ptp, "ADD", config).dns).toEqual({ nameservers: ["10.1.2.1"] });
  call(ptp, "DEL", config);
  expect(call(ptp, "ADD", { ...config, dns: { domain: "a.example" } }).dns).toEqual({ domain: "a.example" });
});

ptpTest("ptp answers in the old versions too, and takes such results back", ({ call, host, container }) => {
  for (const cniVersion of ["0.1.0", "0.2.0", "0.3.1", "0.4.0"]) {
    const config = { cniVersion, ipMasq: true, ipam: both };
    const { ips } = call(ptp, "ADD", config);
    expect(ips!.map(({ address }) => address as string)).toEqual(["10.1.2.2/24", "fd00:1::2/64"]);
    call(ptp, "DEL", config);
    expect([linkNames(host), linkNames(container)]).toEqual([["lo"], ["lo"]]);
  }
});

/** What an ADD that failed leaves: the same as was there before. */
function expectNothing(sandbox: Sandbox, config: object, error: string | RegExp): CniError {
  const { call, host, container } = sandbox;
  const state = () => [
    ...[host, container].flatMap((each) => [linkNames(each), routes(each, "-4"), routes(each, "-6")]),
    // The table stays, and what is in it belongs to no container.
    runInNetns(host, "nft", "list", "ruleset").split("\n").filter((line) => line.includes("c1 eth0")),
  ];
  const before = state();
  const { add, del } = counts;
  let failure: unknown;
  try {
    call(ptp, "ADD", config);
  } catch (thrown) {
    failure = thrown;
  }
  expect(() => {
    if (failure) throw failure;
  }).toThrow(error);
  expect(state()).toEqual(before);
  expect(counts.add - add).toBe(counts.del - del);
  return failure as CniError;
}

ptpTest("ptp needs a gateway for every address and says so, with nothing done", (sandbox) => {
  const cases: [ReturnType<typeof ip>[], string][] = [
    [[ip("10.1.2.2/24")], 'Cannot connect 10.1.2.2/24: IPAM plugin "fixed" gave it no gateway'],
    [[FOUR, ip("fd00:1::2/64")], 'Cannot connect fd00:1::2/64: IPAM plugin "fixed" gave it no gateway'],
    [[ip("10.1.2.2/24", "fd00::1")], "gave it gateway fd00::1"],
    [[ip("10.1.2.2/24", "10.1.2.2")], "gave it itself as gateway"],
  ];
  for (const [ips, message] of cases) expect(expectNothing(sandbox, { ipam: ipam(ips) }, message).code).toBe(7);
});

ptpTest("ptp needs IPAM and addresses", (sandbox) => {
  for (const verb of ["ADD", "CHECK", "STATUS"] as const) {
    expect(() => sandbox.call(ptp, verb, {})).toThrow("ipam.type must be the name of an IPAM plugin");
  }
  expectNothing(sandbox, { ipam: ipam([]) }, 'IPAM plugin "fixed" returned no address');
});

ptpTest("ptp refuses an address that the host has another target, and names who has it", (sandbox) => {
  const { call, host, container, newContainer } = sandbox;
  call(ptp, "ADD", { ipam: both }, { containerId: "c0", netns: newContainer() });
  expectNothing(
    sandbox,
    { ipMasq: true, ipam: ipam([ip("10.1.2.9/24", "10.1.2.1"), FOUR]) },
    /Cannot give the container 10\.1\.2\.2: container "c0" \(.*\) has it on this host, behind "veth[0-9a-f]{8}"/,
  );
  expectNothing(sandbox, { ipam: ipam([SIX]) }, 'container "c0"');
  runInNetns(host, "ip", "link", "add", "mine", "up", "type", "veth", "peer", "name", "other");
  runInNetns(host, "ip", "route", "add", "10.7.0.2/32", "dev", "mine");
  const routed = { ipam: ipam([ip("10.7.0.2/24", "10.7.0.1")]) };
  expectNothing(sandbox, routed, 'the connected route to 10.7.0.2/32 by the host\'s link "mine"');
  expectNothing(sandbox, { ...routed, allowRouteOverlap: true }, 'routes packets for it to "mine"');
  expect(linkNames(container)).toEqual(["lo"]);
});

ptpTest("ptp leaves the addresses of a container alone that is attached already", ({ call, container }) => {
  call(ptp, "ADD", { ipam: both });
  const before = { ...counts };
  expect(() => call(ptp, "ADD", { ipam: both })).toThrow("the container has an interface of that name");
  expect(counts).toEqual(before);
  ping(container, "10.1.2.1");
});

ptpTest("ptp undoes all when a late step fails", (sandbox) => {
  const { host, container } = sandbox;
  const unreachable = ipam([FOUR], { routes: [{ dst: "192.0.2.0/24", gw: "172.16.0.1" }] });
  expectNothing(sandbox, { ipMasq: true, ipam: unreachable }, "add route to 192.0.2.0/24 via 172.16.0.1");
  runInNetns(container, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other");
  const taken = expectNothing(sandbox, { ipam: both }, "the container has an interface of that name");
  expect(taken.code).toBe(4);
  expect(linkNames(host)).toEqual(["lo"]);
});

ptpTest("ptp CHECK passes after ADD and names what has changed since", ({ call, host, container }) => {
  const config = { mtu: 1400, ipMasq: true, ipam: both };
  const result = call(ptp, "ADD", config);
  const check = () => call(ptp, "CHECK", withPrevResult(config, result));
  check();
  const outer = result.interfaces![0]!.name;
  const inside = result.interfaces![1]!.mac!;
  const drift: [Netns, string, string, string][] = [
    [
      container,
      "addr del fd00:1::2/64 dev eth0",
      "addr add fd00:1::2/64 dev eth0 nodad noprefixroute",
      '"eth0" lacks address fd00:1::2/64',
    ],
    [
      container,
      "route del 10.1.2.0/24",
      "route add 10.1.2.0/24 via 10.1.2.1",
      '"eth0" lacks the route to 10.1.2.0/24 via 10.1.2.1',
    ],
    [
      container,
      "route replace 10.1.2.0/24 dev eth0",
      "route replace 10.1.2.0/24 via 10.1.2.1",
      '"eth0" lacks the route to 10.1.2.0/24 via 10.1.2.1',
    ],
    [container, "route del default", "route add default via 10.1.2.1", '"eth0" lacks the route to 0.0.0.0/0'],
    [container, "-6 route del default", "-6 route add default via fd00:1::1", '"eth0" lacks the route to ::/0'],
    [container, "link set eth0 address 0a:00:00:00:00:09", `link set eth0 address ${inside}`, 'MAC address of "eth0"'],
    [container, "link set eth0 mtu 1300", "link set eth0 mtu 1400", 'MTU of "eth0" is 1300, expected 1400'],
    [host, `link set ${outer} mtu 1300`, `link set ${outer} mtu 1400`, `MTU of "${outer}" is 1300`],
    [
      host,
      "route del 10.1.2.2",
      `route add 10.1.2.2 dev ${outer} scope host`,
      `the host lacks the route to 10.1.2.2 dev "${outer}"`,
    ],
    [
      host,
      "-6 route del fd00:1::2",
      `-6 route add fd00:1::2 dev ${outer}`,
      `the host lacks the route to fd00:1::2 dev "${outer}"`,
    ],
    [
      host,
      `addr del 10.1.2.1/32 dev ${outer}`,
      `addr add 10.1.2.1/32 dev ${outer}; route add 10.1.2.2 dev ${outer} scope host`,
      `gateway address 10.1.2.1/32 is missing on "${outer}"`,
    ],
  ];
  for (const [netns, change, back, message] of drift) {
    runInNetns(netns, "ip", ...change.split(" "));
    expect(check, change).toThrow(message);
    for (const each of back.split("; ")) runInNetns(netns, "ip", ...each.split(" "));
    check();
  }
  runInNetns(host, "nft", "flush", "ruleset");
  expect(check).toThrow("masquerading");
  runInNetns(host, "ip", "link", "set", outer, "down");
  expect(check).toThrow(`operational state of "${outer}" is "down", expected "up"`);
  runInNetns(container, "ip", "link", "del", "eth0");
  expect(check).toThrow('interface "eth0" is missing');
  runInNetns(container, "ip", "link", "add", "eth0", "up", "type", "bridge");
  expect(check).toThrow('"eth0"');
  expect(() => call(ptp, "CHECK", config)).toThrow("prevResult is missing");
});

ptpTest("ipMasqBackend changes nothing: the rules are the same, in the one table", ({ call, host }) => {
  const rulesFor = (more: object) => {
    const config = { ipMasq: true, ipam: both, ...more };
    call(ptp, "CHECK", withPrevResult(config, call(ptp, "ADD", config)));
    const rules = runInNetns(host, "nft", "-s", "list", "ruleset");
    call(ptp, "DEL", config);
    return rules;
  };
  const expected = rulesFor({});
  expect(expected).toContain("c1 eth0");
  for (const ipMasqBackend of ["iptables", "nftables"]) expect(rulesFor({ ipMasqBackend })).toBe(expected);
});

ptpTest("ptp DEL leaves nothing, also a second time, and without namespace or result", ({ call, host, container }) => {
  const config = { ipMasq: true, ipam: both };
  const gone = "/run/netns/absent";
  for (const netns of [container, null, gone]) {
    for (const knows of [true, false]) {
      const result = call(ptp, "ADD", config);
      const request = knows ? withPrevResult(config, result) : config;
      const { del } = counts;
      call(ptp, "DEL", request, { netns });
      expect(linkNames(host)).toEqual(["lo"]);
      expect(linkNames(container)).toEqual(["lo"]);
      expect(runInNetns(host, "nft", "list", "ruleset")).not.toContain("c1 eth0");
      call(ptp, "DEL", request, { netns });
      expect(counts.del).toBe(del + 2);
    }
  }
  call(ptp, "DEL", {});
});

ptpTest(
  "ptp DEL leaves alone what is not its own: interfaces of other kinds, cables of others",
  ({ call, host, container }) => {
    runInNetns(container, "ip", "link", "add", "eth0", "type", "bridge");
    call(ptp, "DEL", { ipam: both });
    expect(linkNames(container)).toEqual(["eth0", "lo"]);
    runInNetns(container, "ip", "link", "del", "eth0");
    const result = call(ptp, "ADD", { ipam: both });
    call(ptp, "DEL", withPrevResult({ ipam: both }, result), { netns: null, containerId: "c2" });
    expect(linkNames(host)).toEqual(["lo", result.interfaces![0]!.name]);
  },
);

ptpTest(
  "ptp DEL leaves alone what another container has that came to the path of the namespace",
  ({ call, host, container }) => {
    const config = { ipam: both };
    const result = call(ptp, "ADD", config);
    const late = { containerId: "c2" };
    call(ptp, "DEL", config, late);
    call(ptp, "DEL", withPrevResult(config, { ...result, interfaces: [{ name: "veth00000000" }] }), late);
    expect(linkNames(container)).toEqual(["eth0", "lo"]);
    // The reference says nowhere whose it is.
    runInNetns(host, "ip", "link", "set", result.interfaces![0]!.name, "alias", "");
    call(ptp, "DEL", config, late);
    expect([linkNames(host), linkNames(container)]).toEqual([["lo"], ["lo"]]);
  },
);

ptpTest(
  "ptp GC removes cables and rules of the dead of its own network only",
  ({ call, host, container, newContainer }) => {
    const config = { ipMasq: true, ipam: ipam([FOUR]) };
    const attach = (containerId: string, name: string, address: string, netns: Netns) =>
      call(ptp, "ADD", { name, ipMasq: true, ipam: ipam([ip(`${address}/24`, "10.1.2.1")]) }, { containerId, netns })
        .interfaces![0]!.name;
    const dead = attach("dead", "test", "10.1.2.2", newContainer());
    const living = attach("living", "test", "10.1.2.3", container);
    const foreign = attach("dead", "other", "10.1.2.4", newContainer());
    const { gc } = counts;
    call(ptp, "GC", { ...config, "cni.dev/valid-attachments": [{ containerID: "living", ifname: "eth0" }] });
    expect(linkNames(host)).toEqual(["lo", living, foreign].sort());
    expect(linkNames(host)).not.toContain(dead);
    const rules = runInNetns(host, "nft", "list", "ruleset");
    expect(["test dead eth0", "test living eth0", "other dead eth0"].map((each) => rules.includes(each))).toEqual([
      false,
      true,
      true,
    ]);
    expect(counts.gc).toBe(gc + 1);
  },
);

ptpTest("ptp STATUS asks IPAM, and whether there can be rules", ({ call }) => {
  const { status } = counts;
  call(ptp, "STATUS", { ipMasq: true, ipam: both });
  expect(counts.status).toBe(status + 1);
});

ptpTest("ptp takes no MTU that no link has", (sandbox) => {
  for (const mtu of [-1, 70_000, "1400"]) expectNothing(sandbox, { mtu, ipam: both }, "mtu must be");
  expectNothing(sandbox, { ipMasqBackend: "x", ipam: both }, "ipMasqBackend must be");
});

/** A machine behind the host that has no route to the containers. */
function addOutside({ host, newContainer }: Sandbox): Netns {
  const outside = newContainer();
  const put = (netns: Netns, ...lines: string[]) => runInNetns(netns, "sh", "-e", "-c", lines.join("\n"));
  put(host, `ip link add up0 type veth peer name eth0 netns ${outside.path}`);
  for (const [netns, last, device] of [[host, 1, "up0"], [outside, 2, "eth0"]] as const) {
    put(netns, `ip addr add 192.0.2.${last}/24 dev ${device}; ip addr add 2001:db8::${last}/64 dev ${device} nodad`);
    put(netns, `ip link set ${device} up`);
  }
  return outside;
}

ptpTest(
  "ptp with ipMasq reaches what is outside under the host's address; restore puts the rules back",
  async (sandbox) => {
    const { call, restore, host, container } = sandbox;
    const outside = addOutside(sandbox);
    using server = serveTcp(outside, "outside");
    const ask = (patience?: number) =>
      Promise.all(["192.0.2.2", "2001:db8::2"].map((each) => requestTcp(container, each, server.port, patience)));
    const plain = { ipam: both };
    call(ptp, "ADD", plain);
    expect(await ask(NO_ANSWER_TIMEOUT_MS)).toEqual([undefined, undefined]);
    call(ptp, "DEL", plain);

    const config = { ipMasq: true, ipam: both };
    const attached = withPrevResult(config, call(ptp, "ADD", config));
    expect(await ask()).toEqual(["outside 192.0.2.1", "outside 2001:db8::1"]);
    expect(restore(ptp, attached)).toEqual([]);
    runInNetns(host, "nft", "flush", "ruleset");
    expect(await ask(NO_ANSWER_TIMEOUT_MS)).toEqual([undefined, undefined]);
    expect(restore(ptp, attached).toSorted()).toEqual(["masquerading of 10.1.2.2", "masquerading of fd00:1::2"]);
    expect(await ask()).toEqual(["outside 192.0.2.1", "outside 2001:db8::1"]);
    expect(restore(ptp, { ...attached, ipMasq: false })).toEqual([]);
  },
);

ptpTest("ptp takes a gateway outside the subnet of its address", ({ call, container }) => {
  call(ptp, "ADD", { ipam: ipam([ip("10.1.2.2/24", "169.254.1.1"), ip("fd00:1::2/64", "fd00:9::1")]) });
  ping(container, "169.254.1.1");
  ping(container, "fd00:9::1");
});
