import { expect } from "bun:test";
import { runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../../testing/traffic.ts";
import firewall from "./plugin.ts";
import {
  foreignRuleset,
  IPTABLES_DROPPING,
  iptablesCniRules,
  iptablesSave,
  nftListRuleset,
} from "../../testing/ruleset.ts";
import {
  addRoutesToContainers,
  type BridgeContainer,
  bridgeNetworkTest,
  reachesOutside,
  serveOutside,
} from "../../testing/bridge_network.ts";

bridgeNetworkTest(
  "containers pass iptables chains that drop, in rules that iptables prints and restores",
  async (network) => {
    const { host, outside, call } = network;
    using _outside = serveOutside(network);
    const c1 = network.container(2);
    const c2 = network.container(3);
    using _c1 = serveTcp(c1.netns, "c1", 80);
    runShellInNetns(
      host,
      IPTABLES_DROPPING,
      "iptables -N DOCKER-USER; iptables -A FORWARD -j DOCKER-USER; iptables -A DOCKER-USER -j RETURN",
    );
    const before = iptablesSave(host);
    expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
    call(firewall, "ADD", {}, { container: c1 });
    expect(await reachesOutside(c1)).toEqual([true, true]);
    expect(await reachesOutside(c2, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
    // Answers come in, calls do not.
    expect(await requestTcp(outside, "10.88.0.2", 80, NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
    call(firewall, "ADD", { name: "db" }, { container: c2, containerId: "c2" });
    const family = [
      "-N CNI-ADMIN",
      "-N CNI-FORWARD",
      '-A FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD',
      '-A CNI-FORWARD -m comment --comment "CNI firewall plugin admin overrides" -j CNI-ADMIN',
      '-A CNI-FORWARD -m mark --mark 0x20000000/0x20000000 -m mark --mark 0x20000000/0x20000000 -m comment --comment "Containers, marked by table inet cni" -j ACCEPT',
    ];
    expect(iptablesCniRules(host)).toEqual([...family, ...family]);
    const during = iptablesSave(host);
    // nft(8) shows all that they say: whoever saves what it prints loses nothing.
    runShellInNetns(host, "nft list ruleset >/tmp/$$; nft flush ruleset; nft -f /tmp/$$; rm /tmp/$$");
    expect(iptablesSave(host)).toBe(during);
    expect([await reachesOutside(c1), await reachesOutside(c2)]).toEqual([[true, true], [true, true]]);
    runShellInNetns(
      host,
      "iptables-save >/tmp/$$; iptables-restore </tmp/$$; ip6tables-save >/tmp/$$; ip6tables-restore </tmp/$$; rm /tmp/$$",
    );
    expect(iptablesSave(host)).toBe(during);
    expect([await reachesOutside(c1), await reachesOutside(c2)]).toEqual([[true, true], [true, true]]);
    // What others wrote anew is found by CHECK, by another ADD and by DEL all the same.
    call(firewall, "CHECK", {}, { container: c1 });
    call(firewall, "ADD", {}, { container: c1 });
    expect(iptablesSave(host)).toBe(during);
    call(firewall, "DEL", {}, { container: c1 });
    expect([await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS), await reachesOutside(c2)]).toEqual([[false, false], [
      true,
      true,
    ]]);
    call(firewall, "DEL", { name: "db" }, { container: c2, containerId: "c2" });
    expect(iptablesSave(host)).toBe(before);
  },
);

bridgeNetworkTest(
  "chains of other tables that drop let containers through, whatever drops in them",
  async (network) => {
    const { host, call } = network;
    using _outside = serveOutside(network);
    const c1 = network.container(2);
    runShellInNetns(
      host,
      `nft -f - <<'!'
      table inet site {
        chain passing { type filter hook forward priority 0; policy drop; ct state invalid drop; }
        chain other { type filter hook forward priority 20; policy accept; }
        chain late { type filter hook forward priority 30; policy drop; }
      }
      table ip mine {
        chain fw { type filter hook forward priority 10; policy accept; counter log reject
        }
      }
!`,
    );
    const before = foreignRuleset(host);
    expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
    call(firewall, "ADD", {}, { container: c1 });
    expect(await reachesOutside(c1)).toEqual([true, true]);
    expect(foreignRuleset(host)).toContain(`
	chain passing {
		type filter hook forward priority filter; policy drop;
		jump CNI-FORWARD comment "CNI firewall plugin rules"
		ct state invalid drop
	}
`);
    expect(foreignRuleset(host)).toContain(`
	chain CNI-FORWARD {
		meta mark & 0x20000000 == 0x20000000 accept comment "Containers, marked by table inet cni"
	}
`);
    call(firewall, "CHECK", {}, { container: c1 });
    const during = foreignRuleset(host);
    call(firewall, "ADD", {}, { container: c1 });
    expect(foreignRuleset(host)).toBe(during);
    call(firewall, "DEL", {}, { container: c1 });
    expect(foreignRuleset(host)).toBe(before);
  },
);

/** Publishes port 80 of a container as port 8080 of the host, and leaves port 81 alone. */
const PUBLISHED = `nft -f - <<'!'
  table inet published {
    chain incoming {
      type nat hook prerouting priority dstnat;
      fib daddr type local tcp dport 8080 dnat ip to 10.88.0.2:80
      fib daddr type local tcp dport 8080 dnat ip6 to [fd88::2]:80
    }
  }
!`;

for (
  const [whose, drop] of [
    ["iptables", IPTABLES_DROPPING],
    ["nft", "nft 'add table inet site; add chain inet site fw { type filter hook forward priority 0; policy drop; }'"],
  ] as const
) {
  bridgeNetworkTest(
    `where a chain of ${whose} drops, published ports are reached and others are not`,
    async (network) => {
      const { host, outside, call } = network;
      addRoutesToContainers(network);
      const [c1, c2] = [network.container(2), network.container(3)];
      using _80 = serveTcp(c1.netns, "c1", 80);
      using _81 = serveTcp(c1.netns, "c1", 81);
      const answer = async (to: string, port: number, from = outside) =>
        (await requestTcp(from, to, port, NO_ANSWER_TIMEOUT_MS))?.split(" ")[0];
      const all = () =>
        Promise.all([
          ...[answer("192.0.2.1", 8080), answer("2001:db8::1", 8080)],
          ...[answer("10.88.0.2", 80), answer("fd88::2", 80), answer("192.0.2.1", 81), answer("10.88.0.2", 81)],
        ]);
      const none = [undefined, undefined, undefined, undefined];
      runShellInNetns(host, drop, PUBLISHED);
      call(firewall, "ADD", {}, { container: c2, containerId: "c2" });
      // Others that have the plugin open nothing for a container that has not.
      expect(await all()).toEqual([undefined, undefined, ...none]);
      call(firewall, "ADD", {}, { container: c1 });
      expect(await all()).toEqual(["c1", "c1", ...none]);
      call(firewall, "CHECK", {}, { container: c1 });
      runShellInNetns(
        host,
        "iptables-save >/tmp/$$; iptables-restore </tmp/$$; ip6tables-save >/tmp/$$; ip6tables-restore </tmp/$$",
      );
      expect(await all()).toEqual(["c1", "c1", ...none]);
      call(firewall, "DEL", {}, { container: c1 });
      expect(await all()).toEqual([undefined, undefined, ...none]);
      call(firewall, "DEL", {}, { container: c2, containerId: "c2" });
      expect([iptablesCniRules(host), nftListRuleset(host).includes("CNI-FORWARD")]).toEqual([[], false]);
    },
  );
}

bridgeNetworkTest("a published port is no way round the ingressPolicy", async (network) => {
  const { host, outside, call } = network;
  addRoutesToContainers(network);
  const [c1, c2] = [network.container(2), network.container(3)];
  using _80 = serveTcp(c1.netns, "c1", 80);
  runShellInNetns(host, IPTABLES_DROPPING, PUBLISHED);
  const reached = async (from: BridgeContainer["netns"]) =>
    (await requestTcp(from, "192.0.2.1", 8080, NO_ANSWER_TIMEOUT_MS)) !== undefined;
  // Its neighbour answers it past the host, so that the connection must be with the host.
  runShellInNetns(host, "nft 'add chain inet published out { type nat hook postrouting priority srcnat; }'");
  runShellInNetns(host, "nft add rule inet published out ct status dnat oifname br0 masquerade");
  for (const [ingressPolicy, neighbour] of [["open", true], ["same-bridge", true], ["isolated", false]] as const) {
    call(firewall, "ADD", { ingressPolicy }, { container: c1 });
    call(firewall, "ADD", { ingressPolicy }, { container: c2, containerId: "c2" });
    expect([ingressPolicy, await reached(outside), await reached(c2.netns)]).toEqual([ingressPolicy, true, neighbour]);
    call(firewall, "DEL", { ingressPolicy }, { container: c2, containerId: "c2" });
    call(firewall, "DEL", { ingressPolicy }, { container: c1 });
  }
});

bridgeNetworkTest("rules that an earlier version wrote are completed by ADD and removed by DEL and GC", (network) => {
  const { host, call } = network;
  const container = network.container(2);
  runShellInNetns(host, IPTABLES_DROPPING);
  const before = iptablesSave(host);
  const older = () =>
    runShellInNetns(
      host,
      "iptables -N CNI-FORWARD",
      'iptables -I FORWARD -m comment --comment "CNI firewall plugin rules" -j CNI-FORWARD',
      'iptables -A CNI-FORWARD -d 10.88.0.2 -m conntrack --ctstate RELATED,ESTABLISHED -m comment --comment "web c1 eth0" -j ACCEPT',
      'iptables -A CNI-FORWARD -s 10.88.0.2 -m comment --comment "web c1 eth0" -j ACCEPT',
    );
  for (const command of ["DEL", "GC"] as const) {
    older();
    if (command === "DEL") {
      expect(() => call(firewall, "CHECK", {}, { container })).toThrow("Check failed");
      call(firewall, "ADD", {}, { container });
      call(firewall, "CHECK", {}, { container });
      expect(iptablesCniRules(host).join("\n")).toContain("--mark 0x20000000/0x20000000");
      call(firewall, "DEL", {}, { container });
    } else {
      call(firewall, "GC", { "cni.dev/valid-attachments": [] });
    }
    expect(iptablesSave(host)).toBe(before);
  }
  return Promise.resolve();
});

bridgeNetworkTest("other tables than iptables' are left alone where nobody drops", (network) => {
  const { host, call } = network;
  const c1 = network.container(2);
  runShellInNetns(
    host,
    "nft -f - <<'!'",
    "table inet firewalld {}",
    "table inet site {",
    "  chain fw { type filter hook forward priority 0; ip saddr 192.0.2.99 drop; jump more; }",
    "  chain more { ip saddr 192.0.2.98 drop; }",
    "}",
    "table ip filter { chain INPUT { type filter hook input priority 0; policy drop; }; }",
    "table ip mangle { chain FORWARD { type filter hook forward priority -150; ip saddr 192.0.2.97 drop; }; }",
    "!",
  );
  const before = foreignRuleset(host);
  const others = () => foreignRuleset(host).replace(/^table ip6? filter \{\n[^]*?^\}\n/gm, "");
  const othersBefore = others();
  call(firewall, "ADD", {}, { container: c1 });
  expect(others()).toBe(othersBefore);
  call(firewall, "CHECK", {}, { container: c1 });
  call(firewall, "DEL", {}, { container: c1 });
  expect(foreignRuleset(host).replace(/\n\tchain FORWARD \{[^}]*filter; policy accept;\n\t\}\n/, "")).toBe(before);
  return Promise.resolve();
});

bridgeNetworkTest("the administrator's chain goes first if there is one, and stays as it is", async (network) => {
  const { host, call } = network;
  using _outside = serveOutside(network);
  const c1 = network.container(2);
  runShellInNetns(host, "iptables -P FORWARD DROP; iptables -N CNI-ADMIN; iptables -A CNI-ADMIN -s 10.88.0.2 -j DROP");
  // Another name, in a table where nothing drops: it is asked all the same.
  runShellInNetns(host, "ip6tables -P FORWARD ACCEPT; ip6tables -N SITE");
  const before = iptablesSave(host);
  call(firewall, "ADD", {}, { container: c1 });
  expect((await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS))[0]).toBe(false);
  call(firewall, "CHECK", {}, { container: c1 });
  runShellInNetns(host, "iptables -F CNI-ADMIN");
  expect((await reachesOutside(c1))[0]).toBe(true);
  runShellInNetns(host, "iptables -A CNI-ADMIN -s 10.88.0.2 -j DROP");
  call(firewall, "DEL", {}, { container: c1 });
  expect(iptablesSave(host)).toBe(before);
  call(firewall, "ADD", { iptablesAdminChainName: "SITE" }, { container: c1 });
  expect(await reachesOutside(c1)).toEqual([true, true]);
  runShellInNetns(host, "ip6tables -A SITE -s fd88::2 -j DROP");
  expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([true, false]);
  runShellInNetns(host, "ip6tables -F SITE");
  call(firewall, "DEL", {}, { container: c1 });
  expect(iptablesSave(host)).toBe(before);
});

bridgeNetworkTest("the administrator's chain is none of those that lead to it, and no verdict", (network) => {
  const { host, call } = network;
  const c1 = network.container(2);
  runShellInNetns(host, IPTABLES_DROPPING);
  const before = iptablesSave(host);
  for (const iptablesAdminChainName of ["CNI-FORWARD", "FORWARD", "INPUT", "ACCEPT"]) {
    expect(() => call(firewall, "ADD", { iptablesAdminChainName }, { container: c1 })).toThrow(
      "iptablesAdminChainName must be a chain's name",
    );
  }
  expect(iptablesSave(host)).toBe(before);
  return Promise.resolve();
});

bridgeNetworkTest("an administrator's chain is asked also where iptables has made no other yet", async (network) => {
  const { host, call } = network;
  using _outside = serveOutside(network);
  const c1 = network.container(2);
  runShellInNetns(host, "iptables -N CNI-ADMIN; iptables -A CNI-ADMIN -s 10.88.0.2 -j DROP");
  call(firewall, "ADD", {}, { container: c1 });
  expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, true]);
  call(firewall, "CHECK", {}, { container: c1 });
  call(firewall, "DEL", {}, { container: c1 });
  expect(iptablesCniRules(host)).toEqual(["-N CNI-ADMIN", "-A CNI-ADMIN -s 10.88.0.2/32 -j DROP"]);
});

