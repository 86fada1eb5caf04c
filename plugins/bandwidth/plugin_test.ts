import { expect, test } from "bun:test";
import type { Netns } from "../../ffi/netns/netns.ts";
import { runInNetns } from "../../testing/netns.ts";
import bandwidth from "./plugin.ts";
import { attachmentIfbName, referenceIfbName } from "./ifb.ts";
import { connectContainer, hostLinkNames, trafficControl } from "../../testing/bandwidth.ts";
import { type Sandbox, sandboxTest } from "../../testing/sandbox.ts";

const LIMITS = { ingressRate: "8Mbit", ingressBurst: "20kB", egressRate: "16Mbit", egressBurst: "40kB" };
const NAME = referenceIfbName({ network: "test", containerId: "c1" });
const ip = (netns: Netns, args: string) => runInNetns(netns, "ip", ...args.split(" "));
const tc = (netns: Netns, args: string) => runInNetns(netns, "tc", ...args.split(" "));

/** A container that is connected by `veth1`. */
function connected({ host, container }: Sandbox) {
  const prevResult = connectContainer({ host, container, port: "veth1", n: 1 });
  return { prevResult, ...LIMITS };
}

const received = { kind: "tbf", handle: "1:", dev: "veth1", rate: 1_000_000, burst: 20_000, lat: 25_000 };
const redirected = (dev: string, ifb: string) => ({
  kind: "ingress",
  handle: "ffff:",
  dev,
  filters: [{
    protocol: "all",
    pref: 1,
    kind: "u32",
    flowid: "1:1",
    match: { value: "0", mask: "0", offmask: "", off: 0 },
    to: `redirect egress ${ifb} stolen`,
  }],
});
const sent = { kind: "tbf", handle: "1:", dev: NAME, rate: 2_000_000, burst: 40_000, lat: 25_000 };

test("names of ifbs are the reference's", () => {
  expect(referenceIfbName({ network: "cni-plugin-bandwidth-test", containerId: "dummy" })).toBe("bwpa8eda89404b7");
});

sandboxTest("bandwidth ADD limits both directions, CHECK accepts it, DEL removes the ifb, twice", [], (sandbox) => {
  const { call, host, container, log } = sandbox;
  const config = connected(sandbox);
  const result = call(bandwidth, "ADD", config);
  expect(trafficControl(host)).toEqual([sent, received, redirected("veth1", NAME)]);
  const [ifb] = JSON.parse(ip(host, `-j -d link show ${NAME}`));
  expect(ifb).toMatchObject({ ifalias: "cni:test c1 eth0", mtu: 1400, flags: expect.arrayContaining(["UP"]) });
  expect(ifb.txqlen ?? 0).toBe(0);
  expect(result.interfaces).toEqual([...config.prevResult.interfaces, { name: NAME, mac: ifb.address }]);
  call(bandwidth, "CHECK", { ...config, prevResult: { cniVersion: "1.1.0", ...result } });
  expect(log).toEqual([]);
  call(bandwidth, "DEL", { ...config, prevResult: { cniVersion: "1.1.0", ...result } }, { netns: container });
  expect(hostLinkNames(host)).toEqual(["veth1"]);
  call(bandwidth, "DEL", config);
});

sandboxTest("bandwidth limits one direction and leaves the other alone", [], (sandbox) => {
  const { call, host } = sandbox;
  const { prevResult } = connected(sandbox);
  const { ingressRate, ingressBurst, egressRate, egressBurst } = LIMITS;
  const egress = { prevResult, egressRate, egressBurst };
  expect(call(bandwidth, "ADD", egress).interfaces).toHaveLength(3);
  expect(trafficControl(host)).toEqual([sent, redirected("veth1", NAME)]);
  call(bandwidth, "CHECK", egress);
  // A second entry of the same list may limit the other direction.
  const ingress = { prevResult, ingressRate, ingressBurst };
  expect(call(bandwidth, "ADD", ingress).interfaces).toHaveLength(2);
  expect(trafficControl(host)).toEqual([sent, received, redirected("veth1", NAME)]);
  call(bandwidth, "CHECK", ingress);
});

