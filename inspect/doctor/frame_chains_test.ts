/** Chains of the families `netdev` and `bridge`, and of `inet` at the hook `ingress`, are named as those for packets are. */
import { describe, expect, test } from "bun:test";
import { parseIp } from "../../ffi/address.ts";
import { isPingAnswered } from "../../ffi/packet/probe.ts";
import * as link from "../../ffi/route/link.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { useDoctorHost } from "../../testing/doctor_host.ts";
import { runShellInNetns } from "../../testing/netns.ts";

await loadPlugins();

interface Cause {
  readonly inContainer?: boolean;
  /** Of a shell, in which $PORT is the host's end of the veth pair of c1, and $MAC the address of its interface. */
  readonly lines: readonly string[];
  /** `RULE(n, text)` stands for the words with which a rule is named. */
  readonly found: string;
  /** Who gets no answer any more: c1, from this address. */
  readonly silent?: string;
}

const GATEWAY = "10.9.0.1";
const chain = (table: string, hook: string, ...rules: string[]) =>
  `nft "table ${table} { chain c { type filter hook ${hook}; ${rules.join("; ")}; }; }"`;

const CAUSES: Readonly<Record<string, Cause>> = {
  "a rule at the container's port": {
    lines: [chain("netdev t", "ingress device $PORT priority 0", "ip saddr 10.9.0.0/29 drop")],
    found: 'frames from 10.9.0.2 are dropped by RULE(1, ip saddr 10.9.0.0/29 drop) of chain "c" of table "netdev t"',
    silent: GATEWAY,
  },
  "a policy at the container's port": {
    lines: [chain("netdev t", "egress device $PORT priority 0; policy drop", "meta l4proto sctp accept")],
    found: 'frames to 10.9.0.2 and 1 more are dropped by policy drop of chain "c" of table "netdev t"',
    silent: GATEWAY,
  },
  "a rule that drops ARP at the bridge's link": {
    lines: [chain("netdev t", "ingress devices = { br9, up0 } priority 0", "meta protocol arp drop")],
    found:
      'frames from 10.9.0.2 and 1 more are dropped by RULE(1, meta protocol arp drop) of chain "c" of table "netdev t"',
  },
  "a rule of inet at the hook ingress": {
    lines: [chain("inet t", "ingress device br9 priority 0", "ip6 saddr fd00:9::/64 tcp dport 443 drop")],
    found:
      "frames from fd00:9::2 and 1 more are dropped by RULE(1, ip6 saddr fd00:9::/64 meta l4proto 6 th dport 443 drop) " +
      'of chain "c" of table "inet t"',
  },
  "a rule at the uplink, where the host's address is the source": {
    lines: [chain("netdev t", "egress device up0 priority 0", "ip saddr 192.0.2.1 tcp dport 443 drop")],
    found:
      "frames from 10.9.0.2 and 1 more are dropped by RULE(1, ip saddr 192.0.2.1 meta l4proto 6 th dport 443 drop) " +
      'of chain "c" of table "netdev t"',
  },
  "a rule at the uplink for a published port": {
    lines: [chain("netdev t", "ingress device up0 priority 0", "tcp dport 8080 drop")],
    found: "frames to 10.9.0.2 and 1 more are dropped by RULE(1, meta l4proto 6 th dport 8080 drop) " +
      'of chain "c" of table "netdev t"',
  },
  "a rule of inet at the uplink for answers": {
    lines: [chain("inet t", "ingress device up0 priority 0", "ip saddr != 192.0.2.2 ip daddr 192.0.2.1 drop")],
    found: "frames to 10.9.0.2 and 1 more are dropped by RULE(1, ip saddr != 192.0.2.2 ip daddr 192.0.2.1 drop) " +
      'of chain "c" of table "inet t"',
  },
  "a chain of the bridge": {
    lines: [
      'nft "table bridge t { chain u { ip daddr 10.9.0.2 drop; }; chain c { type filter hook postrouting priority 0; ' +
      'oifname $PORT jump u; }; }"',
    ],
    found:
      'frames to 10.9.0.2 are dropped by RULE(1, ip daddr 10.9.0.2 drop) of chain "u" of table "bridge t", called from "c"',
    silent: GATEWAY,
  },
  "a policy of ebtables": {
    lines: ["ebtables-nft -P INPUT DROP"],
    found: 'frames from 10.9.0.2 and 3 more are dropped by policy drop of chain "INPUT" of table "bridge filter"',
    silent: GATEWAY,
  },
  "a rule of ebtables between containers": {
    lines: ["ebtables-nft -A FORWARD -p IPv4 -i $PORT -j DROP"],
    found: "frames between containers, such as 10.9.0.2, are dropped by " +
      'RULE(1, iifname "PORT" meta protocol ip drop) of chain "FORWARD" of table "bridge filter"',
    silent: "10.9.0.3",
  },
  "a rule of ebtables for an address": {
    lines: ["ebtables-nft -A INPUT -p IPv4 --ip-src 10.9.0.2 -j DROP"],
    found:
      'frames from 10.9.0.2 are dropped by RULE(1, meta protocol ip xt match "ip" drop) of chain "INPUT" of table ' +
      '"bridge filter"',
    silent: GATEWAY,
  },
  "a rule of ebtables for another address and a port": {
    lines: [
      "ebtables-nft -A INPUT -p IPv6 --ip6-src 2001:db8::/32 -j DROP",
      "ebtables-nft -A INPUT -p IPv6 --ip6-dst ! fd00:9::/64 --ip6-proto tcp --ip6-dport 440:450 -j DROP",
    ],
    found:
      'frames from fd00:9::2 and 1 more are dropped by RULE(2, meta protocol ip6 xt match "ip6" drop) of chain "INPUT" of ' +
      'table "bridge filter"',
  },
  "a rule of ebtables for a hardware address": {
    lines: ["ebtables-nft -A FORWARD -s $MAC -j DROP"],
    found: "frames between containers, such as 10.9.0.2 and 1 more, are dropped by " +
      'RULE(1, ether saddr MAC drop) of chain "FORWARD" of table "bridge filter"',
  },
  "a rule of the container": {
    inContainer: true,
    lines: [chain("netdev t", "egress device eth0 priority 0", "drop")],
    found: 'frames from 10.9.0.2 and 1 more are dropped by RULE(1, drop) of chain "c" of table "netdev t" in C1',
    silent: GATEWAY,
  },
};

