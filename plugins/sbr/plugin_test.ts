import { expect } from "bun:test";
import { existsSync } from "node:fs";
import { netnsLockPath } from "../../ffi/netns/lock.ts";
import { holdNetnsItself } from "../../testing/netns_lock.ts";
import type { Netns } from "../../ffi/netns/netns.ts";
import { runInNetns, runIp } from "../../testing/netns.ts";
import { type Sandbox, type SandboxCallOptions, sandboxTest } from "../../testing/sandbox.ts";
import sbr from "./plugin.ts";
import { addInterfaces, ipRoutes, ipRules } from "../../testing/sbr.ts";
import type { Result } from "../../spec/result.ts";

type Verb = "ADD" | "DEL" | "CHECK" | "GC" | "STATUS";
type Json = Readonly<Record<string, unknown>>;
interface Bench extends Sandbox {
  /** Calls the plugin on `net1`, whose prevResult has the address 192.0.2.9/24 with a gateway, unless told. */
  run(verb: Verb, config?: Json, options?: SandboxCallOptions): Result;
  /** Rules and routes: all that the plugin changes. */
  state(): string[];
}

const FOUR = { address: "192.0.2.9/24", gateway: "192.0.2.1", interface: 1 };
const SIX = { address: "fd00:1::9/64", gateway: "fd00:1::1", interface: 1 };
const result = (netns: Netns, ...ips: object[]) => ({
  cniVersion: "1.1.0",
  interfaces: [{ name: "net0", sandbox: netns.path }, { name: "net1", sandbox: netns.path }],
  ips: [{ address: "10.0.0.2/24", interface: 0 }, ...ips],
});

function sbrTest(name: string, body: (bench: Bench) => void | Promise<void>): void {
  sandboxTest(`sbr: ${name}`, [], async (sandbox) => {
    const { container, call } = sandbox;
    addInterfaces(container);
    runIp(container, "addr add 192.0.2.9/24 dev net1");
    await body({
      ...sandbox,
      run: (verb, config = {}, options = {}) =>
        call(sbr, verb, { prevResult: result(container, FOUR), ...config }, { ifname: "net1", ...options }),
      state: () => [...ipRules(container), ...ipRoutes(container)],
    });
  });
}

sbrTest(
  "ADD sends what is from the address by the interface, CHECK accepts it, DEL takes the rule away",
  ({ run, container }) => {
    const before = ipRoutes(container);
    const others = before.filter((line) => line.includes("net0"));
    const answer = run("ADD");
    expect(answer.ips).toHaveLength(2);
    expect(ipRules(container)).toEqual(["32765: from 192.0.2.9 lookup 100"]);
    expect(ipRoutes(container, "100")).toEqual([
      "192.0.2.0/24 dev net1 proto kernel scope link src 192.0.2.9",
      "default via 192.0.2.1 dev net1",
      "fe80::/64 dev net1 proto kernel metric 256 pref medium",
    ]);
    expect(ipRoutes(container, "main").filter((line) => line.includes("net1"))).toEqual([]);
    expect(ipRoutes(container).filter((line) => line.includes("net0"))).toEqual(others);
    const way = (...from: string[]) => runInNetns(container, "ip", "route", "get", "8.8.8.8", ...from).split("\n")[0]!;
    expect(way("from", "192.0.2.9")).toContain("via 192.0.2.1 dev net1");
    expect(way()).toContain("via 10.0.0.1 dev net0");
    run("CHECK");
    run("DEL");
    expect([ipRules(container), ipRoutes(container)]).toEqual([[], before]);
    run("DEL");
  },
);

sbrTest("DEL spares what another container has that came to the path of the namespace", ({ run, state }) => {
  run("ADD", {}, { containerId: "c2" });
  const before = state();
  const sandbox = "/run/netns/x";
  const gone = { cniVersion: "1.1.0", interfaces: [{ name: "net1", mac: "0a:00:00:00:00:77", sandbox }] };
  run("DEL", { prevResult: { ...gone, ips: [{ address: "192.0.2.7/24", interface: 0 }] } });
  expect(state()).toEqual(before);
  run("DEL", {}, { containerId: "c2" });
  expect(state()).not.toEqual(before);
});

