/** Rules before and after forwarding that stop containers' packets, seen by their traffic too. */
import { beforeAll, expect, test } from "bun:test";
import { parseIp } from "../../ffi/address.ts";
import { tryTcpConnection } from "../../ffi/packet/probe.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";

beforeAll(() => loadPlugins());

const nft = (hook: string, priority: number, rule: string): string =>
  `nft 'table ip site { chain c { type filter hook ${hook} priority ${priority}; ${rule}; }; }'`;

test.each<[what: string, rule: string, finding: string]>([
  [
    "a call before its translation",
    nft("prerouting", -300, "tcp dport 8080 drop"),
    "packets to 10.9.0.2 are dropped by",
  ],
  [
    "a call that conntrack has not seen",
    nft("prerouting", -300, "ct state invalid drop"),
    "packets from 10.9.0.2 and 1 more are dropped by",
  ],
  ["a call after it", nft("prerouting", 0, "tcp dport 80 drop"), "packets to 10.9.0.2 are dropped by"],
  ["what leaves the host", nft("postrouting", -150, "ip daddr 10.9.0.2 drop"), "packets to 10.9.0.2 are dropped by"],
  [
    "what containers send",
    nft("prerouting", -150, "iifname br9 drop"),
    "packets from 10.9.0.2 and 1 more are dropped by",
  ],
])("%s is stopped by a rule that doctor names, with the line that mends it", async (_, rule, finding) => {
  using doctorHost = newDoctorHost();
  using _services = await doctorHost.serve();
  const isReached = () =>
    doctorHost.outside.run(() => tryTcpConnection(parseIp("192.0.2.1"), 8080, 300)) === "connected";
  expect([isReached(), doctorHost.broken()]).toEqual([true, []]);
  doctorHost.shell(rule);
  expect(isReached()).toBe(false);
  const { findings } = doctorHost.examine();
  const [found, ...others] = findings.filter(({ severity }) => severity === "broken");
  expect([found?.what, others]).toEqual([expect.stringContaining(finding), []]);
  expect(found!.what).toContain('of chain "c" of table "ip site"');
  expect(found!.advice).toBe("unless somebody means this rule, remove it");
  doctorHost.shell(found!.mend!);
  expect([isReached(), doctorHost.broken()]).toEqual([true, []]);
});

const DIRECT_ACCESS = nft("prerouting", -300, 'iifname != "br9" ip daddr 10.9.0.0/29 drop');

test.each<[what: string, ...lines: string[]]>([
  ["direct calls of containers", DIRECT_ACCESS],
  ["direct calls of containers, on a host without uplink", "ip route del default", DIRECT_ACCESS],
  ["a state that conntrack has not told yet", nft("prerouting", -300, "ct state new drop")],
  [
    "packets without a mark that an earlier chain sets",
    nft("prerouting", -150, "meta mark set 0x1"),
    "nft 'table ip site { chain d { type filter hook prerouting priority 0; meta mark != 0x1 drop; }; }'",
  ],
])("a rule that stops only %s is no finding", (_, ...lines) => {
  using doctorHost = newDoctorHost();
  doctorHost.shell(...lines);
  expect(doctorHost.examine().findings.filter(({ check }) => check === "routing hooks")).toEqual([]);
});

test("a port on 127.0.0.1 gets no forwarded packets, so rules against them are no finding", () => {
  using doctorHost = newDoctorHost({ portMappings: [{ hostIP: "127.0.0.1", hostPort: 8080, containerPort: 80 }] });
  doctorHost.shell(
    nft("prerouting", -300, 'iifname != "lo" ip daddr 127.0.0.0/8 drop'),
    "nft add chain ip site f '{ type filter hook forward priority 0; }'",
    'nft add rule ip site f oifname "br9" ct state new drop',
  );
  const isOfHooks = ({ check }: { check: string }) => ["forward chains", "routing hooks"].includes(check);
  expect(doctorHost.examine().findings.filter(isOfHooks).filter(({ severity }) => severity !== "ok")).toEqual([]);
});