bridgeNetworkTest("a late DEL leaves alone who has got the address since", async (network) => {
  const { host, call } = network;
  using _outside = serveOutside(network);
  runShellInNetns(host, IPTABLES_DROPPING);
  const c1 = network.container(2);
  call(firewall, "ADD", {}, { container: c1, containerId: "late" });
  call(firewall, "ADD", {}, { container: c1, containerId: "new" });
  call(firewall, "DEL", {}, { container: c1, containerId: "late" });
  expect(await reachesOutside(c1)).toEqual([true, true]);
  call(firewall, "CHECK", {}, { container: c1, containerId: "new" });
  call(firewall, "DEL", {}, { container: c1, containerId: "late" });
  call(firewall, "DEL", {}, { container: c1, containerId: "new", prevResult: null });
  expect(iptablesCniRules(host)).toEqual([]);
});

bridgeNetworkTest("GC removes what belongs to containers of the network that live no more", (network) => {
  const { host, call } = network;
  runShellInNetns(host, IPTABLES_DROPPING);
  const all = [["web", "living"], ["web", "dead"], ["other", "dead"]] as const;
  all.forEach(([name, containerId], i) => {
    const policy = { name, ingressPolicy: "isolated" };
    call(firewall, "ADD", policy, { container: network.container(2 + i), containerId });
  });
  call(firewall, "GC", { "cni.dev/valid-attachments": [{ containerID: "living", ifname: "eth0" }] });
  const owners = () =>
    new Set([...nftListRuleset(host).matchAll(/comment "((?:web|other) \S+ eth0)"/g)].map(([, who]) => who));
  expect(owners()).toEqual(new Set(["web living eth0", "other dead eth0"]));
  expect(iptablesCniRules(host).filter((rule) => rule.includes("--mark 0x20000000/0x20000000"))).toHaveLength(2);
  call(firewall, "GC", { "cni.dev/valid-attachments": [] });
  call(firewall, "GC", { name: "other", "cni.dev/valid-attachments": [] });
  expect(owners()).toEqual(new Set());
  expect(iptablesCniRules(host)).toEqual([]);
  return Promise.resolve();
});

bridgeNetworkTest("a thousand containers cost the ruleset elements and no rules", (network) => {
  const { host, call } = network;
  const c1 = network.container(2);
  const own = () => runInNetns(host, "nft", "-s", "-t", "list", "ruleset");
  call(firewall, "ADD", { ingressPolicy: "same-bridge" }, { container: c1 });
  const few = own();
  const ips = Array.from({ length: 1000 }, (_, i) => ({ address: `10.88.${4 + (i >> 8)}.${i & 255}/16` }));
  const many = { container: c1, prevResult: { ...c1.result, ips }, containerId: "many" };
  call(firewall, "ADD", { ingressPolicy: "same-bridge" }, many);
  expect(own()).toBe(few);
  call(firewall, "CHECK", { ingressPolicy: "same-bridge" }, many);
  call(firewall, "DEL", { ingressPolicy: "same-bridge" }, many);
  call(firewall, "DEL", {}, { container: c1 });
  expect(nftListRuleset(host)).not.toContain("elements");
  expect(nftListRuleset(host)).not.toContain("ingress-");
  return Promise.resolve();
});
