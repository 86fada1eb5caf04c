/** Rules that others remove, put back on a host of the test's own. Other programs are real ones: nft, iptables. */
import { expect } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../../ffi/netns.ts";
import { transaction } from "../../ffi/nft/transaction.ts";
import { inetTable } from "../../plugins/lib/ruleset/inet_table.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { callFirewalld, FIREWALLD_PROGRAMS, startBus, startFirewalldStandIn } from "../../testing/firewalld.ts";
import { runPlugin, testWith } from "../../testing/binary.ts";
import { CniError } from "../../spec/error.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import { pollAny } from "../../ffi/sys/poll.ts";
import { ipShow, runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { lockContainer } from "../lock.ts";
import { Runtime } from "../runtime.ts";
import { Healer, type HealingCounter } from "./healer.ts";
import { HEALING_LIMITS, type HealingLimits } from "./limits.ts";

await loadPlugins();

/** Without any wait, so that each round is a look if there is a reason. */
const AT_ONCE: HealingLimits = { ...HEALING_LIMITS, quietMs: 0, laterLooksMs: [], fightWindowMs: 0 };

interface HealedHost {
  readonly host: Netns;
  readonly directory: string;
  readonly log: string[];
  readonly counts: HealingCounter[];
  runtime(cache?: string): Runtime;
  network(name?: string): NetworkConfigList;
  attach(containerId: string, list?: NetworkConfigList, cache?: string): Netns;
  newHealer(
    limits?: Partial<HealingLimits>,
    caches?: readonly string[],
    healLinks?: boolean,
    pluginDirectories?: readonly string[],
  ): Healer;
  round(healer: Healer): void;
  /** What CHECK finds; empty if nothing is missing. */
  check(containerId: string): string;
  nft(...words: string[]): string;
  shell(...lines: string[]): void;
}

function newHealedHost(
  host: Netns,
  resources: DisposableStack,
  env: Record<string, string> = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus" },
): HealedHost {
  const directory = mkdtempSync(join(tmpdir(), "cni-heal-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const [log, counts]: [string[], HealingCounter[]] = [[], []];
  const cachePath = (name: string) => join(directory, name);
  const runtime = (cache = "cache") =>
    new Runtime({ env, cacheDirectory: cachePath(cache), pluginDirectories: [], log: () => {} });
  let networks = 0;
  const network = (name = "web") => {
    const n = networks++;
    const ranges = [[{ subnet: `10.7.${n}.0/24` }]];
    const ipam = { type: "host-local", dataDir: join(directory, "ipam"), ranges };
    const plugins = [
      { type: "bridge", bridge: `br-${name}`, isGateway: true, ipMasq: true, ipam },
      { type: "portmap", capabilities: { portMappings: true } },
      { type: "firewall" },
    ];
    return parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name, plugins }));
  };
  const web = network();
  let ports = 8080;
  return {
    ...{ host, directory, log, counts, runtime, network },
    attach(containerId, list = web, cache = "cache") {
      const netns = resources.use(createNetns());
      const capabilityArgs = { portMappings: [{ hostPort: ports++, containerPort: 80, protocol: "tcp" }] };
      host.run(() => void runtime(cache).add(list, { containerId, ifname: "eth0", netns: netns.path, capabilityArgs }));
      return netns;
    },
    newHealer(limits = {}, caches = ["cache"], healLinks = false, pluginDirectories = []) {
      const healer = host.run(() => ({
        healer: new Healer({
          ...{ env, pluginDirectories, cacheDirectories: caches.map(cachePath) },
          limits: { ...AT_ONCE, ...limits },
          healLinks,
          log: (message) => void log.push(message),
          count: (counter) => void counts.push(counter),
        }),
      })).healer;
      return resources.use(healer);
    },
    round: (healer) => host.run<void>(() => healer.round()),
    check(containerId) {
      try {
        host.run(() => runtime().check(web, { containerId, ifname: "eth0" }));
        return "";
      } catch (error) {
        return CniError.from(error).message;
      }
    },
    nft: (...words) => runInNetns(host, "nft", ...words),
    shell: (...lines) => void runShellInNetns(host, ...lines),
  };
}

function healTest(name: string, body: (host: HealedHost) => void | Promise<void>): void {
  bridgeNetworkTest(name, async ({ host }) => {
    using resources = new DisposableStack();
    await body(newHealedHost(host, resources));
  });
}

/** Elements of a set come in no particular order. */
const sorted = (listing: string): string[] =>
  listing.replace(/elements = \{ ([^}]*) \}/g, (_, all) => all.split(/,\s+/).sort().join()).split("\n").sort();

