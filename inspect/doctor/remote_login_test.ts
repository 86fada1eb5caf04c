/** Advice that can cut off whoever reads it over the network. */
import { beforeAll, expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runInNetns, runIp, runShellInNetns, until } from "../../testing/netns.ts";
import { advertiseRouter } from "../../testing/router_advertisement.ts";
import { checkRoutesBack } from "./checks/routes_back.ts";

beforeAll(() => loadPlugins());

test("no advice removes a connected route", () => {
  using doctorHost = newDoctorHost();
  runIp(doctorHost.host, "addr add 10.9.0.5/29 dev up0", "route add 10.9.0.4/31 dev up0");
  const { findings } = doctorHost.examine();
  expect(findings.filter(({ check, severity }) => check === "host routes" && severity !== "ok")).toEqual([{
    check: "host routes",
    severity: "broken",
    what: 'subnet 10.9.0.0/29 overlaps address 10.9.0.5/29 of the host\'s link "up0"',
    advice: "choose another subnet in the configuration, then attach the containers anew",
  }]);
  expect(JSON.stringify(findings)).not.toContain("route del");
});

test("nothing is said where the configuration wants the overlap, unless containers cannot be reached", async () => {
  const main = { type: "bridge", bridge: "br9", isGateway: true, ipMasq: true, allowRouteOverlap: true };
  using doctorHost = newDoctorHost({ main });
  using _ = await doctorHost.serve();
  runIp(doctorHost.host, "addr add 10.9.0.5/29 dev up0");
  expect(doctorHost.broken()).toEqual([]);
});

test("routes of routers and tunnels are warnings, and their removal is marked", () => {
  using doctorHost = newDoctorHost();
  doctorHost.shell(
    "ip route add 10.0.0.0/13 via 192.0.2.2; ip route add 10.9.0.0/29 via 192.0.2.2 metric 50",
    "ip tuntap add wg0 mode tun; ip link set wg0 up; ip route add 10.8.0.0/14 dev wg0",
  );
  const findings = doctorHost.withSubject(checkRoutesBack).filter(({ severity }) => severity !== "ok");
  expect(findings.map(({ severity, what, mend, mayDisconnect }) => [severity, what, mend, mayDisconnect]).toSorted())
    .toEqual([
      [
        "warning",
        'subnet 10.9.0.0/29 is part of 10.8.0.0/14, which the host routes to "wg0"',
        "ip route del 10.8.0.0/14 dev wg0",
        true,
      ],
      ["warning", 'the host routes subnet 10.9.0.0/29 to "up0" too', "ip route del 10.9.0.0/29 dev up0", true],
    ]);
});

test("a link that lost the route of its router is named, and mended", async () => {
  using doctorHost = newDoctorHost();
  const { host, outside, shell } = doctorHost;
  const acceptRa = () => runInNetns(host, "cat", "/proc/sys/net/ipv6/conf/up0/accept_ra").trim();
  const hasRoute = () => runInNetns(host, "ip", "-6", "route", "show", "default").includes("proto ra");
  const lost = {
    check: "forwarding",
    severity: "warning",
    what:
      'net.ipv6.conf.up0.accept_ra is 1, and the host forwards: "up0" has lost the IPv6 default route of its router',
    advice: "the route comes with the router's next advertisement, within some minutes",
    mend: "sysctl -w net.ipv6.conf.up0.accept_ra=2",
    repair: { kind: "sysctl", name: "net/ipv6/conf/up0/accept_ra", value: "2" },
  } as const;
  runIp(outside, "addr add fe80::1 dev eth0 nodad");
  runIp(host, "-6 route del default");
  // The first ADD is over: the host forwards.
  shell("echo 2 >/proc/sys/net/ipv6/conf/up0/accept_ra");
  const advertise = () => advertiseRouter(outside, "eth0", "fe80::1", "2001:db8:7::");
  await until(() => (advertise(), hasRoute()));
  // As a link that came after the first ADD.
  shell("echo 1 >/proc/sys/net/ipv6/conf/up0/accept_ra");
  expect(doctorHost.examine().findings).toContainEqual({ ...lost, what: lost.what.replace("has lost", "will lose") });
  shell("echo 0 >/proc/sys/net/ipv6/conf/all/forwarding; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
  expect(hasRoute()).toBe(false);
  expect(doctorHost.examine().findings).toContainEqual(lost);
  doctorHost.fix();
  expect(acceptRa()).toBe("2");
  await until(() => (advertise(), hasRoute()));
  expect(doctorHost.examine().findings.filter(({ what }) => what.includes("accept_ra"))).toEqual([]);
});

test("--fix turns forwarding on, and keeps the route of the router", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { host, outside, shell } = doctorHost;
  const hasRoute = () => runInNetns(host, "ip", "-6", "route", "show", "default").includes("proto ra");
  runIp(outside, "addr add fe80::1 dev eth0 nodad");
  shell("echo 0 >/proc/sys/net/ipv6/conf/all/forwarding; echo 1 >/proc/sys/net/ipv6/conf/up0/accept_ra");
  runIp(host, "-6 route del default");
  await until(() => {
    advertiseRouter(outside, "eth0", "fe80::1", "2001:db8:7::");
    return hasRoute();
  });
  const [found] = doctorHost.examine().findings.filter(({ check }) => check === "forwarding");
  expect(found).toMatchObject({
    severity: "broken",
    what: "net.ipv6.conf.all.forwarding is 0: the host forwards no IPv6 packets",
    mend: "sysctl -w net.ipv6.conf.up0.accept_ra=2 net.ipv6.conf.all.forwarding=1",
    repair: { kind: "forwarding", family: 6 },
  });
  expect(doctorHost.fix()).toEqual([]);
  expect(hasRoute()).toBe(true);
  runShellInNetns(host, "test $(cat /proc/sys/net/ipv6/conf/all/forwarding) = 1");
});
