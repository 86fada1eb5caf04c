/** What the doctor offers is what mends. */
import { beforeAll, expect, test } from "bun:test";
import { renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseIp } from "../../ffi/address.ts";
import { createNetns } from "../../ffi/netns/netns.ts";
import * as nft from "../../ffi/nft/objects.ts";
import { transaction } from "../../ffi/nft/transaction.ts";
import { NFPROTO_INET } from "../../ffi/nft/uapi.ts";
import { type ConnectionOutcome, tryTcpConnection } from "../../ffi/packet/probe.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { testWith } from "../../testing/binary.ts";
import { handleOfDrop, newDoctorHost } from "../../testing/doctor_host.ts";
import { runInNetns, runIp, runShellInNetns } from "../../testing/netns.ts";
import { ruleText } from "../show/rule_text.ts";
import { repairAll } from "./doctor.ts";
import { isBroken } from "./examine.ts";
import { acceptMarkedCommand } from "./nft_command.ts";

beforeAll(() => loadPlugins());

test("restoring is offered for a drop only where it mends it", async () => {
  using doctorHost = newDoctorHost({ hasFirewall: true });
  using _ = await doctorHost.serve();
  const { host, shell } = doctorHost;
  const offers = () =>
    doctorHost.examine().findings.filter(isBroken).map(({ mend, repair }) => repair ? `${mend} (--fix)` : mend);
  const advices = () => doctorHost.examine().findings.filter(isBroken).map(({ advice }) => advice);
  const mendByHand = () => {
    const [mend = ""] = offers();
    shell(mend);
    return mend;
  };
  const RESTORE = "cni run restore web (--fix)";
  // The jump is there, and the drop comes before it.
  shell("iptables -I FORWARD -j DROP");
  expect(offers()).toEqual([`nft delete rule ip filter FORWARD handle ${handleOfDrop(host)}`]);
  expect(advices()).toEqual(["unless somebody means this rule, remove it"]);
  mendByHand();
  expect(doctorHost.broken()).toEqual([]);
  shell("iptables -I CNI-ADMIN -i br9 -j DROP");
  expect(mendByHand()).toStartWith("nft delete rule ip filter CNI-ADMIN handle ");
  expect(doctorHost.broken()).toEqual([]);
  // The jump is missing.
  shell("iptables -F FORWARD", "iptables -A FORWARD -j DROP");
  expect(offers()).toEqual([RESTORE]);
  expect(doctorHost.fix()).toEqual([]);
  shell("iptables -D FORWARD -j DROP");
  const inNft = (...rules: string[]) =>
    shell(`nft 'table ip site { chain f { type filter hook forward priority 0; ${rules.join("; ")}; }; }'`);
  inNft("counter drop");
  expect(offers()).toEqual([RESTORE]);
  expect(doctorHost.fix()).toEqual([]);
  shell("nft delete table ip site");
  // The plugin leaves such a chain alone. One rule accepts both directions, and no other calls from outside.
  inNft("counter drop", "counter");
  expect(advices()).toEqual([
    'this accepts the packets of all containers of networks with "firewall", before all rules of the chain',
  ]);
  expect(mendByHand()).toBe("nft insert rule ip site f meta mark and 0x20000000 == 0x20000000 accept");
  expect(doctorHost.broken()).toEqual([]);
});

test.each(["fwd", "x;$(id>&2)", "it's'a'`b`"])("a rule is removed from a chain with any name: %s", async (chain) => {
  using doctorHost = newDoctorHost({ hasFirewall: true });
  using _ = await doctorHost.serve();
  const { host, shell } = doctorHost;
  for (const words of [["-N", chain], ["-A", chain, "-j", "DROP"], ["-I", "FORWARD", "-j", chain]]) {
    runInNetns(host, "iptables", ...words);
  }
  const [{ mend = "" } = {}] = doctorHost.examine().findings.filter(isBroken);
  expect(mend).toContain(` '{"nftables":[{"delete":{"rule":{"family":"ip","table":"filter","chain":"`);
  shell(mend);
  expect(doctorHost.broken()).toEqual([]);
});

test("nft(8) accepts what containers send, in a chain with any name", () => {
  using host = createNetns();
  const table = { family: NFPROTO_INET, table: "it's; flush ruleset" };
  transaction(host.nft).addTable({ family: table.family, name: table.table })
    .addChain({ ...table, name: "$(id)" }).commit();
  runShellInNetns(host, acceptMarkedCommand({ ...table, chain: "$(id)" }));
  expect(nft.listLazyRules(host.nft, table, "$(id)").map((rule) => ruleText(rule.expressions(), table.family))).toEqual(
    [
      "meta mark & 0x20000000 == 0x20000000 accept",
    ],
  );
});