const byProgram = (name: string) =>
  expect.stringMatching(
    new RegExp(`^Restored rules of \\d attachments? after changes by "${name}" \\(process [\\d, ]+\\): `),
  );

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
    const before = sorted(nft("-s", "list", "table", "inet", "cni"));
    const healer = newHealer();
    round(healer);
    expect(log).toEqual([]);
    shell(command);
    expect([check("c1"), check("c2")]).not.toEqual(["", ""]);
    round(healer);
    expect([check("c1"), check("c2")]).toEqual(["", ""]);
    expect(sorted(nft("-s", "list", "table", "inet", "cni"))).toEqual(before);
    expect(log).toEqual([byProgram(program)]);
    expect(counts).toEqual(["restores"]);
  });
}

/** Calls a plugin of the compiled binary, as an engine does. */
function callAsEngine(
  { host, directory }: HealedHost,
  type: string,
  verb: string,
  containerId: string,
) {
  const { config, result, netns, capabilityArgs } = JSON.parse(
    readFileSync(join(directory, "cache/results", `web-${containerId}-eth0`), "utf8"),
  );
  const { plugins, ...network } = JSON.parse(Buffer.from(config, "base64").toString());
  const plugin = plugins.find((each: { type: string }) => each.type === type);
  const stdin = JSON.stringify({ ...network, ...plugin, runtimeConfig: capabilityArgs, prevResult: result });
  const env = { CNI_COMMAND: verb, CNI_CONTAINERID: containerId, CNI_NETNS: netns, CNI_IFNAME: "eth0" };
  const { exitCode, stdout } = host.run(() => runPlugin(type, { env, stdin, inOwnProcess: true }));
  expect([exitCode, verb === "DEL" ? stdout : ""]).toEqual([0, ""]);
}

const removeResult = ({ directory }: HealedHost, containerId: string) =>
  rmSync(join(directory, "cache/results", `web-${containerId}-eth0`));

healTest("an engine's DEL that has begun is not undone", (healed) => {
  const { attach, newHealer, round, nft, log } = healed;
  attach("c1");
  attach("c2");
  const healer = newHealer();
  round(healer);
  callAsEngine(healed, "portmap", "DEL", "c1");
  round(healer);
  // Its result is still there, and the bridge's DEL is to come.
  nft("flush", "ruleset");
  round(healer);
  expect(log).toEqual([byProgram("nft")]);
  expect(nft("list", "ruleset")).toContain("web c2 eth0");
  expect(nft("list", "ruleset")).not.toContain("web c1 eth0");
  callAsEngine(healed, "portmap", "ADD", "c1");
  nft("flush", "ruleset");
  round(healer);
  expect(nft("list", "ruleset")).toContain("web c1 eth0");
});

healTest("a DEL that finds nothing, since all was flushed, leaves nothing", (healed) => {
  const { attach, newHealer, round, nft, log } = healed;
  for (const id of ["c1", "c2", "c3", "c4"]) attach(id);
  const healer = newHealer({ laterLooksMs: [1e6], resultGoneMs: [0] });
  round(healer);
  nft("flush", "ruleset");
  for (const id of ["c1", "c2"]) for (const type of ["firewall", "portmap"]) callAsEngine(healed, type, "DEL", id);
  round(healer);
  expect(nft("list", "ruleset")).toContain("web c1 eth0");
  callAsEngine(healed, "bridge", "DEL", "c1");
  removeResult(healed, "c1");
  // This one's result stays for a while, and is seen later.
  callAsEngine(healed, "bridge", "DEL", "c2");
  // This one's DEL comes later, and removes what was restored.
  for (const type of ["firewall", "portmap", "bridge"]) callAsEngine(healed, type, "DEL", "c3");
  removeResult(healed, "c3");
  for (let i = 0; i < 2; i++) round(healer);
  expect(nft("list", "ruleset")).not.toMatch(/web c[13] eth0/);
  expect(nft("list", "ruleset")).toContain("web c2 eth0");
  removeResult(healed, "c2");
  callAsEngine(healed, "bridge", "DEL", "c4");
  for (let i = 0; i < 2; i++) round(healer);
  expect(nft("list", "ruleset")).not.toContain("web c2 eth0");
  const again = (id: string) =>
    `Removed rules of "eth0" of container "${id}" on network "web" again: a DEL ran while they were restored`;
  expect(log).toEqual([byProgram("nft"), again("c1"), again("c2")]);
});