sandboxTest("bandwidth without limits hands the result on, whatever the interface, and wants one", [], (sandbox) => {
  const { call, container, host } = sandbox;
  ip(container, "link add eth0 type bridge");
  const prevResult = { cniVersion: "1.1.0", interfaces: [{ name: "eth0", sandbox: container.path }] };
  for (const config of [{}, { ingressRate: 0, runtimeConfig: { bandwidth: LIMITS } }]) {
    expect(call(bandwidth, "ADD", { prevResult, ...config })).toEqual({ interfaces: prevResult.interfaces });
    call(bandwidth, "CHECK", { prevResult, ...config });
    expect(() => call(bandwidth, "ADD", config)).toThrow('Cannot run "bandwidth": prevResult is missing');
  }
  expect(hostLinkNames(host)).toEqual([]);
});

sandboxTest("bandwidth takes the capability, in any case", [], (sandbox) => {
  const { prevResult } = connected(sandbox);
  sandbox.call(bandwidth, "ADD", { prevResult, runtimeConfig: { bandWidth: LIMITS } });
  expect(trafficControl(sandbox.host)).toEqual([sent, received, redirected("veth1", NAME)]);
});

sandboxTest("bandwidth limits the host's end of the right cable among several", [], (sandbox) => {
  const { call, host, container } = sandbox;
  const others = ["veth7", "veth8"].map((port, i) =>
    connectContainer({ host, container, port, ifname: `net${i}`, n: 7 + i }).interfaces
  );
  const { prevResult } = connected(sandbox);
  const interfaces = [...others.flat(), ...prevResult.interfaces];
  call(bandwidth, "ADD", { ...LIMITS, prevResult: { ...prevResult, interfaces } });
  expect(trafficControl(host)).toEqual([sent, received, redirected("veth1", NAME)]);
});

sandboxTest("bandwidth refuses what it cannot limit", [], (sandbox) => {
  const { call, host, container, newContainer } = sandbox;
  const { prevResult } = connected(sandbox);
  const refused = (config: object, reason: string, ifname = "eth0") => {
    for (const verb of ["ADD", "CHECK"] as const) {
      expect(() => call(bandwidth, verb, { prevResult, ...LIMITS, ...config }, { ifname })).toThrow(reason);
    }
  };
  const unnamed = 'prevResult does not name its other end "veth1" as an interface of the host';
  refused({ prevResult: { interfaces: [] } }, unnamed);
  refused({ prevResult: { interfaces: [{ name: "veth2" }] } }, unnamed);
  refused({ prevResult: { interfaces: [{ name: "veth1", sandbox: container.path }] } }, unnamed);
  refused({ prevResult: null }, 'Cannot run "bandwidth": prevResult is missing');
  ip(container, "link add br7 type bridge");
  refused({}, 'Cannot limit the bandwidth of "br7": it is of kind "bridge"', "br7");
  refused({}, 'Cannot limit the bandwidth of "lo": it is no virtual interface', "lo");
  refused({}, 'Cannot find link "net5": No such device', "net5");
  connectContainer({ host: newContainer(), container, port: "veth1", ifname: "net1", n: 9 });
  refused({}, 'Cannot limit the bandwidth of "net1": its other end is in another namespace', "net1");
  ip(container, "link add net2 type veth peer name net3");
  refused({}, 'Cannot limit the bandwidth of "net2": its other end is in another namespace', "net2");
  expect([trafficControl(host), hostLinkNames(host)]).toEqual([[], ["veth1"]]);
});

