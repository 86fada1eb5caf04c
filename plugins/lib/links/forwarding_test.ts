/** A host whose IPv6 default route is announced by its router begins to forward. */
import { expect, test } from "bun:test";
import { parseCidr, parseIp } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import * as link from "../../../ffi/route/link.ts";
import { findSysctl } from "../../../ffi/sys/sysctl.ts";
import { newCountingHost } from "../../../testing/counting_host.ts";
import { newFixedIpam } from "../../../testing/fixed_ipam.ts";
import { runInNetns, runIp, runShellInNetns, until, WITHOUT_DAD } from "../../../testing/netns.ts";
import { countingNetns } from "../../../testing/netlink_counts.ts";
import { advertiseRouter } from "../../../testing/router_advertisement.ts";
import { type Sandbox, sandboxTest } from "../../../testing/sandbox.ts";
import bridge from "../../bridge/plugin.ts";
import ptp from "../../ptp/plugin.ts";
import { acceptRa, enableForwarding, FORWARDING, hasRouter, listAdvertisedLinks } from "./forwarding.ts";

const { fixed } = newFixedIpam();
const ipam = {
  type: "fixed",
  result: { ips: [{ address: parseCidr("fd00:9::2/64"), gateway: parseIp("fd00:9::1") }] },
};

interface AdvertisedSandbox extends Sandbox {
  readonly router: Netns;
  readonly defaultRoute: () => string;
  readonly setting: (name: string) => string | undefined;
}

/** The router is behind `eth0`. @param lines of the shell that make the link that takes the routes */
async function newAdvertisedHost(sandbox: Sandbox, uplink = "eth0", ...lines: string[]): Promise<AdvertisedSandbox> {
  const { host } = sandbox;
  const router = sandbox.newContainer();
  const quiet = "for each in /proc/sys/net/ipv6/conf/*/router_solicitations; do echo 0 >$each; done";
  runShellInNetns(router, WITHOUT_DAD);
  const accepting = "echo 1 >/proc/sys/net/ipv6/conf/default/accept_ra";
  runShellInNetns(
    host,
    accepting,
    WITHOUT_DAD,
    quiet,
    `ip link add eth0 up type veth peer name lan0 netns ${router.path}`,
    ...lines,
  );
  runIp(router, "link set lan0 up", "addr add fe80::1/64 dev lan0 nodad");
  const defaultRoute = () => runInNetns(host, "ip", "-6", "route", "show", "default").trim();
  await until(() => {
    advertiseRouter(router, "lan0", "fe80::1", "2001:db8:7::");
    return defaultRoute() !== "";
  });
  expect(defaultRoute()).toStartWith(`default via fe80::1 dev ${uplink} proto ra`);
  return { ...sandbox, router, defaultRoute, setting: (name) => host.run(() => findSysctl(name)) };
}

const advertisedTest = (name: string, body: (sandbox: AdvertisedSandbox) => void | Promise<void>) =>
  sandboxTest(name, [fixed], async (sandbox) => body(await newAdvertisedHost(sandbox)));

