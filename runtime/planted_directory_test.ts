/**
 * Directories that somebody made in the place of files of ours, and files of other kinds in the place of the container's
 * namespace. DEL and GC go on and say what stays; ADD has one error.
 */
import { beforeAll, expect, test } from "bun:test";
import { lstatSync, mkdirSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { netnsLockPath } from "../ffi/netns/lock.ts";
import { findPlugin, loadPlugins } from "../plugins/registry.ts";
import { CniError } from "../spec/error.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { useDirectory } from "../testing/directory.ts";
import { nameServerPaths, startNameServer } from "../testing/dnsname.ts";
import { newNamespaces, newNetns, runInNetns, runIp } from "../testing/netns.ts";
import { PLANTED_NETNS, type PlantedNetns, plantInsteadOfNetns } from "../testing/planted_paths.ts";
import { newRuntimeContext } from "../testing/plugin_call.ts";
import { addNetworkList } from "./add.ts";
import { delNetworkList } from "./del.ts";
import { gcNetworkList } from "./gc.ts";

const root = useDirectory("cni-directories-");
beforeAll(() => loadPlugins());

/** The plugins of a network whose state is in a directory. */
const CHAINS: Readonly<Record<string, (directory: string) => object[]>> = {
  "bridge, host-local, tuning, portmap, firewall": (directory) => [
    {
      type: "bridge",
      bridge: "br9",
      isGateway: true,
      ipam: { type: "host-local", dataDir: join(directory, "ipam"), ranges: [[{ subnet: "10.9.0.0/24" }]] },
    },
    { type: "tuning", mtu: 1400, dataDir: join(directory, "tuning") },
    { type: "portmap" },
    { type: "firewall" },
  ],
  "host-device": (directory) => [{ type: "host-device", device: "nic0", dataDir: join(directory, "devices") }],
  "bridge, dnsname": (directory) => [
    {
      type: "bridge",
      bridge: "br9",
      isGateway: true,
      ipam: { type: "static", addresses: [{ address: "10.9.0.2/24", gateway: "10.9.0.1" }] },
    },
    { type: "dnsname", domainName: "dns.test", ...nameServerPaths(directory).keys },
  ],
};

interface Bench extends Disposable {
  readonly said: string[];
  add(): void;
  del(): void;
  gc(): void;
  /** Files of ours, below the directory. */
  files(): string[];
  path(file: string): string;
}

let benches = 0;

function newBench(chain: string, netnsPath?: string): Bench {
  using resources = new DisposableStack();
  const { host, container } = resources.use(newNamespaces());
  const directory = join(root, String(benches++));
  mkdirSync(directory);
  const plugins = CHAINS[chain]!(directory);
  if (chain === "host-device") runIp(host, "link add nic0 type veth peer name far0");
  if (chain.endsWith("dnsname")) {
    // Otherwise no rule has to let questions in.
    runInNetns(
      host,
      "nft",
      "add table inet filter; add chain inet filter in { type filter hook input priority 0; policy drop; }",
    );
    writeFileSync(nameServerPaths(directory).resolvConf, "");
    resources.use(startNameServer(host, nameServerPaths(directory)));
  }
  const said: string[] = [];
  const cacheDirectory = join(directory, "cache");
  const runtime = newRuntimeContext({ host, findPlugin, cacheDirectory, log: said });
  const list = parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }));
  const where = { containerId: "c1", ifname: "eth0", netns: netnsPath ?? container.path };
  const ofServer = Object.values(nameServerPaths(directory)).concat(join(nameServerPaths(directory).state, "lock"));
  const held = resources.move();
  return {
    said,
    add: () => host.run<void>(() => void addNetworkList(runtime, list, where)),
    del: () => host.run<void>(() => delNetworkList(runtime, list, where)),
    gc: () => host.run<void>(() => void gcNetworkList(runtime, list, [])),
    files: () =>
      (readdirSync(directory, { recursive: true }) as string[]).filter((file) =>
        lstatSync(join(directory, file)).isFile() && !ofServer.includes(join(directory, file))
      ).sort(),
    path: (file) => join(directory, file),
    [Symbol.dispose]: () => held.dispose(),
  };
}

/** As people make one by mistake: with something in it. */
function putDirectory(path: string): void {
  rmSync(path, { force: true });
  mkdirSync(path);
  writeFileSync(join(path, "kept"), "");
}

/** What ADD can do without. */
const HINTS = /\/(last_reserved_ip\.0|\.web\.index)$/;

test.each(Object.keys(CHAINS))("directories in the place of each file of %s", (chain) => {
  const files = (() => {
    using bench = newBench(chain);
    bench.add();
    const found = bench.files();
    bench.del();
    return [...new Set([...found, ...bench.files()])];
  })();
  expect(files.length).toBeGreaterThan(3);
  for (const file of files) {
    for (const verb of ["del", "gc"] as const) {
      using bench = newBench(chain);
      const path = bench.path(file);
      bench.add();
      putDirectory(path);
      bench.said.splice(0);
      bench[verb]();
      // A second one has nothing to do.
      bench.del();
      expect(readdirSync(path)).toEqual(["kept"]);
      const isNamed = bench.said.some((line) => line.includes(`"${path}"`) && /remove (the directory|it)\b/.test(line));
      if (!HINTS.test(path)) expect([file, verb, bench.said, isNamed]).toEqual([file, verb, bench.said, true]);
      addAfter(bench, path);
      rmSync(path, { recursive: true });
      bench.del();
      bench.add();
      bench.del();
    }
  }
}, 180_000);

/** Succeeds where it can do without the file, or has one error that names it and changes nothing. */
function addAfter(bench: Bench, path: string): void {
  try {
    bench.add();
    bench.del();
  } catch (error) {
    const { message, details = "" } = CniError.from(error);
    expect(`${message}; ${details}`).toContain(`"${path}"`);
    expect(`${message}; ${details}`).toContain("remove the directory");
  }
}

test.each(Object.keys(PLANTED_NETNS) as PlantedNetns[])("%s where the container's namespace was", (kind) => {
  for (const chain of Object.keys(CHAINS)) {
    for (const verb of ["del", "gc"] as const) {
      const path = join(root, `netns-${benches}`);
      using bench = newBench(chain, path);
      {
        using container = newNetns();
        using _ = plantInsteadOfNetns("the namespace itself", path, container);
        bench.add();
      }
      using _ = plantInsteadOfNetns(kind, path);
      bench.said.splice(0);
      bench[verb]();
      bench.del();
      const left = bench.files().filter((file) => /results\/|\d\.\d|_eth0|:eth0/.test(file));
      expect([chain, verb, left]).toEqual([chain, verb, []]);
      expect(bench.add).toThrow(path);
    }
  }
}, 180_000);

test("a directory in the place of a namespace's lock stops ADDs of sbr, and no DEL", async () => {
  using namespaces = newNamespaces();
  const { lockRoutingTables, tryLockRoutingTables } = await import("../plugins/lib/links/routing_table_lock.ts");
  const path = netnsLockPath(namespaces.container.identity, "routing-tables");
  mkdirSync(path, { recursive: true });
  try {
    const said: string[] = [];
    expect(() => lockRoutingTables(namespaces.container)).toThrow(
      `"${path}": Is a directory (EISDIR, remove the directory)`,
    );
    expect(tryLockRoutingTables(namespaces.container, (line) => void said.push(line))).toBeUndefined();
    expect(said).toEqual([expect.stringContaining(`"${path}": Is a directory (EISDIR, remove the directory)`)]);
  } finally {
    rmSync(path, { recursive: true });
  }
});