const doctorHost = await useDoctorHost();

describe("each is named, and its line ends it", () => {
  const answers = (address: string, timeoutMs: number) =>
    doctorHost.c1.run<boolean>(() => isPingAnswered(parseIp(address), timeoutMs));

  for (const [name, { inContainer, lines, found, silent }] of Object.entries(CAUSES)) {
    test(name, () => {
      const { c1, host, port } = doctorHost;
      const place = inContainer ? c1 : host;
      const { mac = "" } = link.get(c1.route, "eth0");
      runShellInNetns(place, `PORT=${port}; MAC=${mac}`, ...lines);
      if (silent !== undefined) expect(answers(silent, 100)).toBe(false);
      const [finding, ...others] = doctorHost.examine().findings.filter(({ severity }) => severity !== "ok");
      const expected = found.replace(/RULE\((\d+), (.*?)\) of/, "rule $1 ($2; handle N) of")
        .replace("PORT", port).replace("MAC", mac).replace("C1", c1.path);
      const what = finding?.what.replace(/handle \d+/, "handle N");
      expect([others, finding?.severity, what]).toEqual([[], "broken", expected]);
      expect(finding!.advice).toStartWith("unless somebody means this ");
      doctorHost.shell(finding!.mend!);
      expect(doctorHost.broken()).toEqual([]);
      if (silent !== undefined) expect(answers(silent, 2000)).toBe(true);
      runShellInNetns(place, "nft delete table netdev t 2>&- || nft delete table bridge filter 2>&- || :");
      runShellInNetns(place, "nft delete table bridge t 2>&- || nft delete table inet t 2>&- || :");
    });
  }

  test("what does not drop them is no problem", () => {
    const { port, host } = doctorHost;
    runShellInNetns(
      host,
      `PORT=${port}`,
      // Lists, limits and other links.
      chain(
        "netdev a",
        "ingress device up0 priority 0",
        "ip saddr { 203.0.113.0/24, 100.64.0.0/10 } drop",
        "tcp flags syn limit rate over 10/second drop",
        "udp dport 53 drop",
        "ip daddr 127.0.0.0/8 drop",
      ),
      chain("netdev b", "ingress device lo priority 0; policy drop", "accept"),
      chain("bridge c", "forward priority 0", 'iifname \\"tap*\\" drop', "ether saddr 0a:00:00:00:00:01 drop"),
      chain("bridge d", "prerouting priority -300; policy drop", "meta protocol { arp, ip, ip6 } accept"),
      'nft "table netdev e { flags dormant; chain c { type filter hook ingress device $PORT priority 0; policy drop; }; }"',
    );
    expect(doctorHost.examine().findings.filter(({ severity }) => severity !== "ok")).toEqual([]);
    expect(doctorHost.examine().findings.filter(({ check }) => check === "frame chains").map(({ what }) => what))
      .toEqual([
        'frames are accepted by chains "c" of table "netdev a", "c" of table "netdev b", "c" of table "bridge c", ' +
        '"c" of table "bridge d"',
      ]);
  });
});