advertisedTest("the kernel removes the route where nobody sets accept_ra", ({ host, defaultRoute }) => {
  runShellInNetns(host, "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
  expect(defaultRoute()).toBe("");
});

for (const [plugin, config] of [[bridge, { isGateway: true, ipam }], [ptp, { ipam }]] as const) {
  advertisedTest(
    `${plugin.name}: the first ADD keeps the host's IPv6 default route, and it is renewed`,
    async (sandbox) => {
      const { call, router, defaultRoute, setting, log, host } = sandbox;
      call(plugin, "ADD", config);
      expect(setting(FORWARDING[6])).toBe("1");
      expect(defaultRoute()).toStartWith("default via fe80::1 dev eth0 proto ra");
      expect(log).toContain(
        `${plugin.name}: Set net.ipv6.conf.eth0.accept_ra to 2: with 1, forwarding would remove its IPv6 default route`,
      );
      runInNetns(host, "ip", "-6", "route", "del", "default");
      advertiseRouter(router, "lan0", "fe80::1", "2001:db8:7::");
      await until(() => defaultRoute() !== "");
      // No container becomes the host's router.
      const others = runInNetns(host, "sh", "-c", "ls /proc/sys/net/ipv6/conf").trim().split("\n")
        .filter((name) => setting(acceptRa(name)) === "2");
      expect(others).toEqual(["eth0"]);
    },
  );
}

sandboxTest("a bridge of the administrator by which the host has its router keeps it", [fixed], async (sandbox) => {
  const uplink = ["ip link add br0 up type bridge; ip link set eth0 master br0"];
  const { call, defaultRoute, setting, router, host } = await newAdvertisedHost(sandbox, "br0", ...uplink);
  const kept = () => [setting(acceptRa("br0")), defaultRoute().slice(0, 27)];
  const isKept = (acceptRa: string) => [acceptRa, "default via fe80::1 dev br0"];
  call(bridge, "ADD", { bridge: "br0", ipam });
  expect(kept()).toEqual(isKept("1"));
  const second = { containerId: "c2", netns: sandbox.newContainer() };
  const gateway = { address: parseCidr("fd00:9::3/64"), gateway: parseIp("fd00:9::1") };
  const config = { bridge: "br0", isGateway: true, ipam: { ...ipam, result: { ips: [gateway] } } };
  call(bridge, "ADD", config, second);
  expect(kept()).toEqual(isKept("2"));
  // The router restarts: only its prefix is left.
  runInNetns(host, "ip", "-6", "route", "del", "default");
  call(bridge, "DEL", config, second);
  call(bridge, "ADD", config, second);
  advertiseRouter(router, "lan0", "fe80::1", "2001:db8:7::");
  await until(() => defaultRoute() !== "");
  expect(kept()).toEqual(isKept("2"));
});

test("whether a bridge leads to a router is told without the routes of other links", () => {
  const costBeside = (routes: number, ...lines: string[]) => {
    using resources = new DisposableStack();
    const { host, context, measure } = newCountingHost(resources);
    runShellInNetns(
      host,
      WITHOUT_DAD,
      ...["br0", "far0"].map((name) => `ip link add ${name} type bridge; ip link set ${name} addrgenmode none up`),
      "echo 1 >/proc/sys/net/ipv6/conf/br0/accept_ra",
      `for i in $(seq 1000 ${999 + routes}); do echo "route add fd80::$i/128 dev far0"; done | ip -6 -batch -`,
      ...lines,
    );
    const br0 = link.get(context.host.route, "br0");
    let answer: boolean | undefined;
    const counts = measure(() => void (answer = hasRouter(context.host, br0)));
    return { ...counts, answer };
  };
  const few = costBeside(2, "ip -6 route add default dev far0");
  expect(few.answer).toBe(false);
  expect(costBeside(200, "ip -6 route add default dev far0")).toEqual(few);
  expect(costBeside(2, "ip -6 route add default dev br0").answer).toBe(true);
});

advertisedTest("links that take no routes keep their setting", ({ host, setting }) => {
  runIp(
    host,
    "link add off0 type veth peer name far0",
    "link add br7 type bridge",
    "link add port0 master br7 type veth peer name far1",
    "link add forwards0 type veth peer name far2",
    "link add veth01234567 type veth peer name far3",
  );
  for (const name of ["far0", "far1", "far2", "far3", "br7"]) runIp(host, `link set ${name} addrgenmode none`);
  runShellInNetns(
    host,
    "cd /proc/sys/net/ipv6/conf",
    "echo 0 >off0/accept_ra; echo 1 >forwards0/forwarding; echo 0 >far0/accept_ra",
  );
  expect(listAdvertisedLinks(host).toSorted()).toEqual(["br7", "eth0", "far1", "far2", "far3"]);
  enableForwarding(host, [4, 6], () => {});
  expect([setting(acceptRa("off0")), setting(acceptRa("forwards0")), setting(acceptRa("port0"))]).toEqual([
    ...["0", "1", "1"],
  ]);
});

advertisedTest("a host that forwards already is asked nothing", ({ host, setting }) => {
  runShellInNetns(host, "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding");
  const counts = { sends: 0, messages: 0, dumps: 0, received: 0 };
  enableForwarding(countingNetns(host, counts), [6], () => {});
  expect(counts.sends).toBe(0);
  expect(setting(acceptRa("eth0"))).toBe("1");
});