sandboxTest("two interfaces of a container on one network have a limit each", [], (sandbox) => {
  const { call, host, container } = sandbox;
  const second = attachmentIfbName({ network: "test", containerId: "c1", ifname: "eth1" });
  for (const first of ["eth0", "eth1"]) {
    const one = connected(sandbox);
    const prevResult = connectContainer({ host, container, port: "veth2", ifname: "eth1", n: 2 });
    const two = { prevResult, egressRate: "1Mbit", egressBurst: "20kB" };
    const slow = { kind: "tbf", handle: "1:", dev: second, rate: 125_000, burst: 20_000, lat: 25_000 };
    call(bandwidth, "ADD", one);
    call(bandwidth, "ADD", two, { ifname: "eth1" });
    expect(new Set(trafficControl(host))).toEqual(
      new Set([sent, slow, received, redirected("veth1", NAME), redirected("veth2", second)]),
    );
    call(bandwidth, "CHECK", one);
    call(bandwidth, "CHECK", two, { ifname: "eth1" });
    call(bandwidth, "DEL", {}, { ifname: first });
    expect(hostLinkNames(host)).toEqual([first === "eth0" ? second : NAME, "veth1", "veth2"]);
    const [lost, kept] = first === "eth0" ? [one, two] : [two, one];
    expect(() => call(bandwidth, "CHECK", lost, { ifname: first })).toThrow("Check failed: the ifb that limits what");
    call(bandwidth, "CHECK", kept, { ifname: first === "eth0" ? "eth1" : "eth0" });
    call(bandwidth, "DEL", {}, { ifname: first === "eth0" ? "eth1" : "eth0", netns: null });
    expect(hostLinkNames(host)).toEqual(["veth1", "veth2"]);
    for (const port of hostLinkNames(host)) ip(host, `link del ${port}`);
  }
});

sandboxTest("bandwidth DEL needs neither namespace nor result nor a configuration that can be used", [], (sandbox) => {
  const { call, host, log } = sandbox;
  const config = connected(sandbox);
  const wrong = [{}, { INGRESSrate: 5 }, { egressRate: "fast", egressBurst: [] }, { runtimeConfig: { bandwidth: 1 } }];
  for (const each of wrong) {
    call(bandwidth, "ADD", config);
    ip(host, "link del veth1");
    for (const netns of [null, "/nonexistent/x"]) call(bandwidth, "DEL", each, { netns });
    expect(hostLinkNames(host)).toEqual([]);
    connectContainer({ host, container: sandbox.container, port: "veth1", n: 1 });
  }
  expect(log.some((line) => line.includes("INGRESSrate must be set together with ingressBurst"))).toBe(true);
});

sandboxTest("bandwidth DEL keeps what is not the container's", [], (sandbox) => {
  const { call, host } = sandbox;
  connected(sandbox);
  const mine = attachmentIfbName({ network: "test", containerId: "c1", ifname: "eth0" });
  // By the reference, and listed by the result of another interface only; of another container; of another kind.
  ip(host, `link add ${NAME} type ifb`);
  ip(host, `link add ${mine} type ifb`);
  ip(host, `link set ${mine} alias other`);
  call(bandwidth, "DEL", { prevResult: { interfaces: [{ name: "veth1" }, { name: NAME, sandbox: "/x" }] } });
  expect(hostLinkNames(host)).toEqual([NAME, mine, "veth1"].sort());
  call(bandwidth, "DEL", { prevResult: { interfaces: [{ name: NAME }] } });
  expect(hostLinkNames(host)).toEqual([mine, "veth1"]);
  ip(host, `link add ${NAME} type bridge`);
  call(bandwidth, "DEL", {});
  expect(hostLinkNames(host)).toEqual([NAME, mine, "veth1"].sort());
});

