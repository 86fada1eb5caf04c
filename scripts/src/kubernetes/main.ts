/** The body of `scripts/kubernetes`, see its usage. @module */
import { runCluster } from "./cluster.ts";
import { comparedCluster, comparedNetworks, compareNetworks, type InCluster } from "./compare.ts";
import { FAULT_CLUSTER, runFaults } from "./faults.ts";
import { endCluster, findClusterProcess, findHolder, killCluster } from "./holder.ts";
import { ensureFlannel } from "./flannel.ts";
import { ensureClusterImages } from "./images.ts";
import { KUBEADM_CLUSTER, tryKubeadm } from "./kubeadm.ts";
import { ensureKubeadmImages } from "./kubeadm_images.ts";
import { clusterEnv } from "./kubectl.ts";
import { type KubernetesOptions, parseKubernetesCall } from "./options.ts";
import { measureManyNodes } from "./many_nodes.ts";
import { FLANNEL_CLUSTER, migrateFromFlannel } from "./flannel_migration.ts";
import { measurePodsAtOnce } from "./pods_at_once.ts";
import { ensureKubeadm, ensureKubernetesPrograms, missingKubeadm, missingKubernetes } from "./programs.ts";
import { migrateFromRanges, RANGES_CLUSTER } from "./ranges_migration.ts";
import { replaceProgram } from "./replacement.ts";
import { onInterruption, startCluster } from "./start.ts";
import { runSuccessfully } from "../harness/process.ts";
import { runSuite } from "./suite.ts";

const { command, words, options } = parseKubernetesCall(process.argv.slice(2));

/** From the root of the checkout on: a cluster knows that by another path. */
const BUN = "node_modules/.bin/bun";

function entering(name: string, command: readonly string[]): readonly string[] {
  const target = ["nsenter", "--target", `${findClusterProcess(name)}`, "--mount", "--net", "--uts", "--ipc", "--pid"];
  return [...target, "env", "-C", "/place/cni", ...command];
}

/** Runs a command among the processes of a cluster. @returns its exit status */
async function enter(name: string, command: readonly string[]): Promise<number> {
  return await Bun.spawn([...entering(name, command)], {
    env: clusterEnv(),
    stdio: ["inherit", "inherit", "inherit"],
  }).exited;
}

/** Is called in a place, with a way to archives and registries. */
function prepare({ network, isBare }: KubernetesOptions): void {
  ensureKubernetesPrograms();
  ensureClusterImages();
  if (isBare) {
    ensureKubeadm();
    ensureKubeadmImages();
  }
  if (network === "flannel") ensureFlannel();
}

/** Runs this script among the processes of a cluster. */
const inside = (name: string, ...words: readonly string[]): Promise<number> =>
  enter(name, [BUN, "scripts/src/kubernetes/main.ts", ...words]);

/** Runs this script in a cluster that ends with it, if there is none yet. */
async function runInCluster(cluster: KubernetesOptions, ...command: readonly string[]): Promise<number> {
  const { name } = cluster;
  return findHolder(name) === undefined ? await runInNewCluster(cluster, ...command) : await inside(name, ...command);
}

/** Runs this script in a cluster that ends with it. */
async function runInNewCluster(cluster: KubernetesOptions, ...command: readonly string[]): Promise<number> {
  const { name } = cluster;
  const status = await startCluster(cluster);
  if (status !== 0) return status;
  onInterruption(() => killCluster(name));
  try {
    return await inside(name, ...command);
  } finally {
    await endCluster(name);
  }
}

async function unlessMissing(
  what: string,
  run: () => Promise<number>,
  missing = missingKubernetes(),
): Promise<number> {
  if (missing === "") return await run();
  console.log(`skipped: ${what} # ${missing}`);
  console.log("0 passed, 0 failed, 1 skipped");
  return 0;
}

/** From which network, and in which cluster. */
const MIGRATIONS = {
  flannel: { cluster: FLANNEL_CLUSTER, migrate: migrateFromFlannel },
  ranges: { cluster: RANGES_CLUSTER, migrate: migrateFromRanges },
};

/** @param which all without one */
async function migrate(which: string | undefined): Promise<number> {
  let status = 0;
  for (const [from, { cluster }] of Object.entries(MIGRATIONS)) {
    if (which !== undefined && which !== from) continue;
    status ||= await runInNewCluster({ ...options, ...cluster }, "migrate-inside", from);
  }
  return status;
}

async function load(name: string): Promise<number> {
  const status = await enter(name, [BUN, "scripts/src/build/main.ts"]);
  return status === 0 ? await inside(name, "replace") : status;
}

/** Two clusters that end with the comparison. */
async function compare(
  nodes: number,
  segments: number,
  measure: (inCluster: InCluster) => Promise<void>,
): Promise<number> {
  const clusters = Object.entries(comparedNetworks).map(([program, network]) => ({
    ...options,
    name: comparedCluster(program as never),
    network,
    nodes,
    segments,
  }));
  onInterruption(() => clusters.forEach(({ name }) => killCluster(name)));
  try {
    for (const cluster of clusters) {
      if (await startCluster(cluster) !== 0) throw new Error("The comparison was interrupted");
    }
    await measure((name, ...command) => runSuccessfully({ argv: entering(name, command), env: clusterEnv() }).stdout);
  } finally {
    for (const { name } of clusters) await endCluster(name);
  }
  return 0;
}

async function carryOut(): Promise<number> {
  const { name } = options;
  switch (command) {
    case "up":
      return await startCluster(options);
    case "test":
      return await unlessMissing("Kubernetes' own tests", () => runInCluster(options, "suite", ...words));
    case "shell":
      return await enter(name, words.length === 0 ? ["sh", "-i"] : words);
    case "compare":
      return await compare(3, 2, (inCluster) => compareNetworks(Number(words[0] ?? "20"), inCluster));
    case "pods":
      return await compare(1, 1, (inCluster) => {
        return measurePodsAtOnce(Number(words[0] ?? "40"), Number(words[1] ?? "5"), inCluster);
      });
    case "migrate":
      return await unlessMissing("a cluster that changes its network", () => migrate(words[0]));
    case "kubeadm":
      return await unlessMissing(
        "a cluster of kubeadm",
        () => runInNewCluster({ ...options, ...KUBEADM_CLUSTER }, "kubeadm-inside"),
        missingKubeadm(),
      );
    case "nodes":
      return await runInCluster({ ...options, nodes: 1 }, "nodes-inside", ...words);
    case "faults":
      return await unlessMissing(
        "faults of a cluster",
        () => runInNewCluster({ ...options, ...FAULT_CLUSTER }, "faults-inside", ...words),
      );
    case "load":
      return await load(name);
    case "down":
      await endCluster(name);
      return 0;
    case "prepare":
      prepare(options);
      return 0;
    case "suite":
      return await runSuite(words[0]);
    case "nodes-inside":
      return await measureManyNodes(Number(words[0] ?? "5000"));
    case "migrate-inside":
      return await MIGRATIONS[words[0] as keyof typeof MIGRATIONS].migrate();
    case "kubeadm-inside":
      return await tryKubeadm();
    case "faults-inside":
      return await runFaults(Number(words[0] ?? "20"));
    case "replace":
      await replaceProgram();
      return 0;
    default:
      return await runCluster(options);
  }
}

try {
  process.exit(await carryOut());
} catch (error) {
  console.error(`scripts/kubernetes: ${(error as Error).message}`);
  process.exit(1);
}