test("what --fix has tried is not offered again", () => {
  const repair = { kind: "sysctl", name: "net/ipv4/ip_forward", value: "1" } as const;
  const finding = { check: "forwarding", severity: "broken", what: "stays broken", mend: "try again", repair } as const;
  const networks = [{ network: "web", containers: [], attachments: [], findings: [finding] }];
  const examine = () => ({ broken: 1, warnings: 0, networks });
  using host = createNetns();
  const options = { env: {}, pluginDirectories: [], cacheDirectory: tmpdir(), log: () => {} };
  const offered = (isConfirmed: boolean) =>
    host.run(() => repairAll(options, examine, () => isConfirmed)).networks[0]!.findings[0]!.repair;
  expect([offered(true), offered(false)]).toEqual([undefined, repair]);
});

test("a network without a way out needs no gateway", async () => {
  using doctorHost = newDoctorHost({ isInternal: true });
  using _ = await doctorHost.serve();
  const { findings } = doctorHost.examine(doctorHost.c1.path, false);
  expect(findings.map(({ check }) => check)).toContain("neighbour");
  expect(findings.filter(({ check }) => check === "gateway")).toEqual([]);
});

test("a default route of one family is said to lead outside for that one", () => {
  using doctorHost = newDoctorHost();
  doctorHost.shell("ip -6 route del default");
  expect(doctorHost.examine().findings).toContainEqual({
    check: "host routes",
    severity: "ok",
    what: "the host's routes lead to the containers, and outside for IPv4, not for IPv6",
  });
});

test("a default route that another network has taken is left to it", () => {
  using doctorHost = newDoctorHost();
  const { c1 } = doctorHost;
  runIp(
    c1,
    ...[
      "link add eth1 type veth peer name far1",
      "link set eth1 up",
      "link set far1 up",
      "addr add 10.66.0.2/24 dev eth1",
    ],
    "route replace default via 10.66.0.1 dev eth1",
  );
  const findings = doctorHost.examine(c1.path).findings.filter(({ what }) => what.includes("default route"));
  expect(findings).toMatchObject([{
    severity: "warning",
    what: 'the IPv4 default route of "eth0" of ' + c1.path + ' goes by "eth1", as another network wants it',
    advice: "if it must go by this network",
    mend: `nsenter --net=${c1.path} ip route replace 0.0.0.0/0 via 10.9.0.1 dev eth0`,
  }]);
  expect(findings[0]?.repair).toBeUndefined();
});

const ROUTES = [
  { dst: "0.0.0.0/0", priority: 50 },
  { dst: "10.98.0.0/16", mtu: 1300, advmss: 1200 },
  { dst: "10.99.0.0/16", table: 100 },
  { dst: "fd00:98::/64", priority: 7, mtu: 1300 },
];

test("routes return to their tables, with metrics and MTU, by --fix and by hand", async () => {
  using doctorHost = newDoctorHost({ routes: ROUTES });
  using _ = await doctorHost.serve();
  const { c1 } = doctorHost;
  const list = () =>
    runIp(c1, "route show table all").split("\n").filter((line) => /^(default|10\.9[89]|fd00:98)/.test(line)).sort();
  const remove = () => {
    runIp(c1, "route del default", "route del 10.98.0.0/16", "route del 10.99.0.0/16 table 100");
    runIp(c1, "-6 route del fd00:98::/64");
  };
  const before = list();
  expect(before).toHaveLength(ROUTES.length);
  remove();
  expect(list()).toEqual([]);
  const commands = doctorHost.examine(c1.path).findings.filter(isBroken).map(({ mend }) => mend!);
  expect(doctorHost.fix()).toEqual([]);
  expect(list()).toEqual(before);
  remove();
  doctorHost.shell(...commands);
  expect(list()).toEqual(before);
  runIp(c1, "route del default", "route add default via 10.9.0.1 dev eth0");
  expect(doctorHost.examine(c1.path).findings.filter(isBroken)).toMatchObject([{
    what: `wrong metric: the IPv4 default route of "eth0" of ${c1.path} has 0, the ADD set 50`,
  }]);
});

test("a lost address returns only while nobody else has it, or its reservation", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { c1, c2, directory } = doctorHost;
  const reservation = join(directory, "networks/web/10.9.0.2");
  const find = () => {
    const { findings } = doctorHost.examine(c1.path);
    return findings.filter(({ what }) => what.startsWith("address 10.9.0.2/29 is missing"))[0];
  };
  const reattach = expect.stringMatching(/^cni run del web /);
  runIp(c1, "addr del 10.9.0.2/29 dev eth0");
  runIp(c2, "addr add 10.9.0.2/29 dev eth0");
  expect([find()?.mend, find()?.repair]).toEqual([reattach, undefined]);
  runIp(c2, "addr del 10.9.0.2/29 dev eth0");
  writeFileSync(`${reservation}.new`, "c2\r\neth0");
  renameSync(reservation, `${reservation}.old`);
  renameSync(`${reservation}.new`, reservation);
  expect([find()?.mend, find()?.repair]).toEqual([reattach, undefined]);
  renameSync(`${reservation}.old`, reservation);
  expect(find()?.repair).toMatchObject({ kind: "address", address: "10.9.0.2/29" });
  expect(doctorHost.fix()).toEqual([]);
});

