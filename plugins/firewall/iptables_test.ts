/**
 * iptables begins to drop, drops in chains of its own, is flushed, or is the legacy one: containers stay connected, or it is said.
 *
 * @module
 */
import { expect } from "bun:test";
import { parseIp } from "../../ffi/address.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { NFTA_MATCH_NAME } from "../../ffi/nft/uapi.ts";
import { tryTcpConnection } from "../../ffi/packet/probe.ts";
import type { CniCommand } from "../../spec/version.ts";
import { bridgeNetworkTest, reachesOutside, serveOutside } from "../../testing/bridge_network.ts";
import { watchedNetns } from "../../testing/netlink.ts";
import { invokePlugin, newHostContext, newRequest } from "../../testing/plugin_call.ts";
import { runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { loadKubeProxyRules } from "../../testing/kube_proxy.ts";
import {
  foreignRuleset,
  IPTABLES_DROPPING,
  iptablesCniRules,
  iptablesSave,
  nftListRuleset,
} from "../../testing/ruleset.ts";
import { NO_ANSWER_TIMEOUT_MS, serveTcp } from "../../testing/traffic.ts";
import firewall from "./plugin.ts";

for (const used of [true, false]) {
  bridgeNetworkTest(
    `when iptables begins to drop later, containers stay connected; it was ${used ? "" : "not "}used before`,
    async (network) => {
      const { host, call, restore } = network;
      using _outside = serveOutside(network);
      const [c1, c2] = [network.container(2), network.container(3)];
      const whole = () => call(firewall, "CHECK", {}, { container: c1 });
      if (used) runShellInNetns(host, "iptables -A INPUT -j ACCEPT; ip6tables -A OUTPUT -j ACCEPT");
      call(firewall, "ADD", {}, { container: c1 });
      runShellInNetns(host, IPTABLES_DROPPING);
      expect([await reachesOutside(c1), await reachesOutside(c2, NO_ANSWER_TIMEOUT_MS)]).toEqual([[true, true], [
        false,
        false,
      ]]);
      whole();
      // What an administrator flushes is put back in front of what has been added since.
      for (
        const [flushed, problem, again] of [
          ["-F FORWARD", /FORWARD" of table "ip filter" does not jump to chain "CNI-FORWARD"/, restore],
          ["-F CNI-FORWARD", /FORWARD" of table "ip filter" does not jump to chain "CNI-ADMIN"/, restore],
          ["-D CNI-FORWARD 2", /does not accept packets of containers/, restore],
          ["-F", /does not jump to chain "CNI-FORWARD"/, () => call(firewall, "ADD", {}, { container: c2 })],
        ] as const
      ) {
        runShellInNetns(
          host,
          ...["iptables", "ip6tables"].flatMap((program) => [
            `${program} ${flushed}; ${program} -A FORWARD -j DROP`,
          ]),
        );
        expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
        expect(whole).toThrow(problem);
        again(firewall, {}, { container: c1 });
        expect(await reachesOutside(c1)).toEqual([true, true]);
        whole();
      }
    },
  );
}

for (
  const [drops, lines] of Object.entries({
    "a chain that drops": ["-N LOGDROP", "-A LOGDROP -j DROP", "-A FORWARD -j LOGDROP", "-A FORWARD -j ACCEPT"],
    "a chain that is gone to": ["-N LOGDROP", "-A LOGDROP -j DROP", "-A FORWARD -g LOGDROP"],
    "new connections": ["-A FORWARD -m conntrack --ctstate NEW -j DROP", "-A FORWARD -j ACCEPT"],
    "all but established ones": ["-A FORWARD -m conntrack ! --ctstate ESTABLISHED,RELATED -j REJECT"],
    "by link and protocol": ["-A FORWARD -i br0 -p tcp -j DROP"],
  })
) {
  bridgeNetworkTest(`containers stay connected where iptables drops ${drops}`, async (network) => {
    const { host, call } = network;
    using _outside = serveOutside(network);
    const c1 = network.container(2);
    runShellInNetns(host, ...["iptables", "ip6tables"].flatMap((name) => lines.map((line) => `${name} ${line}`)));
    const before = iptablesSave(host);
    expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
    call(firewall, "ADD", {}, { container: c1 });
    expect(await reachesOutside(c1)).toEqual([true, true]);
    call(firewall, "DEL", {}, { container: c1 });
    expect(iptablesSave(host)).toBe(before);
  });
}

bridgeNetworkTest(
  "what kube-proxy refuses stays refused, whoever came first; the rest of FORWARD drops nothing of containers",
  (network) => {
    const { host, call, restore } = network;
    using _service = serveOutside(network);
    using _outside = serveTcp(network.outside, "outside", 81);
    const c1 = network.container(2);
    const services = ["192.0.2.2", "2001:db8::2"].map((clusterIp, i) => ({
      name: `web${i}`,
      clusterIp,
      endpoints: [],
    }));
    const outcomes = () =>
      [80, 81].flatMap((port) =>
        ["192.0.2.2", "2001:db8::2"].map((ip) => c1.netns.run<string>(() => tryTcpConnection(parseIp(ip), port, 2000)))
      );
    const jump = "-m comment --comment 'CNI firewall plugin rules' -j CNI-FORWARD";
    for (
      const attach of [
        () => call(firewall, "ADD", {}, { container: c1 }),
        () => restore(firewall, {}, { container: c1 }),
      ]
    ) {
      loadKubeProxyRules(host, { mode: "iptables", services });
      runShellInNetns(host, IPTABLES_DROPPING, "iptables -A FORWARD -j DROP; ip6tables -A FORWARD -j DROP");
      attach();
      expect(outcomes()).toEqual(["refused", "refused", "connected", "connected"]);
      call(firewall, "CHECK", {}, { container: c1 });
      // As the Go plugin and earlier versions did.
      for (const program of ["iptables", "ip6tables"]) {
        runShellInNetns(host, `${program} -D FORWARD ${jump}; ${program} -I FORWARD ${jump}`);
      }
      expect(() => call(firewall, "CHECK", {}, { container: c1 })).toThrow("before the rules of Kubernetes");
    }
    call(firewall, "ADD", {}, { container: c1 });
    expect(runInNetns(host, "iptables", "-S", "FORWARD").match(/(?<=-j )[A-Z-]+/g)).toEqual([
      "KUBE-SERVICES",
      "CNI-FORWARD",
      "DROP",
    ]);
    call(firewall, "DEL", {}, { container: c1 });
    expect(iptablesCniRules(host)).toEqual([]);
  },
);

bridgeNetworkTest(
  "the mark is nobody else's: it is gone behind the hook, and opens nothing for others",
  async (network) => {
    const { host, call } = network;
    using _outside = serveOutside(network);
    const [c1, c2] = [network.container(2), network.container(3)];
    runShellInNetns(
      host,
      IPTABLES_DROPPING,
      "iptables -t mangle -A PREROUTING -j MARK --set-mark 0x20000001",
      // What a rule of mangle makes of the whole mark takes the way away from nobody.
      "iptables -t mangle -A FORWARD -m mark --mark 0x20000001 -j MARK --set-mark 5",
      "iptables -t mangle -A POSTROUTING -m mark --mark 5",
      "iptables -t mangle -A POSTROUTING -m mark --mark 0x20000000/0x20000000 -j ACCEPT",
    );
    call(firewall, "ADD", {}, { container: c1 });
    expect((await reachesOutside(c1))[0]).toBe(true);
    expect((await reachesOutside(c2, NO_ANSWER_TIMEOUT_MS))[0]).toBe(false);
    const counted = runInNetns(host, "iptables", "-t", "mangle", "-vS", "POSTROUTING");
    expect(counted).toMatch(/--mark 0x5 -c [1-9]/);
    expect(counted).toContain("--mark 0x20000000/0x20000000 -c 0 0 ");
  },
);

bridgeNetworkTest(
  "chains that are asked before the tables of iptables let containers through as well",
  async (network) => {
    const { host, call } = network;
    using _outside = serveOutside(network);
    const c1 = network.container(2);
    runShellInNetns(
      host,
      "iptables -t mangle -P FORWARD DROP; ip6tables -t mangle -P FORWARD DROP",
      "nft 'add table inet site; add chain inet site fw { type filter hook forward priority -400; policy drop; }'",
    );
    const before = foreignRuleset(host);
    call(firewall, "ADD", {}, { container: c1 });
    expect(await reachesOutside(c1)).toEqual([true, true]);
    call(firewall, "CHECK", {}, { container: c1 });
    runShellInNetns(host, "nft flush chain inet cni before_all");
    expect(() => call(firewall, "CHECK", {}, { container: c1 })).toThrow(
      "runs before packets of containers are marked",
    );
    call(firewall, "ADD", {}, { container: c1 });
    expect(await reachesOutside(c1)).toEqual([true, true]);
    call(firewall, "DEL", {}, { container: c1 });
    expect(foreignRuleset(host)).toBe(before);
    expect(nftListRuleset(host)).not.toContain("before_all");
  },
);

bridgeNetworkTest(
  "a table that sleeps while containers are attached lets them through when it wakes up",
  async (network) => {
    const { host, call } = network;
    using _outside = serveOutside(network);
    const c1 = network.container(2);
    const tables = ["ip filter", "ip6 filter", "inet site"];
    const setFlags = (flags: string) => tables.map((table) => `nft 'add table ${table} { ${flags} }'`);
    runShellInNetns(
      host,
      IPTABLES_DROPPING,
      "nft 'add table inet site; add chain inet site fw { type filter hook forward priority 0; policy drop; }'",
      ...setFlags("flags dormant;"),
    );
    const before = foreignRuleset(host);
    call(firewall, "ADD", {}, { container: c1 });
    runShellInNetns(host, ...setFlags(""));
    expect(await reachesOutside(c1)).toEqual([true, true]);
    runShellInNetns(host, ...setFlags("flags dormant;"));
    call(firewall, "DEL", {}, { container: c1 });
    expect(foreignRuleset(host)).toBe(before);
  },
);

bridgeNetworkTest("where iptables-legacy filters, ADD and STATUS say so and go on", (network) => {
  const { host, call, log } = network;
  const c1 = network.container(2);
  const said = () => log.splice(0).join("\n");
  call(firewall, "STATUS", {});
  call(firewall, "ADD", {}, { container: c1 });
  expect(said()).toBe("");
  runShellInNetns(host, "iptables-legacy -P FORWARD DROP");
  call(firewall, "ADD", {}, { container: c1 });
  expect(said()).toMatch(/^firewall: iptables-legacy has a table "filter"[^\n]*$/);
  runShellInNetns(host, "ip6tables-legacy -L");
  call(firewall, "STATUS", {});
  expect(said()).toMatch(/^firewall: iptables-legacy has [^\n]*\nfirewall: ip6tables-legacy has [^\n]*$/);
  call(firewall, "CHECK", {}, { container: c1 });
  return Promise.resolve();
});

bridgeNetworkTest("rules that an administrator puts into CNI-ADMIN take effect at once, and stay", async (network) => {
  const { host, call } = network;
  using _outside = serveOutside(network);
  const c1 = network.container(2);
  const before = foreignRuleset(host);
  call(firewall, "ADD", {}, { container: c1 });
  call(firewall, "DEL", {}, { container: c1 });
  expect(foreignRuleset(host)).toBe(before);
  call(firewall, "ADD", {}, { container: c1 });
  for (const program of ["iptables", "ip6tables"]) runShellInNetns(host, `${program} -I CNI-ADMIN -i br0 -j DROP`);
  expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
  call(firewall, "CHECK", {}, { container: c1 });
  call(firewall, "DEL", {}, { container: c1 });
  expect(iptablesCniRules(host)).toEqual(Array(2).fill(["-N CNI-ADMIN", "-A CNI-ADMIN -i br0 -j DROP"]).flat());
  call(firewall, "ADD", {}, { container: c1 });
  expect(await reachesOutside(c1, NO_ANSWER_TIMEOUT_MS)).toEqual([false, false]);
});

bridgeNetworkTest(
  "what nft saves on a host without iptables' libraries accepts containers and nobody else",
  async (network) => {
    const { host, call } = network;
    using _outside = serveOutside(network);
    const [c1, c2] = [network.container(2), network.container(3)];
    runShellInNetns(host, IPTABLES_DROPPING);
    call(firewall, "ADD", {}, { container: c1 });
    const saved = runShellInNetns(host, "XTABLES_LIBDIR=/nonexistent nft list ruleset 2>/dev/null");
    expect(saved).not.toContain("mark and");
    runShellInNetns(host, `nft -f - <<'!'\nflush ruleset\n${saved}\n!`);
    expect([await reachesOutside(c1), await reachesOutside(c2, NO_ANSWER_TIMEOUT_MS)]).toEqual([[true, true], [
      false,
      false,
    ]]);
    call(firewall, "CHECK", {}, { container: c1 });
  },
);

bridgeNetworkTest(
  "where the kernel cannot match the mark as iptables does, ADD and STATUS say so and go on",
  async (network) => {
    const { host } = network;
    using _outside = serveOutside(network);
    const c1 = network.container(2);
    const log: string[] = [];
    const context = newHostContext({ host: netnsWithoutMarkMatch(host), log });
    const call = (verb: CniCommand) =>
      void invokePlugin(
        firewall,
        newRequest("firewall", verb, { prevResult: c1.result }, { netns: c1.netns }),
        context,
      );
    runShellInNetns(
      host,
      "iptables -A FORWARD -s 192.0.2.99 -j DROP",
      "nft 'add table inet site; add chain inet site fw { type filter hook forward priority 0; policy drop; }'",
    );
    const before = foreignRuleset(host);
    for (const verb of ["STATUS", "ADD"] as const) {
      call(verb);
      expect(log.splice(0)).toEqual([expect.stringContaining("the kernel has no module nft_compat or xt_mark")]);
    }
    expect(await reachesOutside(c1)).toEqual([true, true]);
    call("CHECK");
    call("DEL");
    expect([foreignRuleset(host), log]).toEqual([before, []]);
  },
);

/** Asks for a match that no kernel has where `mark` is asked for. */
function netnsWithoutMarkMatch(host: Netns): Netns {
  const matchName = Buffer.from([9, 0, NFTA_MATCH_NAME, 0, ...Buffer.from("mark\0")]);
  return watchedNetns(host, {
    onSend(request) {
      const bytes = Buffer.from(request.buffer, request.byteOffset, request.length);
      for (let at = bytes.indexOf(matchName); at >= 0; at = bytes.indexOf(matchName, at + 1)) {
        bytes.write("nope", at + 4);
      }
    },
  });
}
