/** A node with pods that are started, called and stopped all at once. @module */
import { readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Cri, newCri, type Pod, POD_NETWORK } from "../../../testing/cri.ts";
import { until } from "../../../testing/netns.ts";
import { cleanNodeState, newTestNode, nodeState, type TestNode } from "../../../testing/node.ts";
import { requestTcp, serveTcp } from "../../../testing/traffic.ts";
import { newScratchDirectory } from "../repository.ts";

/** A node that a kubelet could have, and that can lose its power. */
export interface PodNode extends Disposable {
  readonly node: TestNode;
  readonly cri: Cri;
  /** Ends all that runs, without a word to anybody, and starts again with other namespaces and the same files. */
  restart(): Promise<void>;
}

/** @param isServed by shims and a server */
export async function newPodNode(isServed: boolean): Promise<PodNode> {
  using resources = new DisposableStack();
  const { path } = resources.use(newScratchDirectory());
  const start = async () => {
    using scope = new DisposableStack();
    const node = scope.use(await newTestNode({ directory: path, isServed }));
    setNetwork(node, POD_NETWORK);
    const cri = scope.use(await newCri(node));
    return { node, cri, scope: scope.move() };
  };
  let running = await start();
  resources.defer(() => running.scope.dispose());
  const owned = resources.move();
  return {
    get node() {
      return running.node;
    },
    get cri() {
      return running.cri;
    },
    async restart() {
      running.scope.dispose();
      running = await start();
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}

/** Writes the only network of a node. */
export function setNetwork(node: TestNode, network: object): void {
  writeFileSync(join(node.networks, "10-pods.conflist"), JSON.stringify(network));
}

/** Pods with a host port each. @param options their ports begin here; and how many sandboxes each had before */
export const newPods = (count: number, { firstPort = 8000, attempt = 0 } = {}): readonly Pod[] =>
  Array.from({ length: count }, (_, i) => ({
    name: `pod${firstPort + i}`,
    attempt,
    bandwidth: "100M",
    ports: [{ hostPort: firstPort + i, containerPort: 80 }],
  }));

/** Starts pods all at once. @returns their ids */
export const startPods = ({ cri }: PodNode, pods: readonly Pod[]): Promise<readonly string[]> =>
  Promise.all(pods.map((pod) => cri.run(pod)));

/** Stops and removes pods all at once, all that containerd lists by default, and each twice, as after a lost answer. */
export async function stopPods({ cri }: PodNode, some?: readonly string[]): Promise<void> {
  const ids = some ?? (await cri.list()).map(({ id }) => id);
  await Promise.all(ids.flatMap((id) => [cri.stop(id), cri.stop(id)]));
  await Promise.all(ids.map((id) => cri.remove(id)));
}

/** Calls each pod by its host port, from another machine. @throws {Error} if another answers, or none */
export async function requireTraffic({ node, cri }: PodNode, ids: readonly string[], pods: readonly Pod[]) {
  using servers = new DisposableStack();
  for (const [i, id] of ids.entries()) {
    const { netns } = servers.use(await cri.container(id));
    servers.use(serveTcp(netns, pods[i]!.name, 80));
  }
  const answers = await Promise.all(
    pods.map(({ ports }) => requestTcp(node.outside, "192.0.2.1", ports![0]!.hostPort)),
  );
  requireEqual("the answers", answers, pods.map(({ name }) => `${name} 192.0.2.2`));
}

/** Each pod has two addresses, and no two have the same. @throws {Error} otherwise */
export async function requireAddresses({ cri }: PodNode, ids: readonly string[]): Promise<void> {
  const all = await Promise.all(ids.map(async (id) => (await cri.status(id)).ips));
  requireEqual("the number of different addresses", new Set(all.flat()).size, 2 * ids.length);
}

/** @param bridges that stay @throws {Error} if something is left */
export function requireClean({ node }: PodNode, ...bridges: string[]): void {
  requireEqual("what is left", nodeState(node), cleanNodeState(...bridges));
}

export function requireEqual(what: string, found: unknown, expected: unknown): void {
  if (Bun.deepEquals(found, expected)) return;
  throw new Error(`${what}: ${Bun.inspect(found)}\nexpected: ${Bun.inspect(expected)}`);
}

/** Waits for plugins that containerd has started and not waited for, since it was killed. */
export async function awaitPlugins({ node }: PodNode): Promise<void> {
  const mounts = node.run("readlink", "/proc/self/ns/mnt").trim();
  await until(() => !readdirSync("/proc").some((pid) => /^\d+$/.test(pid) && isPlugin(pid, mounts)));
}

function isPlugin(pid: string, mounts: string): boolean {
  try {
    if (readlinkSync(`/proc/${pid}/ns/mnt`) !== mounts) return false;
    return /^\/opt\/cni\/bin\/(?!cni)/.test(readFileSync(`/proc/${pid}/cmdline`, "utf8"));
  } catch {
    // It has ended meanwhile.
    return false;
  }
}