test("a route that sbr moved to its table is not put into another one", () => {
  using doctorHost = newDoctorHost({ plugins: [{ type: "sbr" }] });
  const { c1 } = doctorHost;
  const routeFindings = () =>
    doctorHost.examine(c1.path).findings.filter((finding) => isBroken(finding) && finding.check === "container routes");
  expect(routeFindings()).toEqual([]);
  runIp(c1, "route del default table 100");
  const [finding] = routeFindings();
  expect(finding?.what).toStartWith("no IPv4 default route");
  expect(finding?.mend).toStartWith(`cni run del web ${c1.path}`);
  expect(finding?.repair).toBeUndefined();
});

test("a route that is only in a table that no rule selects is missing", () => {
  using doctorHost = newDoctorHost();
  const { c1 } = doctorHost;
  const routeFindings = () =>
    doctorHost.examine().findings.filter((finding) => isBroken(finding) && finding.check === "container routes")
      .map(({ what }) => what);
  runShellInNetns(c1, "ip route del default", "ip route add default via 10.9.0.1 dev eth0 table 100");
  expect(routeFindings()).toEqual([`no IPv4 default route in ${c1.path}: it must go via 10.9.0.1 by "eth0"`]);
  doctorHost.fix();
  expect(routeFindings()).toEqual([]);
});

test("what only an ADD makes is mended by attaching anew", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { c1 } = doctorHost;
  runIp(c1, "link set eth0 address 0a:00:00:00:00:09");
  const [finding] = doctorHost.examine().findings.filter(isBroken);
  expect(finding).toMatchObject({ check: "CHECK", what: expect.stringContaining("0a:00:00:00:00:09") });
  expect(finding?.mend).toStartWith(`cni run del web ${c1.path}`);
  expect(finding?.advice).toContain("its connections end, and its address may change");
  expect(finding?.repair).toBeUndefined();
});

test("a blackhole route to the uplink's gateway is named, and its line removes it", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const connect = () => doctorHost.host.run<ConnectionOutcome>(() => tryTcpConnection(parseIp("192.0.2.2"), 80, 100));
  doctorHost.shell("ip route add blackhole 192.0.2.2/32");
  expect(connect()).toBe("blocked");
  const find = () => doctorHost.examine(doctorHost.c1.path, false).findings.filter(isBroken);
  const [{ what, mend } = {}] = find();
  expect(what).toBe(
    "the host's packets to the uplink gateway 192.0.2.2 are stopped by blackhole route 192.0.2.2/32 of table main",
  );
  doctorHost.shell(mend!);
  expect(find()).toEqual([]);
  doctorHost.shell("ip route add prohibit 192.0.2.2/32");
  expect(connect()).toBe("blocked");
});

test("what is said for one family is said for both", () => {
  using doctorHost = newDoctorHost();
  const { shell } = doctorHost;
  shell("ip route del default; ip -6 route del default");
  expect(doctorHost.examine().findings.find(({ check }) => check === "host routes")?.advice).toBe(
    "give the host a default route: ip route add default via ROUTER; ip -6 route add default via ROUTER",
  );
  shell("nft 'table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; policy drop; }; }'");
  const { mend = "" } = doctorHost.examine().findings.find(({ check }) => check === "forward chains") ?? {};
  const sources = ["10.9.0.2", "fd00:9::2", "10.9.0.3", "fd00:9::3"].map((address) => `--add-source=${address}`).join(
    " ",
  );
  expect(mend).toBe(`firewall-cmd --zone=trusted ${sources} && firewall-cmd --zone=trusted ${sources} --permanent`);
});

test("a link of the host that is down and has an address", () => {
  using doctorHost = newDoctorHost();
  doctorHost.shell("ip link set up0 down");
  expect(doctorHost.examine().findings).toContainEqual({
    check: "links",
    severity: "warning",
    what: '"up0" of the host is down, although it has 192.0.2.1/24',
    mend: "ip link set up0 up",
  });
});

test("a container whose loopback interface is down", () => {
  using doctorHost = newDoctorHost();
  runIp(doctorHost.c1, "link set lo down");
  const [finding] = doctorHost.examine().findings.filter(isBroken);
  expect(finding?.what).toEndWith('leads to; "lo" is down there, so 127.0.0.1 fails');
  expect(finding?.mend).toEndWith(" link set lo up");
  expect(finding?.advice).toStartWith('set "lo" up, then have the service listen on [::]:80');
});

testWith(["iptables-legacy"], "what is offered for rules that cannot be read is a command", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  doctorHost.shell("iptables-legacy -P FORWARD DROP");
  const [finding, ...others] = doctorHost.examine().findings.filter(({ severity }) => severity !== "ok");
  expect(others).toEqual([]);
  expect(finding!.advice).toBe("if iptables-legacy -S FORWARD shows that it drops");
  doctorHost.shell(finding!.mend!);
  expect(runInNetns(doctorHost.host, "iptables-legacy", "-S", "FORWARD")).toContain(
    "-A FORWARD -s 10.9.0.0/29 -j ACCEPT",
  );
});
