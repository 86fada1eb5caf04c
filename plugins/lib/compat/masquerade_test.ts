/**
 * Masquerading as the reference sets it up. Its iptables chains are made here by iptables itself, in the reference's words; the table of its
 * releases from 1.6 on by nft(8), as the distribution's reference is older and knows iptables only.
 */
import { expect, test } from "bun:test";
import { parseCidr } from "../../../ffi/address.ts";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { runInNetns } from "../../../testing/netns.ts";
import type { Owner } from "../model/owner.ts";
import { referenceChainName, shortHash } from "./reference_rules.ts";
import {
  gcReferenceMasquerade,
  listReferenceMasquerade,
  ownersWithReferenceMasquerade,
  removeReferenceMasquerade,
} from "./masquerade.ts";
import { referenceNetnsTest } from "../../../testing/reference.ts";
import { sendCountingSocket } from "../../../testing/netlink.ts";
import { countingNetns } from "../../../testing/netlink_counts.ts";

const ownerOf = (containerId: string, ifname = "eth0", network = "net"): Owner => ({ network, containerId, ifname });
const A = ownerOf("a");

const sh = (host: Netns, ...lines: string[]): string => runInNetns(host, "sh", "-e", "-c", lines.join("\n"));
const counted = (text: string) => text.replace(/packets \d+ bytes \d+|\[\d+:\d+\]|^#.*\n/gm, "");
const saved = (host: Netns): string => counted(sh(host, "iptables-save -t nat; ip6tables-save -t nat"));
const listing = (host: Netns): string => counted(sh(host, "nft list ruleset"));

/** Somebody else's rules, so that everything that iptables makes by itself is there before. */
function withOthers(host: Netns): void {
  for (const program of ["iptables", "ip6tables"]) {
    sh(
      host,
      `${program} -t nat -N MINE; ${program} -t nat -A POSTROUTING -p 99 -j MINE -m comment --comment 'name: "net" id: "a"!'`,
    );
  }
}

/** As the reference's bridge does for each address. */
function attach(host: Netns, { network, containerId }: Owner, ...addresses: readonly string[]): void {
  for (const address of addresses) {
    const [ip, groups] = [address.split("/")[0]!, address.includes(":") ? "ff00::/8" : "224.0.0.0/4"];
    const iptables = address.includes(":") ? "ip6tables -t nat" : "iptables -t nat";
    const chain = referenceChainName("CNI-", { network, containerId });
    const comment = `-m comment --comment 'name: "${network}" id: "${containerId}"'`;
    sh(
      host,
      `${iptables} -N ${chain} 2>/dev/null || :`,
      `${iptables} -A ${chain} -d ${address} -j ACCEPT ${comment}`,
      `${iptables} -A ${chain} ! -d ${groups} -j MASQUERADE ${comment}`,
      `${iptables} -A POSTROUTING -s ${ip} -j ${chain} ${comment}`,
    );
  }
}

/** The same by its releases from 1.6 on, where they use nft(8). */
function attachByNft(host: Netns, { network, containerId, ifname }: Owner, ...addresses: readonly string[]): void {
  const hash = `${shortHash(network, 16)}-${shortHash(`${ifname}:${containerId}`, 16)}`;
  const comment = `${hash}, net: ${network}, if: ${ifname}, id: ${containerId}`.slice(0, 128);
  const rules = addresses.map((address) => {
    const ip = address.includes(":") ? "ip6" : "ip";
    return `add rule inet cni_plugins_masquerade masq_checks ${ip} saddr ${
      address.split("/")[0]
    } ${ip} daddr != ${address} masquerade comment "${comment}"`;
  });
  const script = `
    add table inet cni_plugins_masquerade { comment "Masquerading for plugins from github.com/containernetworking/plugins"; }
    add chain inet cni_plugins_masquerade masq_checks { comment "Masquerade traffic from certain IPs to any (non-multicast) IP outside their subnet"; }
    add chain inet cni_plugins_masquerade postrouting { type nat hook postrouting priority 100; }
    flush chain inet cni_plugins_masquerade postrouting
    add rule inet cni_plugins_masquerade postrouting ip daddr 224.0.0.0/4 return
    add rule inet cni_plugins_masquerade postrouting ip6 daddr ff00::/8 return
    add rule inet cni_plugins_masquerade postrouting goto masq_checks
    ${rules.join("\n")}`;
  sh(host, `nft -f - <<'END'\n${script}\nEND`);
}

test("chains have the reference's names", () => {
  expect(referenceChainName("CNI-", { network: "test", containerId: "1234" })).toBe("CNI-2bbe0c48b91a7d1b8a6753a8");
  expect(referenceChainName("CNI-", { network: "testalongnamethatdoesnotmakesense", containerId: "1234" }))
    .toBe("CNI-374f33fe84ab0ed84dcdebe3");
  expect([shortHash("unit-test", 16), shortHash("eth0:one", 16)]).toEqual(["6fd94d501e58f0aa", "287fc69eff0574a2"]);
});

referenceNetnsTest(
  "with iptables: the container's chains go, its namesakes' and everybody else's rules stay",
  ({ host }) => {
    withOthers(host);
    const before = saved(host);
    attach(host, ownerOf("a", "eth0", "other"), "10.2.0.2/24");
    attach(host, ownerOf("aa"), "10.1.0.3/24", "fd00:1::3/64");
    const others = saved(host);
    attach(host, A, "10.1.0.2/24", "fd00:1::2/64");
    expect(listReferenceMasquerade(host.nft, A)).toEqual(["10.1.0.2", "fd00:1::2"] as never[]);
    removeReferenceMasquerade(host.nft, A);
    expect(saved(host)).toBe(others);
    removeReferenceMasquerade(host.nft, A);
    removeReferenceMasquerade(host.nft, ownerOf("aa"), [parseCidr("10.1.0.3/24"), parseCidr("fd00:1::3/64")]);
    removeReferenceMasquerade(host.nft, ownerOf("a", "eth0", "other"));
    expect(saved(host)).toBe(before);
  },
);

referenceNetnsTest("two interfaces of a container share a chain: it stays for the other one", ({ host }) => {
  withOthers(host);
  const before = saved(host);
  attach(host, A, "10.1.0.2/24", "10.1.0.3/24");
  removeReferenceMasquerade(host.nft, A, [parseCidr("10.1.0.2/24")]);
  expect(listReferenceMasquerade(host.nft, A)).toEqual(["10.1.0.3"] as never[]);
  expect(saved(host)).toContain("MASQUERADE");
  removeReferenceMasquerade(host.nft, ownerOf("a", "eth1"), [parseCidr("10.1.0.3/24")]);
  expect(saved(host)).toBe(before);
});

referenceNetnsTest("rules of early releases, with the subnet as source, go as well", ({ host }) => {
  withOthers(host);
  const before = saved(host);
  attach(host, A, "10.1.0.2/24");
  sh(host, `iptables -t nat -A POSTROUTING -s 10.1.0.2/20 -j ${referenceChainName("CNI-", A)}`);
  removeReferenceMasquerade(host.nft, A, [parseCidr("10.1.0.2/24")]);
  expect(saved(host)).toBe(before);
});

referenceNetnsTest("a chain that an administrator's rule leads to is left to the administrator", ({ host }) => {
  withOthers(host);
  attach(host, A, "10.1.0.2/24");
  const chain = referenceChainName("CNI-", A);
  sh(host, `iptables -t nat -A MINE -s 10.1.0.9 -j ${chain}`);
  removeReferenceMasquerade(host.nft, A);
  expect(saved(host)).not.toContain("-s 10.1.0.2");
  expect(saved(host)).toContain(`-A MINE -s 10.1.0.9/32 -j ${chain}`);
});

referenceNetnsTest(
  "GC removes the chains of this network's dead, also those that nothing leads to any more",
  ({ host }) => {
    withOthers(host);
    attach(host, A, "10.1.0.2/24");
    attach(host, ownerOf("b", "eth0", "other"), "10.2.0.2/24");
    const living = saved(host);
    attach(host, ownerOf("b"), "10.1.0.3/24", "fd00:1::3/64");
    attach(host, ownerOf("c"), "10.1.0.4/24");
    sh(host, `iptables -t nat -D POSTROUTING 4`);
    expect(saved(host).match(/-j CNI-/g)).toHaveLength(4);
    gcReferenceMasquerade(host.nft, "net", [{ containerId: "a", ifname: "eth0" }]);
    expect(saved(host)).toBe(living);
  },
);

referenceNetnsTest("which of many owners have chains is asked by name", ({ host }) => {
  withOthers(host);
  const withIpv6 = ownerOf("b");
  attach(host, A, "10.1.0.2/24");
  attach(host, withIpv6, "fd00:1::3/64");
  const counts = { sends: 0, messages: 0, dumps: 0, received: 0 };
  const { nft } = countingNetns(host, counts);
  const found = ownersWithReferenceMasquerade(nft, [ownerOf("c"), A, withIpv6, ownerOf("a", "eth0", "other")]);
  expect([found, counts.dumps]).toEqual([new Set([A, withIpv6]), 0]);
});

referenceNetnsTest("with nft: by network, container and interface, and with the last rule the table", ({ host }) => {
  sh(host, "nft add table inet mine");
  const before = listing(host);
  attachByNft(host, A, "10.1.0.2/24", "fd00:1::2/64");
  const alone = listing(host);
  const long = ownerOf("a".repeat(120));
  attachByNft(host, ownerOf("a", "eth1"), "10.1.0.3/24");
  attachByNft(host, long, "10.1.0.4/24");
  expect(listReferenceMasquerade(host.nft, long)).toEqual(["10.1.0.4"] as never[]);
  removeReferenceMasquerade(host.nft, long);
  removeReferenceMasquerade(host.nft, ownerOf("a", "eth1"), [parseCidr("10.1.0.9/24")]);
  expect(listing(host)).toBe(alone);
  removeReferenceMasquerade(host.nft, A);
  expect(listing(host)).toBe(before);
});

referenceNetnsTest(
  "with nft: GC removes what is this network's and dead; a table with a foreign chain stays",
  ({ host }) => {
    attachByNft(host, A, "10.1.0.2/24");
    attachByNft(host, ownerOf("a", "eth0", "other"), "10.2.0.2/24");
    const living = listing(host);
    attachByNft(host, ownerOf("a", "eth1"), "10.1.0.3/24");
    gcReferenceMasquerade(host.nft, "net", [{ containerId: "a", ifname: "eth0" }]);
    expect(listing(host)).toBe(living);
    sh(host, "nft add chain inet cni_plugins_masquerade mine");
    for (const network of ["net", "other"]) gcReferenceMasquerade(host.nft, network, []);
    expect(listing(host)).toContain("chain mine");
    expect(listing(host)).not.toContain("saddr");
  },
);

referenceNetnsTest(
  "a node that never saw the reference pays one message, and two more where iptables has its tables",
  ({ host }) => {
    const nl = sendCountingSocket(host.nft);
    removeReferenceMasquerade(nl, A);
    expect(nl.sent).toBe(1);
    withOthers(host);
    nl.sent = 0;
    removeReferenceMasquerade(nl, A);
    expect(nl.sent).toBe(3);
  },
);