sandboxTest("bandwidth ADD undoes what it did when it fails", [], (sandbox) => {
  const { call, host } = sandbox;
  const config = connected(sandbox);
  const mine = attachmentIfbName({ network: "test", containerId: "c1", ifname: "eth0" });
  for (const name of [NAME, mine]) {
    ip(host, `link add ${name} type ifb`);
    ip(host, `link set ${name} alias other`);
  }
  expect(() => call(bandwidth, "ADD", config)).toThrow(`Cannot add link "${mine}": File exists`);
  expect([trafficControl(host), hostLinkNames(host)]).toEqual([[], [NAME, mine, "veth1"].sort()]);
  for (const name of [NAME, mine]) ip(host, `link del ${name}`);
  // The version of the result cannot say it, which shows after everything was done.
  expect(() => call(bandwidth, "ADD", { ...config, cniVersion: "0.2.0" })).toThrow("cannot convert");
  expect([trafficControl(host), hostLinkNames(host)]).toEqual([[], ["veth1"]]);
});

sandboxTest("a second ADD fails and leaves the first; what a lost container left is replaced", [], (sandbox) => {
  const { call, host, container } = sandbox;
  const config = connected(sandbox);
  call(bandwidth, "ADD", config);
  const { prevResult, egressRate, egressBurst } = config;
  expect(() => call(bandwidth, "ADD", config)).toThrow('Cannot limit what "eth0" receives: it is limited already');
  expect(() => call(bandwidth, "ADD", { prevResult, egressRate, egressBurst })).toThrow(
    'Cannot limit what "eth0" sends: it is limited already',
  );
  call(bandwidth, "CHECK", config);
  ip(host, "link del veth1");
  expect(hostLinkNames(host)).toEqual([NAME]);
  connectContainer({ host, container, port: "veth1", n: 1 });
  call(bandwidth, "ADD", config);
  call(bandwidth, "CHECK", config);
  expect(hostLinkNames(host)).toEqual([NAME, "veth1"]);
});

sandboxTest("bandwidth CHECK finds every change", [], (sandbox) => {
  const { call, host } = sandbox;
  const config = connected(sandbox);
  const slower = "rate 7mbit burst 20000 limit 45000";
  const filter = "filter add dev veth1 parent ffff: protocol all prio 1 u32 match u32";
  for (
    const [commands, reason] of [
      [["qdisc del dev veth1 root"], 'queueing discipline of "veth1" is "noqueue", expected "tbf"'],
      [
        [`qdisc replace dev veth1 root handle 1: tbf ${slower}`],
        'rate of "veth1" in bytes per second is 875000, expected',
      ],
      [
        ["qdisc replace dev veth1 root handle 1: tbf rate 8mbit burst 20000 limit 50000"],
        'queue of "veth1" in bytes is 50000',
      ],
      [
        ["qdisc replace dev veth1 root handle 1: tbf rate 8mbit burst 30000 limit 45000"],
        'burst of "veth1" is not 20000 bytes',
      ],
      [["qdisc del dev veth1 ingress"], 'ingress discipline of "veth1" is missing, expected "ingress"'],
      [["filter del dev veth1 parent ffff:"], 'link that packets of "veth1" are redirected to is missing'],
      [
        ["filter del dev veth1 parent ffff:", `${filter} 0 0 action mirred egress redirect dev veth1`],
        `link that packets of "veth1" are redirected to is "veth1", expected "${NAME}"`,
      ],
      [
        ["filter del dev veth1 parent ffff:", `${filter} 1 1 action mirred egress redirect dev ${NAME}`],
        'link that packets of "veth1" are redirected to is missing',
      ],
      [[`qdisc del dev ${NAME} root`], `queueing discipline of "${NAME}" is`],
      [[`qdisc replace dev ${NAME} root handle 1: tbf ${slower}`], `rate of "${NAME}" in bytes per second is`],
      [[`ip link set ${NAME} down`], `administrative state of "${NAME}" is "down"`],
      [[`ip link del ${NAME}`], 'the ifb that limits what "eth0" sends is missing on the host'],
      [[`ip link set ${NAME} alias other`], 'the ifb that limits what "eth0" sends is missing on the host'],
    ] as [string[], string][]
  ) {
    call(bandwidth, "ADD", config);
    call(bandwidth, "CHECK", config);
    for (const each of commands) each.startsWith("ip ") ? ip(host, each.slice(3)) : tc(host, each);
    expect(() => call(bandwidth, "CHECK", config)).toThrow(`Check failed: ${reason}`);
    for (const each of hostLinkNames(host)) ip(host, `link del ${each}`);
    connectContainer({ host, container: sandbox.container, port: "veth1", n: 1 });
  }
});

