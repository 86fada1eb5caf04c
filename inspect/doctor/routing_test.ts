/** Rules of policy routing, and routes that drop or refuse, are named with the line that removes them. */
import { describe, expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { type DoctorHost, newDoctorHost, useDoctorHost } from "../../testing/doctor_host.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { tryUplinkGateway } from "./checks/tries.ts";
import { isBroken } from "./examine.ts";
import { TryBudget } from "./try_budget.ts";

await loadPlugins();

interface Cause {
  /** In the container instead of on the host. */
  readonly inContainer?: boolean;
  readonly lines: readonly string[];
  readonly found: (host: DoctorHost) => readonly string[];
  readonly severity?: "warning";
}

const TO_ALL = "packets to 10.9.0.2";
const FROM = "packets from 10.9.0.2 and 1 more";
const FROM_6 = "packets from fd00:9::2 and 1 more";
const ofC1 = (text: string) => ({ c1 }: DoctorHost) => [text.replaceAll("C1", c1.path)];

const CAUSES: Readonly<Record<string, Cause>> = {
  "a rule sends pods to a table that drops": {
    lines: ["ip route add blackhole default table 100", "ip rule add from 10.9.0.0/29 lookup 100 priority 77"],
    found: () => [
      `${FROM} are stopped by blackhole route 0.0.0.0/0 of table 100, by routing rule 77 (from 10.9.0.0/29 lookup 100)`,
    ],
  },
  "the same for IPv6, by the link": {
    lines: ["ip -6 route add unreachable default table 100 metric 5", "ip -6 rule add iif br9 lookup 100 priority 77"],
    found: () => [
      `${FROM_6} are stopped by unreachable route ::/0 of table 100, by routing rule 77 (from all iif br9 lookup 100)`,
    ],
  },
  "a rule that prohibits": {
    lines: ["ip rule add from 10.9.0.0/29 iif br9 prohibit priority 77"],
    found: () => [`${FROM} are stopped by routing rule 77 (from 10.9.0.0/29 iif br9 prohibit)`],
  },
  "a rule that drops what comes for a pod": {
    lines: ["ip rule add to 10.9.0.2 iif up0 blackhole priority 77"],
    found: () => [`${TO_ALL} are stopped by routing rule 77 (from all to 10.9.0.2/32 iif up0 blackhole)`],
  },
  "a rule leads answers elsewhere": {
    lines: [
      "ip route add default via 192.0.2.2 table 100",
      "ip -6 route add default via 2001:db8::2 table 100",
      "ip rule add to 10.9.0.0/29 lookup 100 priority 77",
      "ip -6 rule add not to fd00::/96 lookup 100 priority 78",
    ],
    found: () => [
      'packets to 10.9.0.2 and 1 more are sent to "up0" by routing rule 77 (from all to 10.9.0.0/29 lookup 100)',
      'packets to fd00:9::2 and 1 more are sent to "up0" by routing rule 78 (not from all to fd00::/96 lookup 100)',
    ],
  },
  "a rule gives pods another way out": {
    lines: [
      "ip link add other0 up type veth peer name other1; ip addr add 198.51.100.1/24 dev other0; ip link set other1 up",
      "ip route add default via 198.51.100.2 table 100; ip rule add from 10.9.0.0/29 lookup 100 priority 77",
    ],
    severity: "warning",
    found: () => [
      `${FROM} are sent to "other0" by routing rule 77 (from 10.9.0.0/29 lookup 100), unlike the host's own`,
    ],
  },
  "a rule for packets that iptables marks": {
    lines: [
      "ip route add prohibit default table 100; ip rule add fwmark 0x5/0xff lookup 100 priority 77",
      "iptables -t mangle -A PREROUTING -i br9 -j MARK --set-xmark 0x5/0xff",
    ],
    found: () => [
      `${FROM} are stopped by prohibit route 0.0.0.0/0 of table 100, by routing rule 77 (from all fwmark 0x5/0xff lookup 100)`,
    ],
  },
  "a rule for packets that nftables marks": {
    lines: [
      "iptables -t mangle -F; ip -6 rule add fwmark 0x100 blackhole priority 77",
      "nft 'table inet marks { chain pre { type filter hook prerouting priority mangle; ip6 saddr fd00:9::/64 meta mark set meta mark or 0x100; }; }'",
    ],
    found: () => [`${FROM_6} are stopped by routing rule 77 (from all fwmark 0x100/0xffffffff blackhole)`],
  },
  "a rule drops what pods send by TCP": {
    lines: ["ip route add blackhole default table 100; ip rule add iif br9 ipproto tcp lookup 100 priority 77"],
    severity: "warning",
    found: () => [
      `some ${FROM} are stopped or sent elsewhere by blackhole route 0.0.0.0/0 of table 100, ` +
      `by routing rule 77 (from all iif br9 ipproto tcp lookup 100)`,
    ],
  },
  "a rule refuses what pods send to ports, with a TOS": {
    lines: ["ip rule add iif br9 tos 0x10 ipproto udp sport 5 dport 80-90 prohibit priority 77"],
    severity: "warning",
    found: () => [
      `some ${FROM} are stopped or sent elsewhere by routing rule 77 ` +
      `(from all iif br9 tos 0x10 ipproto udp sport 5 dport 80-90 prohibit)`,
    ],
  },
  "a rule of a tunnel's packets drops behind them": {
    lines: [
      "ip rule add from 10.9.0.0/29 tun_id 7 lookup main priority 76; ip rule add from 10.9.0.0/29 prohibit priority 77",
    ],
    found: () => [`${FROM} are stopped by routing rule 77 (from 10.9.0.0/29 prohibit)`],
  },
  "a rule of the container refuses one protocol": {
    inContainer: true,
    severity: "warning",
    lines: ["ip rule add ipproto udp dport 53 unreachable priority 77"],
    found: ofC1(
      'some packets of "eth0" of C1 to 198.41.0.4 are stopped or sent elsewhere by routing rule 77 ' +
        "(from all ipproto udp dport 53 unreachable) in C1",
    ),
  },
  "a route drops what is for a pod": {
    lines: ["ip route add blackhole 10.9.0.2"],
    found: () => [`${TO_ALL} are stopped by blackhole route 10.9.0.2/32 of table main`],
  },
  "a route refuses what is for a pod": {
    lines: ["ip -6 route add prohibit fd00:9::2"],
    found: () => ["packets to fd00:9::2 are stopped by prohibit route fd00:9::2/128 of table main"],
  },
  "the host has no way out by a route": {
    lines: ["ip route add prohibit 128.0.0.0/1"],
    found: () => [
      "packets of the host and of containers to outside are stopped by prohibit route 128.0.0.0/1 of table main",
    ],
  },
  "the host has no way out for IPv6 by a route": {
    lines: ["ip -6 route add blackhole ::/0 metric 1"],
    found: () => ["packets of the host and of containers to outside are stopped by blackhole route ::/0 of table main"],
  },
  "a route of the container drops": {
    inContainer: true,
    lines: ["ip route add blackhole 128.0.0.0/1"],
    found: ofC1(
      'packets of "eth0" of C1 to 198.41.0.4 are stopped by blackhole route 128.0.0.0/1 of table main in C1',
    ),
  },
  "a route of the container keeps it from its gateway": {
    inContainer: true,
    lines: ["ip -6 route add unreachable fd00:9::1"],
    found: ofC1(
      'packets of "eth0" of C1 to fd00:9::1 are stopped by unreachable route fd00:9::1/128 of table main in C1',
    ),
  },
  "a rule of the container refuses": {
    inContainer: true,
    lines: ["ip rule add from 10.9.0.2 unreachable priority 77"],
    found: ofC1(
      'packets of "eth0" of C1 to 198.41.0.4 are stopped by routing rule 77 (from 10.9.0.2/32 unreachable) in C1',
    ),
  },
  "a route of the container drops what is for others": {
    inContainer: true,
    severity: "warning",
    lines: ["ip route add prohibit 203.0.113.0/24"],
    found: ofC1('some packets of "eth0" of C1 are stopped by prohibit route 203.0.113.0/24 of table main in C1'),
  },
};

const doctorHost = await useDoctorHost();

describe("each cause is named, and its line removes it", () => {
  const problems = () => doctorHost.examine().findings.filter(({ severity }) => severity !== "ok");

  for (const [name, { inContainer, lines, found, severity = "broken" }] of Object.entries(CAUSES)) {
    test(name, () => {
      runShellInNetns(inContainer ? doctorHost.c1 : doctorHost.host, ...lines);
      const findings = problems();
      expect(findings.map((each) => `${each.severity}: ${each.what}`)).toEqual(
        found(doctorHost).map((what) => `${severity}: ${what}`),
      );
      for (const { advice, mend } of findings) {
        expect(advice).toStartWith("unless somebody means this r");
        doctorHost.shell(mend!);
      }
      expect(problems()).toEqual([]);
      // A table without its route harms nobody, and the next test has one of its own.
      doctorHost.shell(
        "for each in 4 6; do while ip -$each rule del priority 77 2>&-; do :; done; ip -$each route flush table 100 2>&- || :; done",
      );
    });
  }

  test.each(["", "-6 "])("a route that drops instead of the container's default route: ip %s", (option) => {
    const { c1 } = doctorHost;
    const [dst, family] = option === "" ? ["0.0.0.0/0", 4] as const : ["::/0", 6] as const;
    runShellInNetns(c1, `ip ${option}route del default; ip ${option}route add blackhole default`);
    expect(doctorHost.broken()).toEqual([
      `instead of the IPv${family} default route, there is a blackhole route ${dst} of table main in ${c1.path}`,
    ]);
    expect(doctorHost.fix()).toEqual([]);
    expect(problems()).toEqual([]);
  });

  test("what others do with rules is no problem", () => {
    const { host } = doctorHost;
    const HARMLESS = [
      // An empty table, one that only throws, and one for other packets.
      "ip rule add from 10.9.0.0/29 lookup 99 priority 60",
      "ip route add throw default table 98; ip rule add from all lookup 98 priority 61",
      "ip rule add from 203.0.113.0/24 blackhole priority 62; ip rule add iif other7 prohibit priority 63",
      // wg-quick with a tunnel for all, where the tunnel is the uplink.
      "ip route add default via 192.0.2.2 table 51820; ip rule add not fwmark 51820 lookup 51820 priority 64",
      "ip rule add lookup main suppress_prefixlength 0 priority 63",
      // Tailscale.
      "ip rule add fwmark 0x80000/0xff0000 lookup main priority 5210",
      "ip rule add fwmark 0x80000/0xff0000 unreachable priority 5250; ip rule add lookup 52 priority 5270",
      // Networks that are elsewhere.
      "ip route add blackhole 10.244.7.0/26; ip -6 route add unreachable fd12:3456::/48; ip rule add goto 70 priority 59",
      "ip rule add nop priority 70",
      // It selects by more, and leads where all else goes.
      "ip route add default via 192.0.2.2 table 97; ip rule add ipproto tcp dport 443 iif br9 lookup 97 priority 71",
      "ip rule add from 10.9.0.0/29 uidrange 1000-1000 lookup main priority 72",
    ];
    runShellInNetns(host, ...HARMLESS);
    expect(problems()).toEqual([]);
  });
});

test("the try of the uplink's gateway names what leads packets to it elsewhere", () => {
  using doctorHost = newDoctorHost();
  const { c1, shell } = doctorHost;
  const find = () =>
    doctorHost.withSubject((subject) =>
      tryUplinkGateway({ ...subject, families: [4], containers: subject.containers.slice(0, 1) }, new TryBudget())
    ).filter(isBroken);
  const gets = `"eth0" of ${c1.path} gets no answer from the uplink gateway 192.0.2.2, which answers the host`;
  const mended = (...what: string[]) => {
    const findings = find();
    expect(findings.map((each) => each.what)).toEqual(what);
    shell(findings[0]!.mend!);
    expect(find()).toEqual([]);
  };
  shell("ip rule add from 10.9.0.2 to 192.0.2.2 prohibit priority 77");
  mended(`${gets}: its packets are sent elsewhere by routing rule 77 (from 10.9.0.2/32 to 192.0.2.2/32 prohibit)`);
  runShellInNetns(c1, "ip route add blackhole 192.0.2.2");
  mended(`${gets}: its packets are sent elsewhere by blackhole route 192.0.2.2/32 of table main in ${c1.path}`);
  shell("ip route add unreachable 192.0.2.2");
  mended(
    "the host's packets to the uplink gateway 192.0.2.2 are stopped by unreachable route 192.0.2.2/32 of table main",
  );
});