healTest("a DEL that finds nothing, and an ADD of the same name, leave the rules of the ADD", (healed) => {
  const { attach, newHealer, round, nft, log } = healed;
  attach("c1");
  const healer = newHealer({ laterLooksMs: [0] });
  round(healer);
  nft("flush", "ruleset");
  callAsEngine(healed, "portmap", "DEL", "c1");
  round(healer);
  for (const verb of ["DEL", "ADD"]) callAsEngine(healed, "portmap", verb, "c1");
  removeResult(healed, "c1");
  round(healer);
  expect(nft("list", "map", "inet", "cni", "hostports4")).toContain("web c1 eth0");
  expect(log).toEqual([byProgram("nft")]);
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
  nft("add rule inet cni forward counter; add element inet cni forward4 { 10.99.0.1 }");
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

healTest("a bridge that lost its address and a port that lost its bridge are reported once", (healed) => {
  const { attach, newHealer, round, shell, log, counts, host } = healed;
  attach("c1");
  attach("c2");
  const healer = newHealer();
  round(healer);
  const port = ipShow(host, "link", "show", "master", "br-web")[0].ifname;
  shell("ip address del 10.7.0.1/24 dev br-web", `ip link set ${port} nomaster`);
  round(healer);
  round(healer);
  const problems = [
    expect.stringMatching(
      new RegExp(`^Network "web": "${port}", the host's end of .*, is no port of bridge "br-web"$`),
    ),
    'Network "web": gateway address 10.7.0.1 is missing on "br-web"',
  ];
  expect([log, counts]).toEqual([problems, ["linkProblems", "linkProblems"]]);
  // A look that finds nothing new.
  shell("ip address add 10.99.0.1/24 dev br-web", "ip address del 10.99.0.1/24 dev br-web");
  round(healer);
  expect(log).toHaveLength(2);
  shell("ip link del br-web");
  round(healer);
  expect(log.slice(2)).toContain('Network "web": bridge "br-web" is missing');
});

healTest("with healLinks, they get it back", (healed) => {
  const { attach, newHealer, round, shell, log, host } = healed;
  attach("c1");
  const healer = newHealer({}, ["cache"], true);
  round(healer);
  const links = () =>
    [ipShow(host, "address", "show", "br-web")[0].addr_info, ipShow(host, "link", "show", "master", "br-web")]
      .map((all) =>
        all.map(({ local, ifname }: Record<string, string>) => local ?? ifname).filter((text: string) =>
          !text.startsWith("fe80")
        )
      );
  const before = links();
  for (let i = 0; i < 2; i++) {
    log.length = 0;
    shell("ip address flush dev br-web", `ip link set ${before[1][0]} nomaster`);
    round(healer);
    expect(links()).toEqual(before);
    expect(log.filter((line) => line.startsWith("Mended: "))).toHaveLength(2);
  }
});

healTest("links that keep losing what is mended get it back after pauses", (healed) => {
  const { attach, newHealer, round, shell, log, counts, host } = healed;
  attach("c1");
  const healer = newHealer({ fightWindowMs: 1e6, freeRounds: 1, firstPauseMs: 1e6 }, ["cache"], true);
  round(healer);
  for (let i = 0; i < 2; i++) {
    shell("ip address del 10.7.0.1/24 dev br-web");
    round(healer);
  }
  expect(log).toEqual([
    'Network "web": gateway address 10.7.0.1 is missing on "br-web"',
    'Mended: Network "web": gateway address 10.7.0.1 is missing on "br-web"',
    "Links lost 1 times in a row what was mended: the next time it is mended after 1000 s",
  ]);
  expect(counts).toEqual(["linkProblems", "backoffs"]);
  expect(JSON.stringify(ipShow(host, "address", "show", "br-web"))).not.toContain("10.7.0.1");
});

healTest("links that go with their containers are no reason to look", (healed) => {
  const { attach, newHealer, round, host, runtime, log, shell } = healed;
  attach("c1");
  attach("c2");
  const healer = newHealer();
  round(healer);
  shell("ip address del 10.7.0.1/24 dev br-web");
  round(healer);
  shell("ip link add d0 type bridge", "ip address add 10.99.0.1/24 dev d0", "ip link del d0");
  host.run(() => runtime().del("web", { containerId: "c2", ifname: "eth0" }));
  round(healer);
  expect([log.length, healer.timeoutMs()]).toEqual([1, Infinity]);
});

/** Calls `round` whenever something can be read, until `isDone`. */
function runUntil({ round }: HealedHost, healer: Healer, isDone: () => boolean): void {
  while (!isDone()) {
    pollAny(healer.fds, Math.min(healer.timeoutMs(), 1000));
    round(healer);
  }
}

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
