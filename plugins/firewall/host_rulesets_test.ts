/**
 * Who reaches whom on hosts with rules of their own, through the reference's plugins and through ours: where the reference's connect,
 * ours do.
 *
 * @module
 */
import { expect } from "bun:test";
import { type ConnectivityHost, flowsOf, newConnectivityHost, without } from "../../testing/connectivity.ts";
import { comparisonTest, ourPlugins, type PluginSet, referencePlugins } from "../../testing/reference_host.ts";
import { foreignRuleset } from "../../testing/ruleset.ts";
import { sampleOf } from "../../testing/sample.ts";

/** A host by the commands that make its rules; `both` stands for iptables and ip6tables. */
interface Host {
  readonly name: string;
  /** Before the ADD. */
  readonly before?: string;
  /** After it. */
  readonly after?: string;
  /** Further keys of the plugin's configuration. */
  readonly firewall?: object;
  /** What does not get through with ours, in the words of `flowsOf`. */
  readonly cut: string;
  /** The same with the reference's; as with ours unless told. */
  readonly cutByReference?: string;
  /** The reason, where the reference connects what ours does not. */
  readonly deviation?: string;
}

const LOGDROP = `both -N LOGDROP; both -A LOGDROP -m limit --limit 5/min -j MARK --set-mark 0; both -A LOGDROP -j DROP`;
const nft = (rules: string) => `nft -f - <<'!'\n${rules}\n!`;
const forward = (rules: string, policy = "accept", priority = "filter") =>
  `chain forward { type filter hook forward priority ${priority}; policy ${policy};\n${rules}\n}`;
const inet = (...chains: string[]) => nft(`table inet site {\n${chains.join("\n")}\n}`);

/** The container is called by nobody; with the reference, published ports are no exception. */
const DROPPED = { cut: "in", cutByReference: "in, published" };

