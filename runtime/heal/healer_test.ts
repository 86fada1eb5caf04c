/** Rules that others remove, put back on a host of the test's own. Other programs are real ones: nft, iptables. */
import { expect } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../../ffi/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { FIREWALLD_PROGRAMS, runOnBus, startBus, startFirewalld } from "../../testing/firewalld.ts";
import { testWith } from "../../testing/binary.ts";
import { CniError } from "../../spec/error.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import { pollAny } from "../../ffi/sys/poll.ts";
import { runInNetns, runShellInNetns } from "../../testing/netns.ts";
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
  newHealer(limits?: Partial<HealingLimits>, caches?: readonly string[]): Healer;
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
    newHealer(limits = {}, caches = ["cache"]) {
      const healer = host.run(() => ({
        healer: new Healer({
          ...{ env, pluginDirectories: [], cacheDirectories: caches.map(cachePath) },
          limits: { ...AT_ONCE, ...limits },
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

/** Calls `round` whenever something can be read, until `isDone`. */
function runUntil({ round }: HealedHost, healer: Healer, isDone: () => boolean): void {
  while (!isDone()) {
    pollAny(healer.fds, Math.min(healer.timeoutMs(), 1000));
    round(healer);
  }
}

testWith(FIREWALLD_PROGRAMS, "firewall-cmd --reload takes nothing away for long", async () => {
  using resources = new DisposableStack();
  const host = resources.use(createNetns());
  const bus = resources.use(await startBus());
  resources.use(await startFirewalld(host, bus));
  const healed = newHealedHost(host, resources, { DBUS_SYSTEM_BUS_ADDRESS: bus.address });
  const { attach, newHealer, round, log } = healed;
  attach("c1");
  const healer = newHealer();
  round(healer);
  const sources = () => runOnBus(host, bus, "firewall-cmd --zone=trusted --list-sources").trim();
  expect([sources(), log]).toEqual(["10.7.0.2/32", []]);
  runOnBus(host, bus, "firewall-cmd --reload");
  expect(sources()).toBe("");
  runUntil(healed, healer, () => log.length > 0);
  expect(sources()).toBe("10.7.0.2/32");
  expect(log.join()).toMatch(
    /^Restored rules of 1 attachment after .*a reload of firewalld.*: .*10\.7\.0\.2 in zone "trusted" of firewalld/,
  );
});
