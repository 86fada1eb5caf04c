/** Rules that others remove, put back on a host of the test's own. Other programs are real ones: nft, iptables. */
import { expect } from "bun:test";
import { mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../ffi/netns/netns.ts";
import { transaction } from "../ffi/nft/transaction.ts";
import { inetTable } from "../plugins/lib/ruleset/inet_table.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { forbidDescriptors } from "../testing/descriptor_limit.ts";
import { testWith } from "../testing/binary.ts";
import { nameServerPaths, startNameServer } from "../testing/dnsname.ts";
import { callFirewalld, FIREWALLD_PROGRAMS, startBus, startFirewalldStandIn } from "../testing/firewalld.ts";
import { byProgram, callAsEngine, healTest, newHealedHost, runUntil, sortedListing } from "../testing/healed_host.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { lockContainer } from "../runtime/lock.ts";
import type { Healer } from "./healer.ts";

await loadPlugins();

const REMOVALS: readonly [program: string, command: string][] = [
  ["nft", "nft flush ruleset"],
  ["nft", "nft delete table inet cni"],
  ["nft", "nft flush chain inet cni hostports"],
  ["nft", "nft flush map inet cni hostports4"],
  ["iptables", "iptables -F; iptables -X"],
  ["iptables", "iptables -D FORWARD 1"],
  ["iptables-restor", "printf '*filter\\n:FORWARD DROP [0:0]\\nCOMMIT\\n' | iptables-restore"],
];

for (const [program, command] of REMOVALS) {
  healTest(`what "${command}" removed comes back`, ({ check, attach, newHealer, round, nft, shell, log, counts }) => {
    attach("c1");
    attach("c2");
    const before = sortedListing(nft("-s", "list", "table", "inet", "cni"));
    const healer = newHealer();
    round(healer);
    expect(log).toEqual([]);
    shell(command);
    expect([check("c1"), check("c2")]).not.toEqual(["", ""]);
    round(healer);
    expect([check("c1"), check("c2")]).toEqual(["", ""]);
    expect(sortedListing(nft("-s", "list", "table", "inet", "cni"))).toEqual(before);
    expect(log).toEqual([byProgram(program)]);
    expect(counts).toEqual(["restores"]);
  });
}

healTest("questions about names come in again when iptables has removed the rules for them", (healed) => {
  const { attach, directory, host, network, newHealer, round, shell, nft, log } = healed;
  const { keys, ...paths } = nameServerPaths(directory);
  using _server = startNameServer(host, paths);
  const document = JSON.parse(network("names").text);
  document.plugins.push({ type: "dnsname", ...keys });
  shell("iptables -P INPUT DROP");
  attach("c1", parseNetworkConfigList(JSON.stringify(document)));
  const before = nft("-s", "list", "table", "ip", "filter");
  expect(before).toContain("jump CNI-INPUT");
  const healer = newHealer();
  round(healer);
  expect(log).toEqual([]);
  shell("iptables -D INPUT 1");
  round(healer);
  expect(nft("-s", "list", "table", "ip", "filter")).toBe(before);
  expect(log).toEqual([byProgram("iptables")]);
});

healTest("ADDs and DELs of this program are no reason to look, nor what others remove of theirs", (healed) => {
  const { attach, runtime, host, newHealer, round, nft, log, check } = healed;
  for (const id of ["c1", "c2", "c3"]) attach(id);
  const healer = newHealer();
  round(healer);
  // Any look would put this back.
  transaction(host.nft).deleteTable(inetTable).commit();
  round(healer);
  attach("c4");
  host.run(() => runtime().del("web", { containerId: "c4", ifname: "eth0" }));
  for (const type of ["firewall", "portmap", "bridge"]) callAsEngine(healed, type, "DEL", "c1");
  callAsEngine(healed, "portmap", "ADD", "c2");
  callAsEngine(healed, "portmap", "DEL", "c2");
  round(healer);
  nft("add table ip t; add chain ip t c; add rule ip t c drop; add set ip t s { type mark; elements = { 1 }; }");
  nft("delete element ip t s { 1 }; flush chain ip t c; delete table ip t");
  nft("add rule inet cni after_filter counter; add element inet cni forward4 { 10.99.0.1 }");
  round(healer);
  expect([check("c3"), log]).toEqual([expect.stringContaining("is missing"), []]);
  nft("delete", "table", "inet", "cni");
  round(healer);
  expect([check("c3"), log]).toEqual(["", [byProgram("nft")]]);
});

healTest("what an engine attached, and other caches, are looked after as well", (healed) => {
  const { attach, network, newHealer, round, nft, log, directory, check } = healed;
  attach("c1");
  attach("c2", network("other"), "second");
  // libcni's file has neither the boot nor the namespace's cookie.
  const path = join(directory, "cache/results/web-c1-eth0");
  const { bootId: _, netnsCookie: __, ...entry } = JSON.parse(readFileSync(path, "utf8"));
  writeFileSync(path, JSON.stringify(entry));
  const healer = newHealer({}, ["cache", "second", "absent"]);
  round(healer);
  nft("flush", "ruleset");
  round(healer);
  expect(check("c1")).toBe("");
  expect(nft("list", "ruleset")).toContain("other c2 eth0");
  expect(log).toEqual([
    expect.stringMatching(/^Restored rules of 2 attachments after changes by "nft" .* and \d+ more$/),
  ]);
});

healTest("a program that keeps removing is named, and pauses grow", (healed) => {
  const { attach, newHealer, round, nft, log, counts, check } = healed;
  attach("c1");
  const limits = { fightWindowMs: 1e6, freeRounds: 2, firstPauseMs: 1000, longestPauseMs: 3000 };
  const healer = newHealer(limits);
  round(healer);
  for (let i = 0; i < 2; i++) {
    nft("flush", "ruleset");
    round(healer);
    expect(check("c1")).toBe("");
  }
  expect(log).toEqual([
    byProgram("nft"),
    byProgram("nft"),
    expect.stringMatching(
      /^Rules were removed 2 times in a row, the last time after changes by "nft" \(process \d+\): the next time they come back after 1 s$/,
    ),
  ]);
  nft("flush", "ruleset");
  round(healer);
  expect(check("c1")).not.toBe("");
  expect(healer.timeoutMs()).toBeGreaterThan(0);
  expect(healer.timeoutMs()).toBeLessThanOrEqual(1000);
  runUntil(healed, healer, () => counts.length > 3);
  expect(check("c1")).toBe("");
  expect(counts).toEqual(["restores", "restores", "backoffs", "restores", "backoffs"]);
  expect(log.at(-1)).toEndWith("the next time they come back after 2 s");
});

healTest(
  "a storm of changes leads to one look, and is not waited for for ever",
  ({ attach, newHealer, round, nft, log, check }) => {
    attach("c1");
    const patient = newHealer({ quietMs: 1e6, longestStormMs: 1e6 });
    const hasty = newHealer({ quietMs: 1e6, longestStormMs: 0 });
    for (const healer of [patient, hasty]) round(healer);
    for (let i = 0; i < 3; i++) nft("flush", "ruleset");
    round(patient);
    expect([check("c1") === "", log, patient.timeoutMs() > 0]).toEqual([false, [], true]);
    round(hasty);
    expect([check("c1"), log]).toEqual(["", [byProgram("nft")]]);
  },
);

healTest("more changes than the kernel can report lead to a look at everything", (healed) => {
  const { attach, newHealer, round, nft, log, check } = healed;
  attach("c1");
  const healer = newHealer({ bufferBytes: 4096 });
  round(healer);
  const rules = Array.from({ length: 1000 }, (_, i) => `add rule ip t c ip saddr 10.0.${i >> 8}.${i & 255} drop`);
  healed.shell(`nft -f - <<'END'\nadd table ip t\nadd chain ip t c\n${rules.join("\n")}\nEND`);
  nft("flush", "ruleset");
  round(healer);
  expect(check("c1")).toBe("");
  expect(log).toEqual([
    expect.stringMatching(/^Restored rules of 1 attachment after .*more changes than the kernel could report/),
  ]);
});

healTest("a program in place of a built-in plugin is named once, since it restores nothing", (healed) => {
  const { attach, newHealer, round, nft, log, directory } = healed;
  attach("c1");
  const bin = join(directory, "bin");
  mkdirSync(bin);
  writeFileSync(join(bin, "portmap"), "#!/bin/sh\n", { mode: 0o755 });
  const healer = newHealer({}, ["cache"], false, [bin]);
  for (let i = 0; i < 2; i++) {
    nft("flush", "ruleset");
    round(healer);
  }
  expect(nft("list", "ruleset")).not.toContain("8080");
  expect(log.filter((line) => !line.startsWith("Restored rules of 1 attachment"))).toEqual([
    `Cannot restore rules of plugin "portmap" of network "web": "${bin}/portmap" is called for it, and has no such command`,
  ]);
});

healTest("an attachment that cannot be restored is named once while that lasts", (healed) => {
  const { attach, newHealer, round, nft, log, directory } = healed;
  for (const id of ["c1", "c2"]) attach(id);
  const path = join(directory, "cache/results/web-c2-eth0");
  writeFileSync(path, readFileSync(path, "utf8").replaceAll('"hostPort":8081', '"hostPort":8080'));
  writeFileSync(join(directory, "cache/results/web-broken-eth0"), "{");
  const healer = newHealer();
  for (let i = 0; i < 2; i++) {
    nft("flush", "ruleset");
    round(healer);
  }
  expect(log.filter((line) => !line.startsWith("Restored"))).toEqual([
    expect.stringMatching(/^Cannot use cached attachment ".*web-broken-eth0": /),
    expect.stringMatching(
      /^Cannot restore "eth0" of container "c2" on network "web": .*port 8080\/tcp: container "c1"/,
    ),
  ]);
});

healTest("attachments of another network namespace are left alone, although it has the same cache", (healed) => {
  using resources = new DisposableStack();
  const other = newHealedHost(resources.use(createNetns()), resources);
  const { attach, round } = healed;
  const list = healed.network("shared");
  attach("c1", list);
  other.shell("ip link add br-shared type bridge");
  const healer = other.newHealer({}, [join(healed.directory, "cache")]);
  other.round(healer);
  expect([other.nft("list", "ruleset"), other.log]).toEqual(["", []]);
  const own = healed.newHealer();
  round(own);
  healed.nft("flush", "ruleset");
  round(own);
  expect(healed.nft("list", "ruleset")).toContain("shared c1 eth0");
});

healTest("a cache that cannot be read is named once while that lasts", (healed) => {
  const { attach, newHealer, round, nft, log, directory } = healed;
  attach("c1");
  const path = join(directory, "file");
  writeFileSync(path, "");
  const healer = newHealer({}, ["file", "cache"]);
  round(healer);
  const flush = () => {
    nft("flush chain inet cni ingress_policies");
    round(healer);
  };
  for (let i = 0; i < 2; i++) flush();
  const failure = expect.stringMatching(/^Cannot look after attachments in ".*\/file": .*ENOTDIR/);
  const restored = expect.stringMatching(
    /^Restored rules that all attachments share after changes by "nft" .*: chain "ingress_policies" of table "inet cni"$/,
  );
  expect(log).toEqual([failure, restored, restored]);
  rmSync(path);
  flush();
  writeFileSync(path, "");
  flush();
  const again = expect.stringMatching(/^Looking after attachments in ".*\/file" again$/);
  expect(log.slice(3)).toEqual([again, restored, failure, restored]);
});

healTest("a container that another command has locked is restored when that has ended", (healed) => {
  const { attach, newHealer, nft, log, check, directory } = healed;
  attach("c1");
  const healer = newHealer({ lockWaitMs: 0, laterLooksMs: [0] });
  healed.round(healer);
  nft("flush", "ruleset");
  {
    using _ = lockContainer(join(directory, "cache"), "c1");
    healed.round(healer);
    expect(nft("list", "ruleset")).not.toContain("web c1 eth0");
  }
  healed.round(healer);
  expect(check("c1")).toBe("");
  expect(log).toEqual([expect.stringMatching(/^Restored rules of 1 attachment after/)]);
});

/** Five tries, as the process of the healer does them. */
function waitForTries(healer: Healer): void {
  const start = performance.now();
  for (let i = 0; i < 5; i++) {
    Bun.sleepSync(healer.timeoutMs());
    healer.round();
  }
  // The pauses after the first of them: 20, 40, 40 and 40 ms.
  expect(performance.now() - start).toBeGreaterThan(130);
}

const RETRIES = { lockWaitMs: 0, laterLooksMs: [5], firstRetryMs: 20, longestRetryMs: 40 };

healTest("a container that stays locked is tried again until it is restored, and named once", (healed) => {
  const { attach, newHealer, nft, log, check, directory, round, host } = healed;
  attach("c1");
  const healer = newHealer(RETRIES);
  round(healer);
  nft("flush", "ruleset");
  {
    using _ = lockContainer(join(directory, "cache"), "c1");
    round(healer);
    expect(log).toEqual([]);
    host.run<void>(() => waitForTries(healer));
    expect(log).toEqual([
      expect.stringMatching(/^Cannot restore "eth0" of container "c1" on network "web": Cannot lock .* it is held by/),
    ]);
  }
  runUntil(healed, healer, () => log.length > 1);
  expect(check("c1")).toBe("");
  expect(log.slice(1)).toEqual([expect.stringMatching(/^Restored rules of 1 attachment after an earlier failure: /)]);
});

healTest("what could not be restored and is detached is no failure any more", (healed) => {
  const { attach, newHealer, nft, log, directory, round, host, runtime } = healed;
  for (const id of ["c1", "c2"]) attach(id);
  const healer = newHealer({ ...RETRIES, laterLooksMs: [] });
  round(healer);
  nft("flush", "ruleset");
  {
    using _ = lockContainer(join(directory, "cache"), "c1");
    round(healer);
  }
  host.run(() => runtime().del("web", { containerId: "c1", ifname: "eth0" }));
  runUntil(healed, healer, () => log.length > 2);
  expect(log).toEqual([
    expect.stringContaining("Restored rules of 1 attachment"),
    expect.stringContaining("Cannot restore"),
    "Nothing is missing any more of what could not be restored",
  ]);
});

healTest("without descriptors, everything is tried again until there are some", (healed) => {
  const { attach, newHealer, nft, log, check, round, host } = healed;
  attach("c1");
  const healer = newHealer(RETRIES);
  round(healer);
  nft("flush", "ruleset");
  host.run<void>(() => {
    using _ = forbidDescriptors();
    healer.round();
    waitForTries(healer);
  });
  expect(log).toEqual([expect.stringMatching(/^Cannot look after attachments in ".*cache": .*EMFILE/)]);
  runUntil(healed, healer, () => log.length > 2);
  expect(check("c1")).toBe("");
  expect(log.slice(1)).toEqual([
    expect.stringMatching(/^Looking after attachments in ".*cache" again$/),
    expect.stringMatching(/^Restored rules of 1 attachment after an earlier failure: /),
  ]);
});

testWith(FIREWALLD_PROGRAMS, "a firewalld that reloads is told of containers again", async () => {
  using resources = new DisposableStack();
  const host = resources.use(createNetns());
  const bus = resources.use(await startBus());
  resources.use(await startFirewalldStandIn(bus));
  const healed = newHealedHost(host, resources, { DBUS_SYSTEM_BUS_ADDRESS: bus.address });
  const { attach, newHealer, round, log } = healed;
  attach("c1");
  const healer = newHealer();
  round(healer);
  const isTold = () => callFirewalld(bus, "zone.querySource", "trusted", "10.7.0.2/32");
  expect([isTold(), log]).toEqual(["boolean true", []]);
  callFirewalld(bus, "reload");
  expect(isTold()).toBe("boolean false");
  runUntil(healed, healer, () => log.length > 0);
  expect(isTold()).toBe("boolean true");
  expect(log).toEqual([
    'Restored rules of 1 attachment after a reload of firewalld: 10.7.0.2 in zone "trusted" of firewalld',
  ]);
});