const HOSTS: readonly Host[] = [
  { name: "no rules at all", cut: "" },

  // iptables: policies.
  { name: "policy DROP", before: "both -P FORWARD DROP", ...DROPPED },
  { name: "policy DROP after the ADD", after: "both -P FORWARD DROP", ...DROPPED },
  {
    name: "policy DROP after the ADD, where iptables has tables",
    before: "both -A INPUT -i lo -j ACCEPT; both -t nat -A POSTROUTING -o lo -j RETURN",
    after: "both -P FORWARD DROP",
    ...DROPPED,
  },
  {
    name: "policy DROP for IPv4 alone",
    before: "iptables -P FORWARD DROP",
    cut: "in 4",
    cutByReference: "in 4, published 4",
  },
  {
    name: "policy DROP for IPv6 alone",
    before: "ip6tables -P FORWARD DROP",
    cut: "in 6",
    cutByReference: "in 6, published 6",
  },
  {
    name: "policy DROP for IPv6 alone, after the ADD",
    after: "ip6tables -P FORWARD DROP",
    cut: "in 6",
    cutByReference: "in 6, published 6",
  },
  {
    name: "policy DROP with established connections accepted",
    before: "both -P FORWARD DROP; both -A FORWARD -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
    ...DROPPED,
  },
  {
    name: "policy DROP and a rule that admits the container's subnet",
    before:
      "both -P FORWARD DROP; iptables -A FORWARD -d 10.1.0.0/24 -j ACCEPT; ip6tables -A FORWARD -d fd01::/64 -j ACCEPT",
    cut: "",
  },

  // iptables: drops as the last rule, or with rules behind them.
  { name: "last rule drops", before: "both -A FORWARD -j DROP", ...DROPPED },
  { name: "last rule drops, after the ADD", after: "both -A FORWARD -j DROP", ...DROPPED },
  { name: "last rule rejects", before: "both -A FORWARD -j REJECT", ...DROPPED },
  { name: "last rule rejects, after the ADD", after: "both -A FORWARD -j REJECT", ...DROPPED },
  {
    name: "last rules reject TCP by a reset and drop the rest",
    before: "both -A FORWARD -p tcp -j REJECT --reject-with tcp-reset; both -A FORWARD -j DROP",
    ...DROPPED,
  },
  {
    name: "a drop of everything, followed by another rule",
    before: "both -A FORWARD -j DROP; both -A FORWARD -i up0 -j ACCEPT",
    ...DROPPED,
  },
  {
    name: "a reject of everything, followed by other rules",
    before: "both -A FORWARD -j REJECT; both -A FORWARD -o up0 -j ACCEPT; both -A FORWARD -i lo -j DROP",
    ...DROPPED,
  },

  // iptables: chains of users.
  { name: "a jump to a chain that drops", before: `${LOGDROP}; both -A FORWARD -j LOGDROP`, ...DROPPED },
  { name: "a jump to a chain that drops, after the ADD", after: `${LOGDROP}; both -A FORWARD -j LOGDROP`, ...DROPPED },
  { name: "a goto to a chain that drops", before: `${LOGDROP}; both -A FORWARD -g LOGDROP`, ...DROPPED },
  {
    name: "a goto to a chain that rejects",
    before: "both -N NO; both -A NO -j REJECT; both -A FORWARD -g NO",
    ...DROPPED,
  },
  {
    name: "a jump to a chain that jumps to one that drops",
    before: `${LOGDROP}; both -N SITE; both -A SITE -i lo -j RETURN; both -A SITE -j LOGDROP; both -A FORWARD -j SITE`,
    ...DROPPED,
  },
  {
    name: "a jump to a chain that drops, followed by rules that accept",
    before: `${LOGDROP}; both -A FORWARD -j LOGDROP; both -A FORWARD -j ACCEPT`,
    ...DROPPED,
  },
  {
    name: "new connections jump to a chain that drops",
    before: `${LOGDROP}; both -A FORWARD -m conntrack --ctstate NEW -j LOGDROP`,
    ...DROPPED,
  },
  {
    name: "a chain for one interface drops",
    before: `${LOGDROP}; both -A FORWARD -i cni0 -j LOGDROP; both -A FORWARD -o cni0 -j LOGDROP`,
    ...DROPPED,
  },
  {
    name: "a chain that begins to drop after the ADD",
    before: "both -N SITE; both -A FORWARD -j SITE",
    after: "both -A SITE -j DROP",
    ...DROPPED,
  },
  {
    name: "a chain that is jumped to first and returns what is established",
    before:
      "both -N SITE; both -A SITE -m conntrack --ctstate ESTABLISHED,RELATED -j RETURN; both -A SITE -j DROP; both -I FORWARD -j SITE",
    ...DROPPED,
  },
  {
    name: "a jump that was inserted after the ADD, to a chain that drops",
    after: `${LOGDROP}; both -I FORWARD -j LOGDROP`,
    cut: "all",
  },

  // iptables: drops that match something.
  { name: "new connections drop", before: "both -A FORWARD -m conntrack --ctstate NEW -j DROP", ...DROPPED },
  {
    name: "new connections drop, after the ADD",
    after: "both -A FORWARD -m conntrack --ctstate NEW -j DROP",
    ...DROPPED,
  },
  {
    name: "new connections are rejected by -m state",
    before: "both -A FORWARD -m state --state NEW -j REJECT",
    ...DROPPED,
  },
  {
    name: "all but established connections drop",
    before: "both -A FORWARD -m conntrack ! --ctstate ESTABLISHED,RELATED -j DROP",
    ...DROPPED,
  },
  { name: "invalid packets drop", before: "both -A FORWARD -m conntrack --ctstate INVALID -j DROP", cut: "" },
  { name: "what comes from the bridge drops", before: "both -A FORWARD -i cni0 -j DROP", cut: "" },
  { name: "what goes to the bridge drops", before: "both -A FORWARD -o cni0 -j DROP", ...DROPPED },
  { name: "what comes from the uplink drops", before: "both -A FORWARD -i up0 -j DROP", ...DROPPED },
  { name: "what goes to the uplink drops", before: "both -A FORWARD -o up0 -j DROP", cut: "" },
  { name: "what comes from elsewhere than the uplink drops", before: "both -A FORWARD ! -i up0 -j DROP", cut: "" },
  {
    name: "what comes from the subnet drops",
    before: "iptables -A FORWARD -s 10.1.0.0/24 -j DROP; ip6tables -A FORWARD -s fd01::/64 -j DROP",
    cut: "",
  },
  {
    name: "what goes to the subnet drops",
    before: "iptables -A FORWARD -d 10.1.0.0/24 -j DROP; ip6tables -A FORWARD -d fd01::/64 -j DROP",
    ...DROPPED,
  },
  {
    name: "what goes to the outside is rejected",
    before: "iptables -A FORWARD -d 192.0.2.0/24 -j REJECT; ip6tables -A FORWARD -d 2001:db8::/64 -j REJECT",
    cut: "",
  },
  {
    name: "TCP drops",
    before: "both -A FORWARD -p tcp -j DROP",
    cut: "in tcp",
    cutByReference: "in tcp, published tcp",
  },
  {
    name: "UDP drops",
    before: "both -A FORWARD -p udp -j DROP",
    cut: "in udp",
    cutByReference: "in udp, published udp",
  },
  {
    name: "one port is rejected",
    before: "both -A FORWARD -p tcp --dport 80 -j REJECT",
    cut: "in tcp",
    cutByReference: "in tcp, published tcp",
  },
  {
    name: "several ports drop",
    before: "both -A FORWARD -p udp -m multiport --dports 53,67 -j DROP",
    cut: "in udp",
    cutByReference: "in udp, published udp",
  },
  { name: "packets without a mark drop", before: "both -A FORWARD -m mark ! --mark 0x1 -j DROP", ...DROPPED },
  {
    name: "packets to other than local addresses drop",
    before: "both -A FORWARD -m addrtype ! --dst-type LOCAL -j DROP",
    ...DROPPED,
  },

  // iptables: other tables, and what is done to ours.
  { name: "mangle's policy DROP", before: "both -t mangle -P FORWARD DROP", cut: "in", cutByReference: "all" },
  { name: "mangle drops TCP", before: "both -t mangle -A FORWARD -p tcp -j DROP", cut: "tcp" },
  { name: "raw drops UDP", before: "both -t raw -A PREROUTING -p udp -i cni0 -j DROP", cut: "udp" },
  {
    name: "FORWARD flushed after the ADD, with policy DROP",
    after: "both -F FORWARD; both -P FORWARD DROP",
    cut: "all",
  },
  {
    name: "rules that are saved and loaded after the ADD, with policy DROP",
    after: "both -P FORWARD DROP; iptables-save | iptables-restore; ip6tables-save | ip6tables-restore",
    ...DROPPED,
  },
  {
    name: "rules that are zeroed and listed after the ADD, with policy DROP",
    after:
      "both -Z; both -S; both -L -n -v; both -P FORWARD DROP; both -C FORWARD -m comment --comment 'CNI firewall plugin rules' -j CNI-FORWARD",
    ...DROPPED,
  },

  {
    name: "rules loaded anew after the ADD, from a file without ours",
    after:
      "for each in iptables ip6tables; do printf '*filter\\n:FORWARD DROP [0:0]\\nCOMMIT\\n' | $each-restore; done",
    cut: "all",
  },

  // Marks of others.
  {
    name: "packets with a mark drop",
    before: "both -t mangle -A PREROUTING -j MARK --set-mark 7; both -A FORWARD -m mark --mark 7 -j DROP",
    ...DROPPED,
  },
  {
    name: "every packet bears all marks, policy DROP",
    before: "both -t mangle -A PREROUTING -j MARK --set-mark 0xffffffff; both -P FORWARD DROP",
    ...DROPPED,
  },
  {
    name: "mangle sets a mark, policy DROP",
    before: "both -t mangle -A FORWARD -j MARK --set-mark 1; both -P FORWARD DROP",
    ...DROPPED,
  },
  {
    name: "mangle sets a mark after the ADD, policy DROP",
    after: "both -t mangle -A FORWARD -j MARK --set-mark 1; both -P FORWARD DROP",
    ...DROPPED,
  },
  {
    name: "marks are saved and restored, policy DROP",
    before:
      "both -t mangle -A PREROUTING -j CONNMARK --restore-mark; both -t mangle -A POSTROUTING -j CONNMARK --save-mark",
    after: "both -P FORWARD DROP",
    ...DROPPED,
  },
  {
    name: "FORWARD sets a mark after the ADD, policy DROP",
    after: "both -I FORWARD -j MARK --set-mark 1; both -P FORWARD DROP",
    cut: "all",
    cutByReference: "in, published",
    deviation: "the rule has no mask, so that it takes away the mark by which a rule behind it accepts",
  },

  // The administrator's chain.
  { name: "CNI-ADMIN drops after the ADD", after: "both -I CNI-ADMIN -j DROP", cut: "all" },
  {
    name: "CNI-ADMIN drops the subnet's packets after the ADD",
    after: "iptables -I CNI-ADMIN -s 10.1.0.0/24 -j DROP; ip6tables -I CNI-ADMIN -s fd01::/64 -j DROP",
    cut: "all",
  },
  {
    name: "CNI-ADMIN rejects a port after the ADD",
    after: "both -I CNI-ADMIN -p tcp --dport 80 -j REJECT",
    cut: "tcp",
  },
  {
    name: "CNI-ADMIN drops after the ADD, beside policy DROP",
    before: "both -P FORWARD DROP",
    after: "both -A CNI-ADMIN -p udp -j DROP",
    cut: "udp, in",
    cutByReference: "udp, in, published",
  },
  {
    name: "CNI-ADMIN that was there before the ADD",
    before: "both -N CNI-ADMIN; both -A CNI-ADMIN -p udp --dport 53 -j DROP; both -P FORWARD DROP",
    cut: "udp, in",
    cutByReference: "udp, in, published",
  },
  {
    name: "CNI-ADMIN admits calls, beside policy DROP",
    before: "both -P FORWARD DROP",
    after: "iptables -I CNI-ADMIN -d 10.1.0.0/24 -j ACCEPT; ip6tables -I CNI-ADMIN -d fd01::/64 -j ACCEPT",
    cut: "",
  },
  {
    name: "another administrator's chain by its name",
    firewall: { iptablesAdminChainName: "SITE" },
    before: "both -P FORWARD DROP",
    after: "both -I SITE -p tcp -j DROP",
    cut: "tcp, in",
    cutByReference: "tcp, in, published",
  },
  {
    name: "another administrator's chain that was there before the ADD",
    firewall: { iptablesAdminChainName: "SITE" },
    before: "both -N SITE; both -A SITE -i cni0 -p tcp -j DROP; both -A FORWARD -j REJECT",
    cut: "out tcp, in, published tcp",
    cutByReference: "out tcp, in, published",
  },

  // Native nftables.
  { name: "nft: policy drop", before: inet(forward("", "drop")), cut: "in", cutByReference: "all" },
  {
    name: "nft: policy drop, accepting what is established",
    before: inet(forward("ct state established,related accept", "drop")),
    cut: "in",
    cutByReference: "all",
  },
  {
    name: "nft: last rule drops",
    before: inet(forward("ct state invalid drop\n drop")),
    cut: "in",
    cutByReference: "all",
  },
  {
    name: "nft: last rule rejects",
    before: inet(forward("reject with icmpx admin-prohibited")),
    cut: "in",
    cutByReference: "all",
  },
  {
    name: "nft: policy drop in a table of each family",
    before: nft(`table ip site {\n${forward("", "drop")}\n}\ntable ip6 site {\n${forward("", "drop")}\n}`),
    cut: "in",
    cutByReference: "all",
  },
  {
    name: "nft: policy drop for IPv6 alone",
    before: nft(`table ip6 site {\n${forward("", "drop")}\n}`),
    cut: "in 6",
    cutByReference: "6",
  },
  {
    name: "nft: policy drop before iptables",
    before: inet(forward("", "drop", "-10")),
    cut: "in",
    cutByReference: "all",
  },
  {
    name: "nft: policy drop behind iptables",
    before: inet(forward("", "drop", "10")),
    cut: "in",
    cutByReference: "all",
  },
  {
    name: "nft: policy drop beside iptables' policy DROP",
    before: `both -P FORWARD DROP; ${inet(forward("", "drop", "10"))}`,
    cut: "in",
    cutByReference: "all",
  },
  {
    name: "nft: iptables' own table in nft's words, as in nftables.conf",
    before: nft(
      ["ip", "ip6"].map((family) =>
        `table ${family} filter {\nchain FORWARD { type filter hook forward priority filter; policy drop; }\n}`
      )
        .join("\n"),
    ),
    ...DROPPED,
  },
  {
    name: "nft: a table called filter with chains in small letters",
    before: nft(`table ip filter {\n${forward("", "drop")}\n}`),
    cut: "in 4",
    cutByReference: "4",
  },
  {
    name: "nft: a rule drops TCP, and others follow",
    before: inet(forward("meta l4proto tcp drop\n ct state new accept")),
    cut: "tcp",
  },
  { name: "nft: a rule drops a subnet", before: inet(forward("ip saddr 10.1.0.0/24 drop")), cut: "4" },
  {
    name: "nft: a jump to a chain that drops UDP",
    before: inet("chain no { meta l4proto udp drop; }", forward("jump no")),
    cut: "udp",
  },
  {
    name: "nft: everything drops by a verdict map",
    before: inet(forward("iifname vmap { cni0 : drop, up0 : accept }")),
    cut: "all",
  },
  { name: "nft: invalid packets drop", before: inet(forward("ct state invalid drop")), cut: "" },
  { name: "nft: policy drop after the ADD", after: inet(forward("", "drop")), cut: "all" },
];