sandboxTest("bandwidth GC removes the ifbs of the dead and no others", [], (sandbox) => {
  const { call, host, newContainer } = sandbox;
  const attach = (containerId: string, n: number, name = "test") => {
    const container = newContainer();
    const prevResult = connectContainer({ host, container, port: `veth${n}`, n });
    call(bandwidth, "ADD", { name, prevResult, ...LIMITS }, { containerId, netns: container });
    return referenceIfbName({ network: name, containerId });
  };
  const [dead, alive, other] = [attach("c1", 1), attach("c2", 2), attach("c1", 3, "other")];
  // What the reference made: in use, orphaned, just being made, and of an attachment that lives.
  const [used, orphan, unfinished] = ["bwp000000000001", "bwp000000000002", "bwp000000000003"];
  const living = referenceIfbName({ network: "test", containerId: "c9" });
  for (const name of [used, orphan, unfinished, living, "bwp0", "ifb7"]) ip(host, `link add ${name} type ifb`);
  // Somebody else's, with an alias that begins like the network's name.
  runInNetns(host, "ip", "link", "set", "ifb7", "alias", "test server uplink");
  for (const name of [used, orphan, living]) {
    tc(host, `qdisc add dev ${name} root tbf rate 1mbit burst 20000 limit 50000`);
  }
  connectContainer({ host, container: newContainer(), port: "veth4", n: 4 });
  tc(host, "qdisc add dev veth4 ingress");
  const redirect = "parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect";
  tc(host, `filter add dev veth4 ${redirect} dev ${used}`);
  const gone = hostLinkNames(host).filter((name) => name !== dead && name !== orphan);
  const valid = ["c2", "c9"].map((containerID) => ({ containerID, ifname: "eth0" }));
  const collect = (config: object = {}) => call(bandwidth, "GC", { "cni.dev/valid-attachments": valid, ...config });
  expect(hostLinkNames(host)).toEqual(expect.arrayContaining([dead, alive, other, orphan]));
  collect();
  expect(hostLinkNames(host)).toEqual(gone);
  collect(LIMITS);
  expect(hostLinkNames(host)).toEqual(gone);
});

sandboxTest("bandwidth ADD tells of bursts that make a limit void or too tight", [], (sandbox) => {
  const config = connected(sandbox);
  sandbox.call(bandwidth, "ADD", { ...config, ingressBurst: 4294967295, egressBurst: "1400B" });
  expect(sandbox.log).toEqual([
    expect.stringMatching(
      /^bandwidth: The ingress limit of "eth0" .* burst 4294967295 bit is 537 seconds of traffic at 8000000 bit\/s/,
    ),
    expect.stringMatching(/^bandwidth: The egress limit of "eth0" .* less than one packet of 11312 bit \(MTU 1400\)/),
  ]);
});

sandboxTest("bandwidth STATUS tries the kernel and leaves nothing", [], ({ call, host, log }) => {
  call(bandwidth, "STATUS", LIMITS);
  expect([hostLinkNames(host), trafficControl(host), log]).toEqual([[], [], []]);
});

sandboxTest("bandwidth ADD answers in version 0.3.0", [], (sandbox) => {
  const config = { cniVersion: "0.3.0", ...connected(sandbox) };
  const { interfaces } = sandbox.call(bandwidth, "ADD", config);
  expect(interfaces).toEqual([...config.prevResult.interfaces, { name: NAME, mac: expect.any(String) }]);
});
