/** Thousands of networks: what takes twice as many more than twice as long would take minutes. */
import { beforeAll, expect, test } from "bun:test";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseCidr, parseIp, toCidr } from "../../ffi/address.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { loadPluginDocs } from "../../plugins/docs_registry.ts";
import { useDirectory } from "../../testing/directory.ts";
import { newNetns } from "../../testing/netns.ts";
import { createNetwork } from "../create.ts";
import { listNetworks } from "../list.ts";
import { chooseSubnet } from "../subnets.ts";
import { Runtime } from "../../runtime/runtime.ts";
import { lintFiles } from "./lint.ts";

const root = useDirectory("cni-many-");
beforeAll(() => Promise.all([loadPlugins(), loadPluginDocs()]));

/** In pairs, these took more than 200 s of a processor, and in order 7 s. */
const COUNT = 10_000;
/** Of kinds that collide. */
const FEW = 2000;
/** Of the processor: other programs of the machine do not count. */
const LIMIT_MS = 40_000;

type Network = (number: number) => { readonly bridge: string; readonly range: object };

const subnetOf = (number: number): string => `10.${100 + (number >> 8)}.${number & 255}.0/24`;

const KINDS: Readonly<Record<string, readonly [network: Network, rules: readonly string[]]>> = {
  "of their own": [(number) => ({ bridge: `br${number}`, range: { subnet: subnetOf(number) } }), []],
  "on one bridge": [(number) => ({ bridge: "cni0", range: { subnet: subnetOf(number) } }), ["shared-bridge"]],
  "with one subnet on one bridge": [() => ({ bridge: "cni0", range: { subnet: "10.9.0.0/16" } }), ["shared-subnet"]],
  "with one subnet": [
    (number) => ({ bridge: `br${number}`, range: { subnet: "10.9.0.0/16" } }),
    ["overlapping-ranges"],
  ],
  "with parts of one subnet on one bridge": [
    (number) => {
      const host = `10.${9 + (number >> 14)}.${(number >> 6) & 255}`;
      const first = (number & 63) * 4;
      const range = { subnet: "10.0.0.0/8", rangeStart: `${host}.${first + 1}`, rangeEnd: `${host}.${first + 2}` };
      return { bridge: "cni0", range };
    },
    [],
  ],
};

function write(name: string, network: Network, count: number): string {
  const directory = join(root, name.replaceAll(" ", "-"));
  mkdirSync(directory);
  for (let number = 0; number < count; number++) {
    const { bridge, range } = network(number);
    const ipam = {
      type: "host-local",
      dataDir: join(root, "state"),
      ranges: [[range]],
      routes: [{ dst: "0.0.0.0/0" }],
    };
    const document = {
      cniVersion: "1.0.0",
      cniVersions: ["1.0.0", "1.1.0"],
      name: `net${number}`,
      plugins: [{ type: "bridge", bridge, isGateway: true, ipam }],
    };
    writeFileSync(join(directory, `${String(number).padStart(5, "0")}.conflist`), JSON.stringify(document));
  }
  return directory;
}

/** @throws {Error} if it takes too long */
function inTime<T>(what: string, call: () => T): T {
  const before = process.cpuUsage();
  const result = call();
  const { user, system } = process.cpuUsage(before);
  const tookMs = (user + system) / 1000;
  if (tookMs > LIMIT_MS) throw new Error(`${what} took ${tookMs.toFixed(0)} ms`);
  return result;
}

test.each(Object.entries(KINDS))("lint of thousands of networks %s", (name, [network, rules]) => {
  using host = newNetns();
  const count = name === "of their own" ? COUNT : FEW;
  const directory = write(name, network, count);
  // Here, since a hook has less time.
  using _ = { [Symbol.dispose]: () => rmSync(directory, { recursive: true }) };
  const { files, problems } = host.run(() => inTime("lint", () => lintFiles([directory], { pluginDirectories: [] })));
  expect(files).toHaveLength(count);
  expect([...new Set(problems.map(({ rule }) => rule))]).toEqual([...rules]);
  // Each names one other network.
  expect(problems).toHaveLength(rules.length * (count - 1));
  if (name !== "of their own") return;

  const log: string[] = [];
  const runtime = new Runtime({ env: {}, cacheDirectory: join(root, "cache"), log: (line) => void log.push(line) });
  const ls = () => listNetworks(runtime, directory, [], { log: () => {}, problem: (line) => void log.push(line) });
  expect(host.run(() => inTime("ls", ls))).toHaveLength(COUNT + 1);
  const request = {
    name: "one-more",
    driver: "bridge",
    subnets: [],
    gateways: [],
    ipRanges: [],
    options: new Map(),
  } as const;
  const flags = { ipv6: false, internal: false, dns: false };
  host.run<void>(() => inTime("create", () => void createNetwork(runtime, directory, { ...request, ...flags })));
  expect(log).toEqual([]);
}, 580_000);

test("a free subnet behind thousands that are in use, and none where a wide one covers the rest", () => {
  const used = Array.from({ length: 4096 }, (_, i) => toCidr(parseIp(`10.${64 + (i >> 8)}.${i & 255}.128`), 25));
  const parts = Array.from({ length: COUNT }, (_, i) => toCidr(parseIp(`172.20.${i >> 8 & 3}.${i & 255}`), 32));
  const uses = [...used, ...parts].map((subnet) => ({ subnet, user: "x" }));
  expect(inTime("the first", () => chooseSubnet(4, uses))).toBe(toCidr(parseIp("172.20.4.0"), 24));
  const wide = ["172.16.0.0/12", "192.168.0.0/17"].map((subnet) => ({
    subnet: parseCidr(subnet),
    user: "x",
  }));
  expect(inTime("the second", () => chooseSubnet(4, [...uses, ...wide]))).toBe(toCidr(parseIp("192.168.128.0"), 24));
});
