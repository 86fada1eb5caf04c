/** Kube-router with its firewall alone, on a host of its own that an API server tells of policies. @module */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../../ffi/netns/netns.ts";
import { ApiServer, type ServedObject } from "../../../testing/api_server.ts";
import { runShellInNetns, until } from "../../../testing/netns.ts";
import { peakPrivateBytes, processorMsWithChildrenOf } from "../harness/process_cost.ts";
import { ensureKubeRouter } from "../kubernetes/kube_router.ts";

const API_ADDRESS = "192.0.2.2";
const TOKEN = "token";
/** So much later it has nothing to do. */
const QUIET_MS = 500;
export const KUBE_ROUTER_PATIENCE_MS = 600_000;

export interface KubeRouter extends Disposable {
  readonly api: ApiServer;
  /** From its start to policies in the kernel. */
  readonly startMs: number;
  readonly startProcessorMs: number;
  readonly peakMegabytes: number;
  /** What it does with its objects once. @returns what that took until it is in the kernel */
  change(
    change: (api: ApiServer) => void | Promise<void>,
  ): Promise<{ readonly ms: number; readonly processorMs: number }>;
}

interface KubeRouterHost {
  readonly host: Netns;
  /** The API server is there. */
  readonly outside: Netns;
  readonly directory: string;
  /** Of the node, whose pods have the address as their `hostIP`. */
  readonly node: string;
  readonly address: string;
  /** Cluster objects beside the node itself. */
  readonly objects: readonly ServedObject[];
}

/** Starts it, and waits until all policies are in the kernel. It has IPv4 alone: in this version, rules of IPv6 name sets by other names than it gives them. */
export async function startKubeRouter(
  { host, outside, directory, node, address, objects }: KubeRouterHost,
): Promise<KubeRouter> {
  using resources = new DisposableStack();
  const words = ensureKubeRouter();
  const all = [...objects, nodeObject(node, address)];
  const api = resources.use(new ApiServer(outside, { address: API_ADDRESS, directory, token: TOKEN, objects: all }));
  const [kubeconfig, log] = [join(directory, "kubeconfig"), join(directory, "kube-router.log")];
  writeFileSync(kubeconfig, api.kubeconfig);
  writeFileSync(log, "");
  const options = [
    "--run-firewall=true",
    "--run-router=false",
    "--run-service-proxy=false",
    `--kubeconfig=${kubeconfig}`,
    `--hostname-override=${node}`,
    "--cache-sync-timeout=5m",
    "--iptables-sync-period=1h",
    "--v=1",
  ];
  const since = performance.now();
  // An object: a namespace is left before a promise of it could be kept.
  const { child } = host.run(() => ({
    child: Bun.spawn([...words, ...options], { stdio: ["ignore", Bun.file(log), Bun.file(log)] }),
  }));
  resources.defer(() => child.kill("SIGKILL"));
  const lines = (text: string) => readFileSync(log, "utf8").split(text).length - 1;
  const ended = () => lines("sync iptables took");
  const requireSynced = () => {
    const found = /^.*(?:Aborting sync|failed to).*$/im.exec(readFileSync(log, "utf8"));
    if (child.exitCode === null && !found) return;
    throw new Error(`kube-router cannot enforce ${objects.length} objects: ${found?.[0] ?? readFileSync(log, "utf8")}`);
  };
  const untilEnded = async (count: number) => {
    await until(() => child.exitCode !== null || ended() >= count, KUBE_ROUTER_PATIENCE_MS);
    requireSynced();
  };
  const untilQuiet = async () => {
    for (let quietSince = performance.now(); performance.now() - quietSince < QUIET_MS;) {
      if (lines("Starting sync of iptables") > ended()) {
        await untilEnded(ended() + 1);
        quietSince = performance.now();
      }
      await Bun.sleep(10);
    }
  };
  const processorMs = () => processorMsWithChildrenOf(child.pid);
  await untilEnded(1);
  const start = { startMs: performance.now() - since, startProcessorMs: processorMs() };
  requireChains(host, all);
  // Each object is an event, so that it does all of that a second time.
  await untilQuiet();
  const owned = resources.move();
  return {
    api,
    ...start,
    get peakMegabytes() {
      return peakPrivateBytes(child.pid) / 1e6;
    },
    async change(change) {
      const [before, begun, from] = [ended(), performance.now(), processorMs()];
      await change(api);
      await untilEnded(before + 1);
      const ms = performance.now() - begun;
      await untilQuiet();
      return { ms, processorMs: processorMs() - from };
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}

/** It has a chain for each policy, and one of its own. */
function requireChains(host: Netns, objects: readonly ServedObject[]): void {
  const policies = objects.filter(({ kind }) => kind === "NetworkPolicy").length;
  const chains = Number(runShellInNetns(host, "iptables-save -t filter | grep -c '^:KUBE-NWPLCY-'"));
  if (chains !== policies + 1) throw new Error(`kube-router has ${chains} chains for ${policies} policies`);
}

function nodeObject(name: string, address: string): ServedObject {
  const node = {
    apiVersion: "v1",
    kind: "Node" as const,
    metadata: { name },
    status: { addresses: [{ type: "InternalIP", address }] },
  };
  return node;
}
