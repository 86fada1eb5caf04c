/** What can happen to pods between a kubelet, containerd and the plugins. Each ends with a node on which nothing is left. @module */
import { POD_NETWORK } from "../../../testing/cri.ts";
import { until } from "../../../testing/netns.ts";
import { nodeState } from "../../../testing/node.ts";
import {
  awaitPlugins,
  newPods,
  type PodNode,
  requireAddresses,
  requireClean,
  requireEqual,
  requireTraffic,
  setNetwork,
  startPods,
  stopPods,
} from "./pods.ts";

/** Throws if something is not as it should be. @returns what happened, for people */
export type PodScenario = (host: PodNode, count: number) => Promise<string>;

/** They all come at once, and go at once. */
async function burst(host: PodNode, count: number): Promise<string> {
  const pods = newPods(count);
  const startedAt = performance.now();
  const ids = await startPods(host, pods);
  const startMs = performance.now() - startedAt;
  await requireAddresses(host, ids);
  await requireTraffic(host, ids, pods);
  const stoppedAt = performance.now();
  await stopPods(host);
  const stopMs = performance.now() - stoppedAt;
  requireClean(host, "pods0");
  return `${count} pods were ready after ${Math.round(startMs)} ms, and gone after ${Math.round(stopMs)} ms`;
}

/** containerd is killed when it has started half of the pods, and when it has stopped half of them. */
async function kill(host: PodNode, count: number): Promise<string> {
  const { node, cri } = host;
  const pods = newPods(count);
  const started = await untilHalfKill(host, pods.map((pod) => () => cri.run(pod)));
  await cri.restart();
  const ready = (await cri.list()).filter(({ state }) => state === "SANDBOX_READY").map(({ id }) => id);
  const lost = started.filter((id) => id !== undefined && !ready.includes(id));
  requireEqual("the pods that were ready and are not", lost, []);
  const known = pods.filter((_, i) => started[i] !== undefined);
  await requireTraffic(host, started.filter((id) => id !== undefined), known);
  const sandboxes = await cri.list();
  await untilHalfKill(host, sandboxes.map(({ id }) => () => cri.stop(id)));
  await cri.restart();
  await stopPods(host);
  // It keeps in mind each pod that it starts, but not a namespace that it has just made for one.
  const { namespaces } = nodeState(node) as { readonly namespaces: readonly string[] };
  for (const name of namespaces) node.run("ip", "netns", "del", name);
  requireClean(host, "pods0");
  return `${known.length} of ${count} pods were ready; containerd forgot ${namespaces.length} namespaces`;
}

/** Kills containerd when half of the calls have been answered. @returns the answers; none for a call that was lost */
async function untilHalfKill<T>(host: PodNode, calls: readonly (() => Promise<T>)[]) {
  const half = Promise.withResolvers<void>();
  let answered = 0;
  const answers = calls.map(async (call) => {
    try {
      const answer = await call();
      if (++answered >= calls.length / 2) half.resolve();
      return answer;
    } catch (error) {
      half.reject(error);
      return undefined;
    }
  });
  await half.promise;
  await host.cri.kill();
  const all = await Promise.all(answers);
  await awaitPlugins(host);
  return all;
}

/** The node loses its power: other namespaces, the same files. The pods come back before the old sandboxes are gone. */
async function restart(host: PodNode, count: number): Promise<string> {
  const ids = await startPods(host, newPods(count));
  await host.restart();
  const sandboxes = await host.cri.list();
  requireEqual("the sandboxes", sandboxes.map(({ id }) => id).sort(), [...ids].sort());
  requireEqual("those that are ready", sandboxes.filter(({ state }) => state === "SANDBOX_READY"), []);
  const again = newPods(count, { attempt: 1 });
  const stopping = Promise.all(ids.map((id) => host.cri.stop(id)));
  const newIds = await startPods(host, again);
  await stopping;
  await requireAddresses(host, newIds);
  await requireTraffic(host, newIds, again);
  await stopPods(host);
  requireClean(host, "pods0");
  return `${count} pods came back while their old sandboxes were stopped`;
}

/** The same network with other addresses. */
const OTHER_ADDRESSES = structuredClone(POD_NETWORK);
OTHER_ADDRESSES.plugins[0]!.ipam!.ranges = [[{ subnet: "10.95.0.0/24" }], [{ subnet: "fd95::/64" }]];

/** Another network on another bridge, without limits and without a firewall. */
const OTHER_NETWORK = {
  ...POD_NETWORK,
  name: "other",
  plugins: [{ ...OTHER_ADDRESSES.plugins[0], bridge: "other0" }, POD_NETWORK.plugins[1]],
};

/** The network gets other addresses under pods, then another name: containerd stops pods with the configuration that it has then. */
async function change(host: PodNode, count: number): Promise<string> {
  const [pods, newerPods] = [newPods(count), newPods(count, { firstPort: 9000 })];
  await startPods(host, pods);
  await changeNetwork(host, OTHER_ADDRESSES);
  await stopPods(host);
  requireClean(host, "pods0");
  await changeNetwork(host, POD_NETWORK);
  const ids = await startPods(host, pods);
  await changeNetwork(host, OTHER_NETWORK);
  const newerIds = await startPods(host, newerPods);
  await stopPods(host, ids);
  const gone = detachGone(host);
  requireEqual("the attachments that containerd left behind", gone.toSorted(), ids.toSorted());
  await requireTraffic(host, newerIds, newerPods);
  await stopPods(host);
  requireClean(host, "pods0", "other0");
  return `with other addresses, nothing is left; with another name, all ${count}, and cni run del detaches them`;
}

/** Detaches what has no namespace any more, as `cni doctor` says. @returns the containers */
function detachGone({ node }: PodNode): readonly string[] {
  const cni = (...words: string[]) => node.run("/opt/cni/bin/cni", "run", ...words);
  const all = JSON.parse(cni("list", "--json")) as readonly Remembered[];
  return all.filter(({ state }) => state === "gone").map(({ network, containerId }) => {
    cni("del", network, "--container-id", containerId);
    return containerId;
  });
}

interface Remembered {
  readonly network: string;
  readonly containerId: string;
  readonly state: string;
}

/** Waits until containerd has read it. */
async function changeNetwork({ node, cri }: PodNode, network: object): Promise<void> {
  setNetwork(node, network);
  await until(async () => await cri.network() === JSON.stringify(network));
}

/** By the words that choose them. */
export const POD_SCENARIOS: Readonly<Record<string, PodScenario>> = { burst, kill, restart, change };
