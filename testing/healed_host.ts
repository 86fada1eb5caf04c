/** A host with attachments and a healer, both of the test's own. Each round of the healer is one call. @module */
import { withoutMark } from "./ruleset.ts";
import { expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { pollAny } from "../ffi/sys/poll.ts";
import { Healer, type HealingCounter } from "../heal/healer.ts";
import { HEALING_LIMITS, type HealingLimits } from "../heal/limits.ts";
import { Runtime } from "../runtime/runtime.ts";
import { CniError } from "../spec/error.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import { runPlugin } from "./binary.ts";
import { bridgeNetworkTest } from "./bridge_network.ts";
import { newNetns, runInNetns, runShellInNetns } from "./netns.ts";

/** Without any wait, so that each round is a look if there is a reason. */
const AT_ONCE: HealingLimits = { ...HEALING_LIMITS, quietMs: 0, laterLooksMs: [], resultGoneMs: [], fightWindowMs: 0 };

export interface HealedHost {
  readonly host: Netns;
  readonly directory: string;
  readonly log: string[];
  readonly counts: HealingCounter[];
  /** @param cache a path, or a name in the directory of the test @param messages takes what it says */
  runtime(cache?: string, messages?: string[]): Runtime;
  network(name?: string): NetworkConfigList;
  attach(containerId: string, list?: NetworkConfigList, cache?: string, protocol?: "tcp" | "udp"): Netns;
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

export function newHealedHost(
  host: Netns,
  resources: DisposableStack,
  env: Record<string, string> = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus" },
): HealedHost {
  const directory = mkdtempSync(join(tmpdir(), "cni-heal-"));
  resources.defer(() => rmSync(directory, { recursive: true }));
  const [log, counts]: [string[], HealingCounter[]] = [[], []];
  const cachePath = (name: string) => resolve(directory, name);
  const runtime = (cache = "cache", messages: string[] = []) =>
    new Runtime({
      env,
      cacheDirectory: cachePath(cache),
      pluginDirectories: [],
      log: (message) => void messages.push(message),
    });
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
    host,
    directory,
    log,
    counts,
    runtime,
    network,
    attach(containerId, list = web, cache = "cache", protocol = "tcp") {
      const netns = resources.use(newNetns());
      const capabilityArgs = { portMappings: [{ hostPort: ports++, containerPort: 80, protocol }] };
      host.run(() => void runtime(cache).add(list, { containerId, ifname: "eth0", netns: netns.path, capabilityArgs }));
      return netns;
    },
    newHealer(limits = {}, caches = ["cache"], healLinks = false, pluginDirectories = []) {
      const healer = host.run(() => ({
        healer: new Healer({
          env,
          pluginDirectories,
          cacheDirectories: caches.map(cachePath),
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

export function healTest(name: string, body: (host: HealedHost) => void | Promise<void>): void {
  bridgeNetworkTest(name, async ({ host }) => {
    using resources = new DisposableStack();
    await body(newHealedHost(host, resources));
  });
}

/** Elements of a set come in no particular order. The mark comes back with the next ADD that finds no port missing. */
export const sortedListing = (listing: string): string[] =>
  withoutMark(listing).replace(/elements = \{ ([^}]*) \}/g, (_, all) => all.split(/,\s+/).sort().join())
    .split("\n").sort();

export const byProgram = (name: string) =>
  expect.stringMatching(
    new RegExp(
      `^Restored rules (of \\d attachments?|that all attachments share) after changes by "${name}" \\(process [\\d, ]+\\): `,
    ),
  );

/** Calls a plugin of the compiled binary, as an engine does. */
export function callAsEngine(
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

/** As if its ADD had been another one. */
export function changeResult({ directory }: HealedHost, containerId: string, changes: object): void {
  const path = join(directory, "cache/results", `web-${containerId}-eth0`);
  writeFileSync(path, JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), ...changes }));
}

export const removeResult = ({ directory }: HealedHost, containerId: string) =>
  rmSync(join(directory, "cache/results", `web-${containerId}-eth0`));

/** Calls `round` whenever something can be read, until `isDone`. */
export function runUntil({ round }: HealedHost, healer: Healer, isDone: () => boolean): void {
  while (!isDone()) {
    pollAny(healer.fds, Math.min(healer.timeoutMs(), 1000));
    round(healer);
  }
}