for (const { name, before = "", after = "", firewall, cut, cutByReference = cut, deviation } of sampleOf(HOSTS)) {
  comparisonTest(`${name}: ${deviation ?? "where the reference connects, so does this program"}`, async () => {
    const isBehind = flowsOf(cut).some((flow) => !flowsOf(cutByReference).includes(flow));
    expect(isBehind).toBe(deviation !== undefined);
    using reference = await newConnectivityHost({ firewall });
    using ours = await newConnectivityHost({ firewall });
    const attach = (world: ConnectivityHost, side: PluginSet) => {
      world.shell(before);
      const rules = foreignRuleset(world.host);
      const attachment = world.attach(side);
      world.shell(after);
      return { ...attachment, rules };
    };
    attach(reference, referencePlugins);
    const { check, del, rules } = attach(ours, ourPlugins);
    const [byReference, byOurs] = await Promise.all([reference.reached(cutByReference), ours.reached(cut)]);
    expect([Object.keys(byReference), Object.keys(byOurs)]).toEqual([without(cutByReference), without(cut)]);
    // Whoever is called sees the same caller.
    const byBoth = Object.entries(byReference).filter(([flow]) => flow in byOurs);
    expect(byOurs).toMatchObject(Object.fromEntries(byBoth));
    if (byOurs["out tcp 4"]) check();
    del();
    const left = foreignRuleset(ours.host);
    if (after === "") expect(left.split("\n")).toEqual(expect.arrayContaining(rules.split("\n")));
    for (const trace of ["10.1.0.2", "fd01::2", "net c1 eth0"]) expect(left).not.toContain(trace);
  });
}
