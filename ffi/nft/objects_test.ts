import { expect } from "bun:test";
import { writeFileSync } from "node:fs";
import { ipBytes, parseCidr, parseIp } from "../address.ts";
import type { Netns } from "../netns/netns.ts";
import { netnsTest, runInNetns } from "../../testing/netns.ts";
import { ifnameType, inetProto, inetService, ipv4Addr, ipv6Addr, mapOf, setOf } from "./datatypes.ts";
import {
  accept,
  concatenation,
  ctDirectionReply,
  ctOriginalSaddr,
  ctOriginalSaddrIn,
  ctReplyDaddr,
  ctStatusDnat,
  daddr,
  daddrIn,
  dnatMap,
  dport,
  drop,
  fibDaddrLocal,
  gotoChain,
  ifnameField,
  iifnameIs,
  inSet,
  jump,
  l4proto,
  masquerade,
  metaNfproto,
  oifnameIs,
  portField,
  returnFromChain,
  rule,
  type RuleStatement,
  saddr,
  saddrFromMap,
  saddrIn,
  setDaddr,
  setDaddrTo,
  vmap,
} from "./statements.ts";
import * as nft from "./objects.ts";
import { transaction } from "./transaction.ts";
import { NF_INET_POST_ROUTING, NF_INET_PRE_ROUTING, NFPROTO_INET, NFT_GOTO } from "./uapi.ts";

const TABLE = { family: NFPROTO_INET, table: "t" };

/** Every expression and kind of object that this program writes, in one table. */
function build(netns: Netns): void {
  const tx = transaction(netns.nft);
  tx.addTable({ family: NFPROTO_INET, name: "t", comment: "a table" });
  tx.addSet({
    ...TABLE,
    name: "ports4",
    ...mapOf([inetProto, inetService], [ipv4Addr, inetService]),
    userdata: { comment: "a map" },
  });
  tx.addSet({ ...TABLE, name: "hosts6", ...mapOf([ipv6Addr, inetProto, inetService], [ipv6Addr, inetService]) });
  tx.addSet({ ...TABLE, name: "verdicts", ...mapOf([ipv4Addr], "verdict") });
  tx.addSet({ ...TABLE, name: "sources", ...mapOf([ipv4Addr], [ipv4Addr]) });
  tx.addSet({ ...TABLE, name: "addresses", ...setOf([ipv6Addr]) });
  tx.addSet({ ...TABLE, name: "links", ...setOf([ifnameType]) });
  tx.addChain({ ...TABLE, name: "net-10.1.0.0/16", comment: "a chain" });
  tx.addChain({ ...TABLE, name: "pre", type: "nat", hook: { number: NF_INET_PRE_ROUTING, priority: -100 }, policy: 1 });
  tx.addChain({ ...TABLE, name: "post", type: "nat", hook: { number: NF_INET_POST_ROUTING, priority: 100 } });
  const add = (chain: string, comment: string | undefined, ...parts: RuleStatement[]) =>
    tx.addRule({ ...TABLE, chain, expressions: rule(...parts), ...comment ? { comment } : {} });
  add("net-10.1.0.0/16", "own network", daddrIn(parseCidr("10.1.0.0/16")), returnFromChain());
  add("net-10.1.0.0/16", undefined, daddrIn(parseCidr("224.0.0.0/4")), drop());
  add(
    "net-10.1.0.0/16",
    undefined,
    saddrIn(parseCidr("10.1.2.3/32"), true),
    daddrIn(parseCidr("0.0.0.0/0")),
    accept(),
  );
  add(
    "net-10.1.0.0/16",
    undefined,
    saddrIn(parseCidr("fd00::/61")),
    daddrIn(parseCidr("ff00::/8"), true),
    accept(),
  );
  add("net-10.1.0.0/16", undefined, iifnameIs("lo", true), iifnameIs("veth*"), accept());
  add("pre", undefined, fibDaddrLocal(), jump("net-10.1.0.0/16"));
  add("pre", undefined, saddrIn(parseCidr("127.0.0.1/32")), saddrFromMap([daddr(4)], "sources"));
  for (const family of [4, 6] as const) {
    add("pre", undefined, ctDirectionReply(), setDaddrTo(family, ctReplyDaddr));
  }
  add("pre", undefined, ctOriginalSaddrIn(parseCidr("127.0.0.0/8")), setDaddrTo(4, ctOriginalSaddr));
  add("pre", undefined, ctOriginalSaddrIn(parseCidr("::1/128")), oifnameIs("lo", true), setDaddrTo(6, ctOriginalSaddr));
  add("pre", undefined, ctDirectionReply(), daddrIn(parseCidr("127.0.0.0/8")), setDaddr(parseIp("127.0.0.1")));
  add("pre", undefined, ctStatusDnat(), vmap([saddr(4)], "verdicts"));
  add("pre", undefined, inSet([daddr(6)], "addresses", true), gotoChain("net-10.1.0.0/16"));
  add("pre", undefined, dnatMap(4, [l4proto(), dport()], "ports4"));
  add("pre", undefined, dnatMap(6, [daddr(6), l4proto(), dport()], "hosts6"));
  add("pre", undefined, metaNfproto(6), returnFromChain());
  add("post", undefined, iifnameIs("cni0"), masquerade());
  const tcp = Uint8Array.of(6);
  tx.addElements(TABLE, "ports4", [{
    key: concatenation(tcp, portField(8080)),
    data: { value: concatenation(ipBytes(parseIp("10.1.0.2")), portField(80)) },
    comment: "net id eth0",
  }]);
  tx.addElements(TABLE, "hosts6", [{
    key: concatenation(ipBytes(parseIp("fd00::1")), tcp, portField(8080)),
    data: { value: concatenation(ipBytes(parseIp("fd00::2")), portField(80)) },
  }]);
  tx.addElements(TABLE, "verdicts", [{
    key: ipBytes(parseIp("10.1.0.2")),
    data: { verdict: { code: NFT_GOTO, chain: "net-10.1.0.0/16" } },
    comment: "net id eth0",
  }]);
  tx.addElements(TABLE, "addresses", [{ key: ipBytes(parseIp("fd00::7")), comment: "one" }]);
  tx.addElements(TABLE, "links", [{ key: ifnameField("veth0") }]);
  tx.commit();
}

