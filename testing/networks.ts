/**
 * A configuration directory and a cache of one test, for the commands of `cni network`.
 *
 * @module
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { EngineNames } from "../containers/engine_names.ts";
import { type CreatedNetwork, createNetwork } from "../networks/create.ts";
import { findNetwork } from "../networks/find.ts";
import { inspectNetwork } from "../networks/inspect.ts";
import { listNetworks } from "../networks/list.ts";
import type { NetworkRequest } from "../networks/new_network.ts";
import { findUnusedNetworks, pruneNetworks } from "../networks/prune.ts";
import { type RemovedNetwork, removeNetworks } from "../networks/remove.ts";
import { loadNetwork } from "../runtime/load.ts";
import { Runtime } from "../runtime/runtime.ts";

const REQUEST: Omit<NetworkRequest, "name"> = {
  driver: "bridge",
  subnets: [],
  gateways: [],
  ipRanges: [],
  ipv6: false,
  internal: false,
  dns: false,
  options: new Map(),
};

/** Directories that go with the scope. */
export interface NetworksSite extends Disposable {
  readonly conf: string;
  readonly cache: string;
  /** Where {@linkcode NetworksSite.create} has host-local keep its state. */
  readonly state: string;
  readonly runtime: Runtime;
  readonly log: string[];
  /** Creates a network on a host. */
  create(host: Netns, name: string, request?: Partial<NetworkRequest>): CreatedNetwork;
  /** The functions behind the commands, on a host. @param onLog called after each line that they log */
  on(host: Netns, onLog?: () => void): ReturnType<typeof operate>;
  /** Writes a file of the configuration directory. @returns its path */
  write(name: string, document: unknown): string;
}

/** The site has no network yet. */
export function newNetworksSite(): NetworksSite {
  const root = mkdtempSync(join(tmpdir(), "cni-networks-"));
  const [conf, cache, state] = ["conf", "cache", "state"].map((name) => join(root, name)) as [string, string, string];
  mkdirSync(conf);
  const log: string[] = [];
  const runtime = new Runtime({
    env: process.env,
    cacheDirectory: cache,
    pluginDirectories: [],
    log: (message) => void log.push(message),
  });
  const site = { conf, cache, state, runtime, log };
  const write = (name: string, document: unknown) => {
    writeFileSync(join(conf, name), typeof document === "string" ? document : JSON.stringify(document));
    return join(conf, name);
  };
  return {
    ...site,
    write,
    on: (host, onLog) => operate(site, host, onLog),
    create(host, name, request = {}) {
      const created = host.run(() => createNetwork(runtime, conf, { ...REQUEST, name, ...request }));
      // The machine's own state must stay as it is.
      const text = readFileSync(created.file, "utf8");
      writeFileSync(created.file, text.replace('"host-local",', `"host-local", "dataDir": ${JSON.stringify(state)},`));
      return created;
    },
    [Symbol.dispose]: () => rmSync(root, { recursive: true }),
  };
}

function operate(site: Pick<NetworksSite, "runtime" | "conf" | "log">, host: Netns, onLog = () => {}) {
  const { runtime, conf: directory, log: lines } = site;
  const log = (message: string) => {
    lines.push(message);
    onLog();
  };
  const find = (name: string) => findNetwork(runtime, directory, name, log);
  return {
    add: (name: string, containerId: string, netns: Netns, ports: object[] = [], ifname = "eth0") =>
      host.run(() =>
        runtime.add(loadNetwork(name, { directory }), {
          containerId,
          ifname,
          netns: netns.path,
          capabilityArgs: { portMappings: ports },
        })
      ),
    ls: () => host.run(() => listNetworks(runtime, directory, runtime.attachments(), { log, problem: log })),
    inspect: (name: string) => host.run(() => inspectNetwork(runtime, find(name), new EngineNames(), log)),
    rm: (names: readonly string[], force = false, removed: RemovedNetwork[] = []) => {
      host.run(() => removeNetworks(names.map(find), { runtime, directory, log }, force, (each) => removed.push(each)));
      return removed;
    },
    prune: (names: readonly string[]) => {
      const removed: RemovedNetwork[] = [];
      host.run(() => pruneNetworks(names.map(find), { runtime, directory, log }, (each) => removed.push(each)));
      return removed.map(({ name }) => name);
    },
    unused: (all = false) =>
      host.run(() => findUnusedNetworks(runtime, directory, all, log)).map(({ list }) => list.name),
  };
}