sbrTest(
  "every address has a table, with the routes by its own subnet and those that are nobody's",
  ({ run, container }) => {
    runIp(
      container,
      "addr add fd00:1::9/64 dev net1 nodad",
      "route add 198.51.100.0/24 via 192.0.2.7 metric 5 mtu 1400",
      "-6 route add 2001:db8::/32 via fd00:1::7",
      "route add 203.0.113.0/24 dev net1 scope link",
      "route add 203.0.114.0/24 via 10.99.0.1 dev net1 onlink",
    );
    const config = { prevResult: result(container, FOUR, SIX) };
    run("ADD", config);
    expect(ipRules(container)).toEqual(["32765: from 192.0.2.9 lookup 100", "32765: from fd00:1::9 lookup 101"]);
    const link = ["203.0.113.0/24 dev net1 scope link"];
    const six = ["fd00:1::/64", "fe80::/64"].map((each) => `${each} dev net1 proto kernel metric 256 pref medium`);
    expect(ipRoutes(container, "100")).toEqual([
      "192.0.2.0/24 dev net1 proto kernel scope link src 192.0.2.9",
      "198.51.100.0/24 via 192.0.2.7 dev net1 metric 5 mtu 1400",
      ...link,
      "203.0.114.0/24 via 10.99.0.1 dev net1 onlink",
      "default via 192.0.2.1 dev net1",
      ...six,
    ]);
    expect(ipRoutes(container, "101")).toEqual([
      "2001:db8::/32 via fd00:1::7 dev net1 metric 1024 pref medium",
      ...link,
      "default via fd00:1::1 dev net1 metric 1024 pref medium",
      ...six,
    ]);
    run("CHECK", config);
    run("DEL", config);
    expect([ipRules(container), ipRoutes(container, "100"), ipRoutes(container, "101")]).toEqual([[], [], []]);
  },
);

sbrTest(
  "a default route that is there already moves as it is, and the gateway of the address is not added to it",
  ({ run, container }) => {
    runIp(container, "route append default via 192.0.2.77 src 192.0.2.9");
    run("ADD");
    expect(ipRoutes(container, "100")[1]).toBe("default via 192.0.2.77 dev net1 src 192.0.2.9");
    expect(ipRoutes(container, "100").filter((line) => line.startsWith("default"))).toHaveLength(1);
    expect(ipRoutes(container, "main")).toContain("default via 10.0.0.1 dev net0");
    run("CHECK");
  },
);

sbrTest("a gateway of the configuration is the only one of its family", ({ run, container }) => {
  runIp(container, "route append default via 192.0.2.77", "addr add fd00:1::9/64 dev net1 nodad");
  const config = {
    gateways: ["192.0.2.5", "fd00:1::5"],
    prevResult: result(container, FOUR, { ...SIX, gateway: undefined }),
  };
  run("ADD", config);
  expect(ipRoutes(container).filter((line) => line.startsWith("default") && line.includes("net1"))).toEqual([
    "default via 192.0.2.5 dev net1 table 100",
    "default via fd00:1::5 dev net1 table 101 metric 1024 pref medium",
  ]);
  run("CHECK", config);
  expect(() => run("CHECK", { ...config, gateways: ["192.0.2.6"] })).toThrow(
    'table 100 lacks the default route via 192.0.2.6 dev "net1"',
  );
  for (const gateways of [["192.0.2.5", "192.0.2.6"], ["fd00::1", "fd00::2"], ["x"], "192.0.2.5"]) {
    expect(() => run("ADD", { gateways })).toThrow("gateways");
  }
});

sbrTest(
  "with source hints the way to the subnet stays in the main table and names the source",
  ({ run, container }) => {
    runIp(container, "addr add fd00:1::9/64 dev net1 nodad", "route add 198.51.100.0/24 via 192.0.2.7");
    const config = { addSourceHints: true, prevResult: result(container, FOUR, SIX) };
    run("ADD", config);
    expect(ipRoutes(container, "main").filter((line) => line.includes("net1"))).toEqual([
      "192.0.2.0/24 dev net1 scope link src 192.0.2.9",
      "fd00:1::/64 dev net1 src fd00:1::9 metric 1024 pref medium",
    ]);
    expect(ipRoutes(container, "100")).toContain("198.51.100.0/24 via 192.0.2.7 dev net1");
    run("CHECK", config);
    runIp(container, "route del 192.0.2.0/24");
    expect(() => run("CHECK", config)).toThrow("the main table lacks the route to 192.0.2.0/24");
  },
);