const LISTED = `table inet t {
	comment "a table"
	map ports4 {
		type inet_proto . inet_service : ipv4_addr . inet_service
		comment "a map"
		elements = { tcp . 8080 comment "net id eth0" : 10.1.0.2 . 80 }
	}

	map hosts6 {
		type ipv6_addr . inet_proto . inet_service : ipv6_addr . inet_service
		elements = { fd00::1 . tcp . 8080 : fd00::2 . 80 }
	}

	map verdicts {
		type ipv4_addr : verdict
		elements = { 10.1.0.2 comment "net id eth0" : goto net-10.1.0.0/16 }
	}

	map sources {
		type ipv4_addr : ipv4_addr
	}

	set addresses {
		type ipv6_addr
		elements = { fd00::7 comment "one" }
	}

	set links {
		type ifname
		elements = { "veth0" }
	}

	chain net-10.1.0.0/16 {
		comment "a chain"
		ip daddr 10.1.0.0/16 return comment "own network"
		ip daddr 224.0.0.0/4 drop
		ip saddr != 10.1.2.3 ip daddr 0.0.0.0/0 accept
		ip6 saddr fd00::/61 ip6 daddr != ff00::/8 accept
		iifname != "lo" iifname "veth*" accept
	}

	chain pre {
		type nat hook prerouting priority dstnat; policy accept;
		fib daddr type local jump net-10.1.0.0/16
		ip saddr 127.0.0.1 ip saddr set ip daddr map @sources
		ct direction reply ip daddr set ct reply ip daddr
		ct direction reply ip6 daddr set ct reply ip6 daddr
		ct original ip saddr 127.0.0.0/8 ip daddr set ct original ip saddr
		ct original ip6 saddr ::1 oifname != "lo" ip6 daddr set ct original ip6 saddr
		ct direction reply ip daddr 127.0.0.0/8 ip daddr set 127.0.0.1
		ct status dnat ip saddr vmap @verdicts
		ip6 daddr != @addresses goto net-10.1.0.0/16
		dnat ip to meta l4proto . th dport map @ports4
		dnat ip6 to ip6 daddr . meta l4proto . th dport map @hosts6
		meta nfproto ipv6 return
	}

	chain post {
		type nat hook postrouting priority srcnat; policy accept;
		iifname "cni0" masquerade
	}
}
`;

netnsTest("what is sent is what nft(8) prints, and what nft(8) sends is read as the same", ({ host, container }) => {
  build(host);
  const listing = runInNetns(host, "nft", "list", "ruleset");
  expect(listing).toBe(LISTED);
  const file = `/tmp/nft-objects-${process.pid}.nft`;
  writeFileSync(file, listing);
  runInNetns(container, "nft", "-f", file);
  expect(all(container)).toEqual(all(host));
});

const SETS = ["ports4", "hosts6", "verdicts", "sources", "addresses", "links"];

function all({ nft: nl }: Netns) {
  const { handle: _, ...table } = nft.findTable(nl, TABLE)!;
  return {
    table,
    chains: nft.listChains(nl, TABLE).map(({ handle: _, ...chain }) => chain),
    // nft(8) adds notes to itself about the byte order of keys.
    sets: SETS.map((set) => {
      const { userdata, ...rest } = nft.findSet(nl, TABLE, set)!;
      return { ...rest, comment: userdata?.comment };
    }),
    elements: SETS.map((set) => nft.listElements(nl, TABLE, set)),
    rules: nft.listRules(nl, TABLE).map(({ handle: _, position: __, ...one }) => one),
  };
}
