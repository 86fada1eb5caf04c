/** What happens to a lease as time goes by, with Kea, whose leases may last seconds. */
import { expect } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CLOCK_BOOTTIME } from "../../../ffi/sys/boot_clock.ts";
import { ignoreErrors } from "../../../ffi/sys/error.ts";
import { type DhcpLan, dhcpLanTest } from "../../../testing/dhcp.ts";
import { findShownLink, shownAddresses } from "../../../testing/fixture_configs.ts";
import { ping, runIp, runShellInNetns, until } from "../../../testing/netns.ts";
import { errorOfCall } from "../../../testing/plugin_call.ts";
import { leaseFileName } from "../protocol.ts";
import type { LeaseDuration } from "./terms.ts";

const lanTest = (name: string, body: (lan: DhcpLan) => Promise<void>) =>
  dhcpLanTest(name, body, ["kea-dhcp4", "dnsmasq"]);

const QUICK = { prefix: "10.7.0", renew: 1, rebind: 2, lifetime: 4 };

const addressesOf = ({ container }: DhcpLan): string[] => shownAddresses(findShownLink(container));

const count = (text: string, word: string): number => text.split(word).length - 1;

/** The clock of each timer that a process has, and the seconds until it ends. */
const timersOf = (pid: number): number[][] =>
  readdirSync(`/proc/${pid}/fdinfo`).flatMap((fd) => {
    const info = ignoreErrors(["ENOENT"], () => readFileSync(`/proc/${pid}/fdinfo/${fd}`, "utf8")) ?? "";
    const timer = /^clockid: (\d+)[^]*it_value: \((\d+),/m.exec(info);
    return timer ? [[Number(timer[1]), Number(timer[2])]] : [];
  });

/** Changes the file of the lease, from which the next server knows it. */
function changeTimes({ directory }: DhcpLan, change: Partial<LeaseDuration>): void {
  const path = join(directory, "dhcp", leaseFileName({ network: "lan", containerId: "c1", ifname: "eth0" }));
  const record = JSON.parse(readFileSync(path, "utf8"));
  Object.assign(record.terms.duration, change);
  writeFileSync(path, JSON.stringify(record));
}

lanTest("a lease is renewed by unicast as long as the server answers, and the address stays", async (lan) => {
  runShellInNetns(
    lan.lan,
    "nft 'table inet t { chain c { type filter hook input priority 0; meta pkttype unicast udp dport 67 counter; }; }'",
  );
  await lan.startKea(QUICK);
  const server = await lan.startLeaseServer();
  lan.call("bridge", "ADD", lan.config);
  await until(() => count(server.log(), "is renewed") >= 3);
  expect(addressesOf(lan)).toEqual(["10.7.0.10"]);
  expect(server.log()).not.toContain("is taken away");
  const unicasts = /packets (\d+)/.exec(runShellInNetns(lan.lan, "nft list table inet t"))?.[1];
  expect(Number(unicasts)).toBeGreaterThanOrEqual(3);
});

lanTest("a request to renew that is lost is soon repeated", async (lan) => {
  await lan.startDnsmasq("--dhcp-range=10.7.0.10,10.7.0.10,255.255.255.0,10h");
  const first = await lan.startLeaseServer();
  lan.call("bridge", "ADD", lan.config);
  await first.stop();
  changeTimes(lan, { renewMs: 1 });
  // One request has less than 500 bytes, two have more.
  const rule = "udp dport 67 quota until 500 bytes counter drop";
  runShellInNetns(lan.lan, `nft 'table inet t { chain c { type filter hook input priority 0; ${rule}; }; }'`);
  const server = await lan.startLeaseServer();
  await until(() => server.log().includes("10.7.0.10 is renewed"));
  expect(runShellInNetns(lan.lan, "nft list table inet t")).toContain("packets 1 ");
});

lanTest("an interface that the container renames keeps its lease", async (lan) => {
  await lan.startKea(QUICK);
  const server = await lan.startLeaseServer();
  lan.call("bridge", "ADD", lan.config);
  runIp(lan.container, "link set eth0 down name mine0", "link set mine0 up");
  await until(() => count(server.log(), "is renewed") >= 2);
  expect(server.log()).not.toContain("the lease ends");
});

lanTest("the address of an expired lease is taken away, and comes back with the server", async (lan) => {
  const kea = await lan.startKea(QUICK);
  const server = await lan.startLeaseServer("-resendmax", "1s");
  lan.call("bridge", "ADD", lan.config);
  await kea.stop("SIGKILL");
  await until(() => server.log().includes("10.7.0.10 has expired, and is taken away from the interface"));
  expect(addressesOf(lan)).toEqual([]);
  await lan.startKea(QUICK);
  await until(() => count(server.log(), "is leased") === 2);
  expect(addressesOf(lan)).toEqual(["10.7.0.10"]);
  expect(runIp(lan.container, "route show default")).toContain("default via 10.7.0.1 dev eth0");
  ping(lan.container, "10.7.0.1");
});

lanTest("the time to renew a lease comes during a suspension of the machine, too", async (lan) => {
  await lan.startDnsmasq();
  const { process: { pid } } = await lan.startLeaseServer();
  lan.call("bridge", "ADD", lan.config);
  // The answer leaves before the timer is set. T1 is 60 s.
  await until(() => timersOf(pid).some(([clock, seconds]) => clock === CLOCK_BOOTTIME && Math.abs(seconds - 59) < 15));
  expect(timersOf(pid)).toHaveLength(1);
});

// Kea is silent about addresses of networks that it does not know.
lanTest("an address that the next server refuses is taken away, and the interface gets another", async (lan) => {
  const dnsmasq = await lan.startDnsmasq();
  const first = await lan.startLeaseServer();
  const prevResult = { cniVersion: "1.1.0", ...lan.call("bridge", "ADD", lan.config) };
  await first.stop();
  await dnsmasq.stop("SIGKILL");
  runShellInNetns(lan.lan, "ip addr flush dev eth0", "ip addr add 10.8.0.1/24 dev eth0");
  await lan.startDnsmasq("--dhcp-range=10.8.0.10,10.8.0.10,255.255.255.0,2m");
  // All servers are asked from T2 on.
  changeTimes(lan, { renewMs: 1, rebindMs: 2 });
  const server = await lan.startLeaseServer();
  await until(() => server.log().includes("10.8.0.10 is leased"));
  expect(server.log()).toContain("10.7.0.10 is refused by the server, and is taken away");
  expect(addressesOf(lan)).toEqual(["10.8.0.10"]);
  expect(runIp(lan.container, "route show default")).toContain("default via 10.8.0.1 dev eth0");
  // The result and other plugins know the old address, until DEL and ADD.
  expect(errorOfCall(() => lan.call("bridge", "CHECK", { ...lan.config, prevResult })).message)
    .toContain("prevResult lacks address 10.8.0.10");
});