sbrTest(
  "with a table of somebody else's only rules are added, each once, and only those are removed",
  ({ run, container }) => {
    runIp(container, "route add default via 192.0.2.1 table 5000", "rule add from 192.0.2.9 lookup 77");
    const before = ipRoutes(container);
    const config = { table: 5000, gateways: ["192.0.2.5"] };
    run("ADD", config);
    run("ADD", config);
    expect([ipRules(container), ipRoutes(container)]).toEqual([
      ["32764: from 192.0.2.9 lookup 5000", "32765: from 192.0.2.9 lookup 77"],
      before,
    ]);
    run("CHECK", config);
    expect(() => run("CHECK", { table: 5001 })).toThrow(
      "a rule sends packets from 192.0.2.9 to table 5000, expected table 5001",
    );
    run("DEL", config);
    expect([ipRules(container), ipRoutes(container)]).toEqual([["32765: from 192.0.2.9 lookup 77"], before]);
  },
);

sbrTest(
  "a table in use is not taken: neither one that a rule names, nor one that holds a route of any kind",
  ({ run, container }) => {
    runIp(
      container,
      "rule add from 10.9.9.9 lookup 100",
      "-6 rule add from fd09::9 lookup 101",
      "route add 10.7.0.0/16 via 10.0.0.9 table 102",
      "route add blackhole 10.7.0.0/16 table 103",
      "-6 route add fd07::/64 via fd00:0::9 table 104",
    );
    run("ADD");
    expect(ipRules(container)).toContain("32764: from 192.0.2.9 lookup 105");
  },
);

sbrTest("addresses of which nobody says whose they are belong to the interface", ({ run, container }) => {
  run("ADD", { cniVersion: "0.2.0", prevResult: { cniVersion: "0.2.0", ip4: { ip: "192.0.2.9/24" } } });
  expect(ipRules(container)).toEqual(["32765: from 192.0.2.9 lookup 100"]);
  run("ADD", { prevResult: { ...result(container), ips: [{ address: "192.0.2.10/24", interface: 7 }] } });
  expect(ipRules(container)).toContain("32764: from 192.0.2.10 lookup 101");
  expect(() => run("ADD", { prevResult: result(container) })).toThrow('prevResult has no address on "net1"');
  expect(() => run("ADD", { prevResult: undefined })).toThrow("prevResult is missing");
});

sbrTest("an ADD that fails leaves rules and routes as they were", ({ run, state, container }) => {
  runIp(
    container,
    "addr add 198.51.100.9/24 dev net1",
    "route add 203.0.113.0/24 via 192.0.2.7 mtu 1400",
    "route append default via 192.0.2.77",
  );
  const before = state();
  const second = { address: "198.51.100.9/24", gateway: "172.16.0.1", interface: 1 };
  const prevResult = result(container, FOUR, second);
  for (const addSourceHints of [false, true]) {
    // Everything of the first address is done by then; of the second there is no way to its gateway.
    runIp(container, "route del default via 192.0.2.77");
    expect(() => run("ADD", { addSourceHints, prevResult })).toThrow("Cannot add route to 0.0.0.0/0 via 172.16.0.1");
    runIp(container, "route append default via 192.0.2.77");
    expect(state()).toEqual(before);
  }
});

sbrTest("CHECK names what is missing, and what is back in the main table", ({ run, container }) => {
  expect(() => run("CHECK")).toThrow("no rule sends packets from 192.0.2.9 to a table of its own");
  run("ADD");
  const drift: [string, string, string][] = [
    ["rule del from 192.0.2.9 lookup 100", "rule add from 192.0.2.9 lookup 100", "no rule"],
    [
      "rule add from 192.0.2.9 lookup 101",
      "rule del from 192.0.2.9 lookup 101",
      'table 101 lacks a default route by "net1"',
    ],
    ["route del default table 100", "route add default via 192.0.2.1 table 100", "table 100 lacks a default route"],
    [
      "route del 192.0.2.0/24 table 100",
      "route add 192.0.2.0/24 dev net1 table 100",
      "table 100 lacks the route to 192.0.2.0/24",
    ],
    [
      "route add 192.0.2.0/24 dev net1",
      "route del 192.0.2.0/24 dev net1",
      'the route to 192.0.2.0/24 dev "net1" is back in the main table',
    ],
  ];
  for (const [change, back, message] of drift) {
    // Without the way to it, no route by a gateway is accepted.
    runIp(container, change);
    expect(() => run("CHECK"), change).toThrow(message);
    if (change.startsWith("route del default")) {
      runIp(container, "route add default via 192.0.2.1 dev net1 onlink table 100");
    } else runIp(container, back);
    run("CHECK");
  }
  runIp(container, "link del net1");
  expect(() => run("CHECK")).toThrow('Cannot find link "net1"');
});

