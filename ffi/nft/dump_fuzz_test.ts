/** What nf_tables reports of rulesets that nft(8) and iptables made, damaged in every way: a value or one of our errors. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import {
  addressesIn,
  containsText,
  dropsEverything,
  jumpTarget,
  normalizedText,
  ruleComment,
  unconditionalJumpTarget,
} from "./rule_contents.ts";
import { parseReferenceOwner } from "../../plugins/lib/compat/reference_rules.ts";
import { createNetns, type Netns } from "../netns/netns.ts";
import { Reader } from "../netlink/codec.ts";
import type { Netlink } from "../netlink/socket.ts";
import { checkDamagedAnswers, checkProperty, outcomeOf } from "../../testing/fuzz.ts";
import { expression } from "./expressions.ts";
import * as nft from "./objects.ts";

const RULESET = `
table inet t {
  comment "a table"
  map ports { type inet_proto . inet_service : ipv4_addr . inet_service; elements = {
    tcp . 80 comment "web c1 eth0" : 10.1.0.2 . 8080, udp . 53 : 10.1.0.3 . 53 } }
  map verdicts { type ipv4_addr : verdict; elements = { 10.1.0.2 comment "web c1 eth0" : jump one, 10.1.0.3 : drop } }
  set ranges { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.168.0.1-192.168.0.9 } }
  set names { type ifname; comment "names"; elements = { "eth0", "cni0" } }
  set timed { type ether_addr; timeout 1h; elements = { 0a:58:0a:01:00:02 } }
  chain one { comment "a chain"; ip saddr 10.1.0.0/16 counter accept comment "one"; }
  chain base {
    type nat hook prerouting priority dstnat; policy accept;
    meta l4proto { tcp, udp } th dport 1-1024 fib daddr type local goto one
    ip daddr . tcp dport { 10.1.0.1 . 80 } dnat to 10.1.0.2:8080
    dnat ip to meta l4proto . th dport map @ports
  }
  chain post { type nat hook postrouting priority srcnat; ip saddr != @ranges oifname "eth*" masquerade random; }
  chain filter {
    type filter hook forward priority filter; policy drop;
    ct state vmap { established : accept, invalid : drop }
    ct status & dnat != 0 limit rate 5/second log prefix "x" accept
    ip saddr vmap @verdicts
    ether saddr @timed meta mark set 0x2000 reject with icmpx type admin-prohibited
    ip6 daddr fd00::/64 tcp flags & (syn|ack) == syn drop
  }
}`;
const IPTABLES = `*nat
:CNI-HOSTPORT-DNAT - [0:0]
:CNI-DN-0123456789abcdef01234 - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \\"web\\" id: \\"c1\\"" -m multiport --dports 80,443 -j CNI-DN-0123456789abcdef01234
-A CNI-DN-0123456789abcdef01234 -p tcp -m tcp --dport 80 -j DNAT --to-destination 10.1.0.2:8080
-A POSTROUTING -s 10.1.0.2/32 ! -d 224.0.0.0/4 -m comment --comment "name: \\"web\\" id: \\"c1\\"" -j MASQUERADE --random-fully
COMMIT
*filter
:FORWARD DROP [0:0]
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -m mark --mark 0x1/0x1 -m limit --limit 5/min -j LOG --log-prefix "x"
-A FORWARD -p udp -m udp --sport 53 -j REJECT --reject-with icmp-port-unreachable
COMMIT
`;

function load(netns: Netns, program: string, ...[arg, text]: readonly [string, string]): void {
  const { exitCode, stderr } = netns.run(() => Bun.spawnSync([program, arg], { stdin: Buffer.from(text) }));
  if (exitCode !== 0) throw new Error(`${program}: ${stderr}`);
}

const INET = { family: 1, table: "t" };
const NAT = { family: 2, table: "nat" };
const FILTER = { family: 2, table: "filter" };

/** What is asked of the rules of others. */
function readRule(one: nft.LazyRule): unknown {
  return [
    ruleComment(one),
    containsText(one, "c1"),
    normalizedText(one.expressions()),
    unconditionalJumpTarget(one),
    jumpTarget(one),
    addressesIn(one),
    dropsEverything(one),
    parseReferenceOwner(one),
  ];
}

const QUESTIONS: Readonly<Record<string, (nl: Netlink) => unknown>> = {
  "listTables": (nl) => [nft.listTables(nl), nft.getGenerationId(nl)],
  "find": (nl) => [nft.findTable(nl, INET), nft.findChain(nl, INET, "one"), nft.findSet(nl, INET, "ports")],
  "listChains": (nl) => [nft.listChains(nl, INET), nft.listBaseChains(nl, 1), nft.listBaseChains(nl, 2)],
  "listRules of nft(8)": (nl) => nft.listRules(nl, INET),
  "listRules of iptables": (nl) => [nft.listRules(nl, NAT), nft.listRules(nl, FILTER)],
  "listLazyRules of nft(8)": (nl) => nft.listLazyRules(nl, INET, "filter").map(readRule),
  "listLazyRules of iptables": (nl) =>
    [[NAT, "CNI-HOSTPORT-DNAT"] as const, [NAT, "POSTROUTING"] as const, [FILTER, "FORWARD"] as const]
      .map(([table, chain]) => nft.listLazyRules(nl, table, chain).map(readRule)),
  "listElements": (nl) =>
    ["ports", "verdicts", "ranges", "names", "timed"].map((set) => nft.listElements(nl, INET, set)),
  "listElements of an owner": (nl) => nft.listElements(nl, INET, "ports", "web c1"),
  "elementQuery": (nl) => nft.getAll(nl, [nft.elementQuery(INET, "verdicts", Uint8Array.of(10, 1, 0, 2))]),
};

const missing = ["nft", "iptables-nft-restore"].filter((program) => !Bun.which(program));
const netns = createNetns();
if (missing.length === 0) {
  load(netns, "nft", "-f-", RULESET);
  load(netns, "iptables-nft-restore", "-n", IPTABLES);
}

for (const [name, question] of Object.entries(QUESTIONS)) {
  const title = `${name} of a damaged answer gives a value or an error of ours`;
  const body = () => expect(sizeOf(checkDamagedAnswers(netns.nft, question, 500))).toBeGreaterThan(20);
  if (missing.length === 0) test(title, body);
  else test.skip(`${title} # needs ${missing.join(", ")}`, body);
}

/** The length of its text. */
function sizeOf(value: unknown): number {
  return JSON.stringify(value, (_, each) => typeof each === "bigint" ? String(each) : each).length;
}

test("expressions of any bytes give a value or an error of ours", () => {
  checkProperty(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => void outcomeOf(() => expression.read(new Reader(bytes)))),
    2000,
  );
});