sbrTest(
  "DEL removes rules of addresses that are gone, also with the interface, and those of no one else",
  ({ run, container }) => {
    runIp(container, "rule add from 10.9.9.9 lookup 77", "rule add from 192.0.2.9 iif net0 lookup 78");
    const others = ipRules(container);
    run("ADD");
    runIp(container, "addr del 192.0.2.9/24 dev net1");
    run("DEL");
    expect(ipRules(container)).toEqual(others);
    runIp(container, "addr add 192.0.2.9/24 dev net1");
    run("ADD");
    // Without a result the interface's own addresses tell.
    run("DEL", { prevResult: undefined });
    expect(ipRules(container)).toEqual(others);
    run("ADD");
    runIp(container, "link del net1");
    run("DEL");
    expect(ipRules(container)).toEqual(others);
  },
);

sbrTest("DEL leaves the rule of another interface that has the same address", ({ run, container }) => {
  runIp(container, "addr add 192.0.2.9/24 dev net0");
  run("ADD");
  run("ADD", { prevResult: result(container, { ...FOUR, interface: 0 }) }, { ifname: "net0" });
  const net0 = ["32763: from 192.0.2.9 lookup 102", "32764: from 10.0.0.2 lookup 101"];
  expect(ipRules(container)).toEqual([...net0, "32765: from 192.0.2.9 lookup 100"]);
  run("DEL");
  expect(ipRules(container)).toEqual(net0);
  expect(ipRoutes(container, "101")).toContain("default via 10.0.0.1 dev net0");
});

sbrTest(
  "DEL succeeds without a namespace and makes no file in its place; GC and STATUS have nothing to do",
  ({ run, directory }) => {
    for (const netns of [null, `${directory}/gone`]) run("DEL", {}, { netns });
    run("DEL", { prevResult: undefined, gateways: 5, table: "x" }, { netns: null });
    expect(existsSync(`${directory}/gone`)).toBe(false);
    run("GC", { "cni.dev/valid-attachments": [] });
    run("STATUS");
  },
);

sbrTest(
  "one at a time chooses tables in a namespace: who comes second takes the next",
  ({ run, container, directory }) => {
    const ready = `${directory}/ready`;
    // It takes the table once we wait; did we not wait, the table would be ours already, and nobody would let it go on.
    const script = `: >"$1"
      until grep -q -- "-> FLOCK .*:$(stat -c %i "$0") " /proc/locks; do sleep 0.01; done
      ip rule add from 10.9.9.9 lookup 100`;
    // flock(1) stays: in a nested process namespace, the kernel shows no lock whose owner has ended.
    const locked = 'mkdir -p "${0%/*}"; exec flock "$0" sh -ec "$2" "$0" "$1"';
    const path = netnsLockPath(container.identity, "routing-tables");
    const command = ["sh", "-ec", locked, path, ready, script];
    const holder = container.run(() => Bun.spawn(command, { stdio: [null, null, null] }));
    while (!existsSync(ready)) Bun.sleepSync(1);
    run("ADD");
    expect(ipRules(container)).toEqual(["32764: from 192.0.2.9 lookup 101", "32765: from 10.9.9.9 lookup 100"]);
    holder.kill();
  },
);

sbrTest(
  "a process in the container that holds the namespace's own lock holds up neither ADD nor DEL",
  async (bench) => {
    const { run, container, log, state } = bench;
    const before = state();
    const holder = await holdNetnsItself(container);
    run("ADD");
    run("DEL");
    expect([state(), log]).toEqual([before, []]);
    await holder.end();
  },
);

sbrTest("a table of the system's is one like any other, if the configuration names it", ({ run, container, state }) => {
  const before = state();
  for (const [table, name] of [[254, "main"], [255, "local"], [253, "default"]] as const) {
    run("ADD", { table });
    expect(ipRules(container)).toEqual([`32765: from 192.0.2.9 lookup ${name}`]);
    run("CHECK", { table });
    run("DEL", { table });
    expect(state()).toEqual(before);
  }
});
